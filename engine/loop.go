package engine

import (
	"errors"
	"fmt"
	"slices"

	"exacta.dev/exacta/kernels"
)

// LoopDrafter is a DeviceDrafter whose whole work can be recorded over tables
// in backend memory, so that a program can draft without the host.
type LoopDrafter interface {
	DeviceDrafter
	// Draft records draft step j, from 0, of k for the cache slots in slots
	// (I32 [n, 1]): the ids go to column StatTop1 of stats (I32 [n,
	// StatCols]).
	Draft(q kernels.Queue, stats, slots kernels.Buf, j, k int)
	// Level records what Committed does, from the tables alone: s has no
	// Spans.
	Level(s *Step)
}

// Loop is the device-resident form of the speculative step for greedy
// sequences and a LoopDrafter: draft, verification, acceptance, commit and
// levelling are one captured program over tables in backend memory. The host
// replays it and reads what was decided; it decides nothing. Its results are
// those of Step, bit for bit.
//
// A loop takes over sequences whose prompt has been read. The pages of their
// slots must reach as far as the loop runs, which NewLoop's steps bound.
type Loop struct {
	q       kernels.Queue
	seqs    []*Sequence
	k       int
	program kernels.Program
	out     kernels.Buf // I32 [spans, 2+k]: kept, next, drafts
	stats   kernels.Buf
	host    [2]loopReply
	steps   int // run
	most    int // may be run
}

// loopReply is the landing place of one step's result.
type loopReply struct {
	out, stats []int32
	ticket     kernels.Ticket
	used       bool
}

// LoopStep is what one replay decided for one sequence.
type LoopStep struct {
	Seq      *Sequence
	Drafts   []int32
	Accepted Accepted
	Next     int32
	// Hashes are those of the k+1 logits rows.
	Hashes []uint64
}

// NewLoop captures the program for seqs, all greedy, resident, past their
// prompts and of one drafter, with k drafts a step. At most steps steps may be
// run; the loop extends the slots' page tables for them now. While the sequences
// are not cancelled, the engine refuses Step. Close of the engine ends the loop.
func (e *Engine) NewLoop(seqs []*Sequence, k, steps int) (*Loop, error) {
	if e.failed != nil {
		return nil, e.failed
	}
	if steps < 1 || steps > e.cfg.MaxTokens {
		return nil, fmt.Errorf("engine: a loop of %d steps; it must be 1..%d (max_tokens)", steps, e.cfg.MaxTokens)
	}
	if len(seqs) == 0 || k < 1 || k > e.cfg.MaxDraft {
		return nil, fmt.Errorf("engine: a loop of %d sequences and k %d; it needs a sequence and k in 1..%d", len(seqs), k, e.cfg.MaxDraft)
	}
	entry := seqs[0].drafter
	if entry == nil {
		return nil, errors.New("engine: a loop needs sequences with a drafter")
	}
	d, ok := entry.device.(LoopDrafter)
	if !ok {
		return nil, fmt.Errorf("engine: drafter %s lives on the host; a loop needs one that can be recorded", entry.name)
	}
	for i, s := range seqs {
		switch {
		case slices.Contains(seqs[:i], s) || s.looped:
			return nil, fmt.Errorf("engine: request %s is in a loop already", s.req.ID)
		case s.finish != "":
			return nil, fmt.Errorf("engine: request %s has ended (%s)", s.req.ID, s.finish)
		case s.drafter != entry:
			return nil, errors.New("engine: the sequences of a loop share one drafter")
		case s.slot < 0 || len(s.tokens) != s.length+1:
			return nil, fmt.Errorf("engine: request %s has not read its prompt", s.req.ID)
		case !s.req.Params.Plain():
			return nil, fmt.Errorf("engine: request %s samples; a loop is greedy", s.req.ID)
		}
		if err := e.extend(s, s.length+steps*(k+1)+k+2); err != nil {
			return nil, err
		}
	}
	if err := e.settle(entry, seqs); err != nil {
		return nil, fmt.Errorf("engine: drafter %s: %w", entry.name, err)
	}
	l := &Loop{q: e.q, seqs: slices.Clone(seqs), k: k, most: steps}
	if err := l.capture(e, entry, d); err != nil {
		return nil, err
	}
	for _, s := range l.seqs {
		s.looped = true
	}
	e.looped += len(l.seqs)
	return l, nil
}

// extend makes the scheduler give a slot pages up to a length, and records them.
func (e *Engine) extend(s *Sequence, length int) error {
	op, err := e.core.Extend(s.id, length)
	if err != nil {
		return fmt.Errorf("engine: request %s: %w", s.req.ID, err)
	}
	if len(op.Pages) > 0 {
		e.q.SetPages(e.caches, op.Slot, op.First, op.Pages)
	}
	return nil
}

