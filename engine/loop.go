package engine

import (
	"fmt"
	"slices"
	"time"

	"exacta.dev/exacta/kernels"
)

// LoopDrafter is a DeviceDrafter whose whole work can be recorded over tables
// in backend memory, so that a program can draft without the host.
type LoopDrafter interface {
	DeviceDrafter
	// Draft records draft step j, from 0, of k for the cache slots in slots
	// (I32 [n, 1], negative ones idle): the ids go to column StatTop1 of stats
	// (I32 [n, StatCols]).
	Draft(q kernels.Queue, stats, slots kernels.Buf, j, k int)
	// Level records what Committed does, from the tables alone: s has no
	// Spans.
	Level(s *Step)
}

// loopStops is how many stop tokens a sequence of a loop may have.
const loopStops = 8

// loopKind says which loop can decode a sequence: with which drafter, and how many
// drafts a step. No loop can where ok is false.
type loopKind struct {
	drafter *drafterEntry // nil: plainly
	k       int
	ok      bool
}

// loopKind of a sequence: a greedy one, under the rule that the loop knows, without a
// drafter or with one that can be recorded.
func (e *Engine) loopKind(s *Sequence) loopKind {
	kind := loopKind{ok: s.req.Params.Plain() && s.req.Observe == nil && s.rule.Name() == "greedy" && (s.req.IgnoreStop || len(s.req.Stop) <= loopStops)}
	if s.k() == 0 || s.drafter == nil {
		kind.ok = kind.ok && s.drafter == nil
		return kind
	}
	_, recorded := s.drafter.device.(LoopDrafter)
	recorded = recorded && e.cfg.MaxSequences*(s.req.K+1) <= min(e.t.rows, e.t.logitRows)
	kind.drafter, kind.k, kind.ok = s.drafter, s.req.K, kind.ok && recorded && e.cfg.Lengths == nil
	return kind
}

// loop is the device-resident form of the speculative step. Draft, verification,
// acceptance, commit and levelling of its sequences are one program over tables in
// backend memory, captured for each bucket of spans; accepted counts, next tokens,
// positions and ends stay there. The host replays it and takes from a ring what each
// replay decided one replay late: the device is never waited for. Between two
// replays, and without stopping them, the host reads prompts, brings sequences in and
// takes them out, and extends page tables. What is decided is what Step decides, bit
// for bit.
type loop struct {
	e       *Engine
	kind    loopKind
	queue   kernels.LoopQueue
	ring    kernels.Ring
	t       loopTables
	program map[int]kernels.Program // by bucket
	spans   []*Sequence             // those in use
	flights []flight                // replays that have not been taken, in order
	entries [4]kernels.Entry
	prompts *promptStep // a step of prompts that has not been finished
	free    []flight
}

// loopTables are the tables of a loop, in backend memory, by span.
type loopTables struct {
	slots, left, stops kernels.Buf
	out                kernels.Buf // kept, next, drafts
	draft              kernels.Buf // statistics of a draft
}

// flight is one replay.
type flight struct {
	spans  []*Sequence // as they were
	bucket int
}

// newLoop allocates a loop and its ring.
func (e *Engine) newLoop(kind loopKind) (*loop, error) {
	be, ok := e.be.(kernels.Looper)
	if !ok {
		return nil, fmt.Errorf("engine: backend %s has no loops", e.be.Info().Name)
	}
	l := &loop{e: e, kind: kind, program: map[int]kernels.Program{}}
	if l.queue, ok = e.q.(kernels.LoopQueue); !ok {
		return nil, fmt.Errorf("engine: the queue of backend %s has no loops", e.be.Info().Name)
	}
	n, k := e.cfg.MaxSequences, kind.k
	for _, a := range []struct {
		dst  *kernels.Buf
		cols int
	}{{&l.t.slots, 1}, {&l.t.left, 1}, {&l.t.stops, loopStops}, {&l.t.out, 2 + k}, {&l.t.draft, kernels.StatCols}} {
		var err error
		if *a.dst, err = e.be.Alloc(kernels.Tables, kernels.I32, n, a.cols); err != nil {
			return nil, err
		}
		e.extra = append(e.extra, *a.dst)
	}
	// Two replays are out at most, each with four entries.
	var err error
	l.ring, err = be.Ring(16, n*(2+k)+n*(k+1)*kernels.StatCols)
	if err != nil {
		return nil, err
	}
	idle := slices.Repeat([]int32{-1}, n)
	l.queue.Write(l.t.slots, int32Bytes(idle))
	return l, nil
}