func (l *Loop) capture(e *Engine, entry *drafterEntry, d LoopDrafter) error {
	n, rows := len(l.seqs), len(l.seqs)*(l.k+1)
	if rows > int(e.t.batch.Token.Rows) || rows > int(e.stats.Rows) {
		return fmt.Errorf("engine: a loop of %d rows; batch_tokens allows %d", rows, e.t.batch.Token.Rows)
	}
	var err error
	alloc := func(rows, cols int) (b kernels.Buf) {
		if err == nil {
			if b, err = e.be.Alloc(kernels.Tables, kernels.I32, rows, cols); err == nil {
				e.extra = append(e.extra, b)
			}
		}
		return b
	}
	slots, draftStats := alloc(n, 1), alloc(n, kernels.StatCols)
	l.out, l.stats = alloc(n, 2+l.k), alloc(rows, kernels.StatCols)
	if err != nil {
		return err
	}
	ids, pending := make([]int32, n), make([]int32, n)
	for i, s := range l.seqs {
		ids[i], pending[i] = int32(s.slot), s.tokens[s.length]
	}
	kept, next, drafts := l.out.Columns(0, 1), l.out.Columns(1, 2), l.out.Columns(2, 2+l.k)
	e.q.Write(slots, int32Bytes(ids))
	e.q.Write(next, int32Bytes(pending))
	l.program, err = e.q.Capture(kernels.GraphKey{Name: "loop", Spans: n, Rows: rows}, func(q kernels.Queue) {
		for j := range l.k {
			d.Draft(q, draftStats, slots, j, l.k)
			q.Copy(drafts.Columns(j, j+1), draftStats.Columns(kernels.StatTop1, kernels.StatTop1+1))
		}
		b := e.t.batch.Prefix(n, rows, rows)
		b.MaxLen = l.k + 1
		q.Copy(b.Seq, slots)
		q.Chain(&b, e.caches, 0, next, drafts)
		out := e.m.Forward(q, &b, e.caches)
		q.Stats(l.stats, out.Logits, e.cfg.Vocab, !e.cfg.NoHash)
		d.Follow(q, &b)
		q.Accept(kept, next, kernels.RuleGreedy, &b, l.stats)
		q.Commit(e.caches, &b, kept, kernels.Buf{})
		step := Step{Queue: q, Batch: b, Kept: kept, Next: next, Hidden: out.Hidden}
		if entry.tap >= 0 {
			step.Taps = out.Taps[entry.tap]
		}
		d.Level(&step)
	})
	for i := range l.host {
		l.host[i].out = make([]int32, n*(2+l.k))
		l.host[i].stats = make([]int32, rows*kernels.StatCols)
	}
	return err
}

// Run replays the program n times, back to back, and calls each with what every
// step decided, one step late: the device is never waited for before the next
// step is under way. More steps than NewLoop was told, or a sequence that was
// cancelled, is an error, and nothing is run.
func (l *Loop) Run(n int, each func(step int, s []LoopStep)) error {
	if l.steps+n > l.most {
		return fmt.Errorf("engine: loop of %d steps asked for step %d", l.most, l.steps+n)
	}
	for _, s := range l.seqs {
		if s.finish != "" {
			return fmt.Errorf("engine: request %s has ended (%s); its loop can't go on", s.req.ID, s.finish)
		}
	}
	for range n {
		l.q.Run(l.program)
		r := &l.host[l.steps%2]
		l.q.Read(int32Bytes(r.out), l.out)
		r.ticket = l.q.Read(int32Bytes(r.stats), l.stats)
		r.used = true
		l.steps++
		if err := l.deliver(l.steps-2, each); err != nil {
			return err
		}
	}
	return l.deliver(l.steps-1, each)
}

func (l *Loop) deliver(step int, each func(int, []LoopStep)) error {
	if step < 0 {
		return nil
	}
	r := &l.host[step%2]
	if !r.used {
		return nil
	}
	if err := r.ticket.Wait(); err != nil {
		return fmt.Errorf("engine loop, step %d: %w", step, err)
	}
	r.used = false
	out := make([]LoopStep, len(l.seqs))
	width := 2 + l.k
	for i, s := range l.seqs {
		row := r.out[i*width:][:width]
		out[i] = LoopStep{Seq: s, Accepted: Accepted(row[0] - 1), Next: row[1], Drafts: append([]int32(nil), row[2:]...)}
		for j := range l.k + 1 {
			st := r.stats[(i*(l.k+1)+j)*kernels.StatCols:]
			out[i].Hashes = append(out[i].Hashes, uint64(uint32(st[kernels.StatHashLo]))|uint64(uint32(st[kernels.StatHashHi]))<<32)
		}
	}
	each(step, out)
	return nil
}