// bucket is the number of spans of the program for n sequences.
func (l *loop) bucket(n int) int {
	b := 1
	for b < n {
		b = max(b+1, b*3/2)
	}
	return min(b, l.e.cfg.MaxSequences)
}

// capture records the program of a bucket.
func (l *loop) capture(n int) (kernels.Program, error) {
	e, k, t := l.e, l.kind.k, &l.t
	rows := n * (k + 1)
	slots, out := t.slots.Top(n), t.out.Top(n)
	kept, next, drafts := out.Columns(0, 1), out.Columns(1, 2), kernels.Buf{}
	if k > 0 {
		drafts = out.Columns(2, 2+k)
	}
	return e.q.Capture(kernels.GraphKey{Name: "loop", Spans: n, Rows: rows}, func(cq kernels.Queue) {
		q := cq.(kernels.LoopQueue)
		q.Post(l.ring)
		for j := range k {
			draft := t.draft.Top(n)
			l.kind.drafter.device.(LoopDrafter).Draft(q, draft, slots, j, k)
			q.Copy(drafts.Columns(j, j+1), draft.Columns(kernels.StatTop1, kernels.StatTop1+1))
		}
		q.Post(l.ring)
		b := e.t.batch(n, rows, rows)
		b.MaxLen = k + 1
		q.Copy(b.Seq, slots)
		q.Chain(&b, e.caches, 0, next, drafts)
		pass := e.forward(q, &b)
		stats := e.stats.Top(rows)
		q.Accept(kept, next, kernels.RuleGreedy, &b, stats)
		q.Post(l.ring, out, stats)
		if k > 0 {
			l.kind.drafter.device.Follow(q, &b)
		}
		q.Halt(slots, t.left.Top(n), kept, next, drafts, t.stops.Top(n))
		q.Commit(e.caches, &b, kept, kernels.Buf{})
		if k > 0 {
			step := Step{Queue: q, Batch: b, Kept: kept, Next: next, Hidden: pass.Hidden}
			if tap := l.kind.drafter.tap; tap >= 0 {
				step.Taps = pass.Taps[tap]
			}
			l.kind.drafter.device.(LoopDrafter).Level(&step)
		}
		q.Post(l.ring)
	})
}

// replay runs the program over all spans in use.
func (l *loop) replay() error {
	n := len(l.spans)
	if n == 0 {
		return nil
	}
	bucket := l.bucket(n)
	p, ok := l.program[bucket]
	if !ok {
		var err error
		if p, err = l.capture(bucket); err != nil {
			return err
		}
		l.program[bucket] = p
	}
	l.queue.Run(p)
	f := flight{}
	if last := len(l.free); last > 0 {
		f, l.free = l.free[last-1], l.free[:last-1]
	}
	f.spans, f.bucket = append(f.spans[:0], l.spans...), bucket
	l.flights = append(l.flights, f)
	return nil
}

// await takes the entries of the oldest replay.
func (l *loop) await() error {
	for i := range l.entries {
		for looks := 0; ; looks++ {
			there, err := l.ring.Take(&l.entries[i])
			if err != nil {
				return err
			}
			if there {
				break
			}
			if looks > 1<<12 {
				time.Sleep(5 * time.Microsecond)
			}
		}
	}
	return nil
}

// take finishes the oldest replay: records, ends, and the scheduler's books.
func (l *loop) take() error {
	if err := l.await(); err != nil {
		return err
	}
	f := l.flights[0]
	l.flights = append(l.flights[:0], l.flights[1:]...)
	e, width := l.e, 2+l.kind.k
	data := l.entries[2].Data
	stats := data[f.bucket*width:]
	active := 0
	for i := range f.spans {
		if data[i*width] > 0 {
			active++
		}
	}
	for i, s := range f.spans {
		row := data[i*width:][:width]
		if s.finish != "" || row[0] == 0 {
			continue
		}
		d := decision{seq: s, kept: int(row[0]), next: row[1], drafts: row[2:], stats: stats[i*(l.kind.k+1)*kernels.StatCols:][:(l.kind.k+1)*kernels.StatCols]}
		if err := l.decided(&d, active); err != nil {
			return err
		}
	}
	l.free = append(l.free, f)
	e.step++
	return nil
}
