package engine

import (
	"fmt"
	"slices"
	"time"

	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

// LoopDrafter is a DeviceDrafter whose whole work can be recorded over tables
// in backend memory, so that a program can draft without the host.
type LoopDrafter interface {
	DeviceDrafter
	// Loops says how many of k drafts Draft gives a request with these parameters;
	// ok is false where they are not those of Propose.
	Loops(p sample.Params, k int) (drafts int, ok bool)
	// Draft records draft step j, from 0, of k for the cache slots in slots
	// (I32 [n, 1], negative ones idle): the ids go to column StatTop1 of stats
	// (I32 [n, StatCols]).
	Draft(q kernels.Queue, stats, slots kernels.Buf, j, k int)
	// Level records what Committed does, from the tables alone: s has no
	// Spans.
	Level(s *Step)
}

// ChainDrafter is a drafter that says whether it proposes chains alone: a loop can then
// verify its drafts.
type ChainDrafter interface {
	Drafter
	Chains() bool
}

// loopStops is how many stop tokens a sequence of a loop may have.
const loopStops = 8

// loopable says whether a loop can decode a sequence: by a rule with a twin on the
// device, with ends that the device can see, and with drafts that can be recorded, or
// that are chains from the host.
func (e *Engine) loopable(s *Sequence) bool {
	r := &s.req
	if s.twin() == NoTwin || r.Observe != nil || r.ObservePrompt != nil || r.Until != nil || !r.IgnoreStop && len(r.Stop) > loopStops {
		return false
	}
	if s.k() == 0 {
		return true
	}
	switch d := s.drafter.Drafter.(type) {
	case LoopDrafter:
		_, ok := d.Loops(r.Params, r.K)
		return ok
	case ChainDrafter:
		return d.Chains()
	}
	return false
}

// loop is the device-resident form of the speculative step. Draft, verification,
// acceptance, commit and levelling of its sequences are one program over tables in
// backend memory, captured for each bucket of spans and number of drafts; accepted
// counts, next tokens, positions and ends stay there. The host replays it and takes
// from a ring what each replay decided one replay late: the device is never waited
// for. Between two replays, and without stopping them, the host reads prompts, brings
// sequences in and takes them out, and extends page tables. Drafters on the host need
// each decision before they draft: their loop takes a replay before the next one, and
// uploads the drafts. What is decided is what Step decides, bit for bit.
type loop struct {
	e       *Engine
	drafter *drafterEntry // nil: plainly
	queue   kernels.LoopQueue
	ring    kernels.Ring
	t       loopTables
	program map[shape]kernels.Program
	spans   []*Sequence // those in use
	most    []int32     // of spans, as uploaded
	flights []flight    // replays and steps of prompts that have not been taken, in order
	entries [4]kernels.Entry
	end     time.Duration // of the flight before, on the device's clock; 0: there was a pause
	free    []flight
	LoopStats
}

// LoopStats is what the loops of an engine have done.
type LoopStats struct {
	// Replays are the programs that were replayed, Captures those that were captured
	// for them.
	Replays, Captures int64
	// Busy is the time that replays took on the device, Idle that between a replay
	// and the one in front of it, where nothing but the host lay between them.
	Busy, Idle time.Duration
}

// LoopStats returns what the engine's loops have done so far.
func (e *Engine) LoopStats() (sum LoopStats) {
	for _, l := range e.loops {
		sum.Replays, sum.Captures = sum.Replays+l.Replays, sum.Captures+l.Captures
		sum.Busy, sum.Idle = sum.Busy+l.Busy, sum.Idle+l.Idle
	}
	return sum
}

// shape is what a program is captured for.
type shape struct {
	spans, drafts int
	drawn         bool // tokens of some span are drawn
}

// rows are the rows of the target's pass.
func (s shape) rows() int { return s.spans * (s.drafts + 1) }

// loopTables are the tables of a loop, in backend memory, by span.
type loopTables struct {
	slots, left, most, stops kernels.Buf
	out                      kernels.Buf // kept, next, drafts
	draft                    kernels.Buf // statistics of a draft
	how                      kernels.Buf // tokens are drawn, by span
	promptHow                kernels.Buf // the same of a step of prompts
	choice                   kernels.Buf // the target's choice, by row
}

// flight is one replay, or a step of prompts.
type flight struct {
	spans   []*Sequence // as they were
	planned []int       // drafts of each
	shape   shape
	hostNs  int64 // of drafting on the host
	prompts *promptStep
}

// newLoop allocates a loop and its ring.
func (e *Engine) newLoop(d *drafterEntry) (*loop, error) {
	be, ok := e.be.(kernels.Looper)
	if !ok {
		return nil, fmt.Errorf("engine: backend %s has no loops", e.be.Info().Name)
	}
	l := &loop{e: e, drafter: d, program: map[shape]kernels.Program{}}
	if l.queue, ok = e.q.(kernels.LoopQueue); !ok {
		return nil, fmt.Errorf("engine: the queue of backend %s has no loops", e.be.Info().Name)
	}
	n, k := e.cfg.MaxSequences, l.widest()
	var list []bufSpec
	for _, a := range []struct {
		dst        *kernels.Buf
		rows, cols int
	}{
		{&l.t.slots, n, 1}, {&l.t.left, n, 1}, {&l.t.most, n, 1}, {&l.t.stops, n, loopStops}, {&l.t.out, n, 2 + k}, {&l.t.draft, n, kernels.StatCols},
		{&l.t.how, n, kernels.DrawCols}, {&l.t.promptHow, n, kernels.DrawCols}, {&l.t.choice, n * (k + 1), 1},
	} {
		list = append(list, bufSpec{a.dst, kernels.Tables, kernels.I32, a.rows, a.cols})
	}
	bufs, err := e.allocAll(list)
	if err != nil {
		return nil, err
	}
	e.extra = append(e.extra, bufs...)
	// Out are two replays at most, of four entries each, and a step of prompts, of
	// three.
	l.ring, err = be.Ring(16, n*(2+k)+n*(k+1)*(kernels.StatCols+1))
	if err != nil {
		return nil, err
	}
	idle := slices.Repeat([]int32{-1}, n)
	l.queue.Write(l.t.slots, int32Bytes(idle))
	return l, nil
}

// widest is the most drafts of a program.
func (l *loop) widest() int {
	if l.drafter == nil {
		return 0
	}
	return l.e.cfg.MaxDraft
}

// bucket is the number of spans of the program for n sequences.
func (l *loop) bucket(n int) int {
	b := 1
	for b < n {
		b = max(b+1, b*3/2)
	}
	return min(b, l.e.cfg.MaxSequences)
}

// device is the drafter where it drafts on the device, or nil.
func (l *loop) device() LoopDrafter {
	if l.drafter == nil {
		return nil
	}
	d, _ := l.drafter.Drafter.(LoopDrafter)
	return d
}

// onHost says whether the host drafts.
func (l *loop) onHost() bool { return l.drafter != nil && l.device() == nil }

// record records what the program of a shape does.
func (l *loop) record(q kernels.LoopQueue, sh shape) {
	e, t, n, k, d := l.e, &l.t, sh.spans, sh.drafts, l.device()
	rows := sh.rows()
	slots, out := t.slots.Top(n), t.out.Top(n).Columns(0, 2+k)
	kept, next, drafts := out.Columns(0, 1), out.Columns(1, 2), kernels.Buf{}
	if k > 0 {
		drafts = out.Columns(2, 2+k)
	}
	q.Post(l.ring)
	if d != nil {
		for j := range k {
			draft := t.draft.Top(n)
			d.Draft(q, draft, slots, j, k)
			q.Copy(drafts.Columns(j, j+1), draft.Columns(kernels.StatTop1, kernels.StatTop1+1))
		}
	}
	if k > 0 {
		q.Limit(drafts, t.left.Top(n), t.most.Top(n))
	}
	q.Post(l.ring)
	b := e.t.batch(n, rows, rows)
	b.MaxLen = k + 1
	q.Copy(b.Seq, slots)
	q.Chain(&b, e.caches, 0, next, drafts)
	pass := e.forward(q, &b)
	stats := e.stats.Top(rows)
	target := stats
	if sh.drawn {
		target = t.choice.Top(rows)
		q.Draw(target, stats, pass.Logits, t.how.Top(n), &b, e.cfg.Vocab)
	}
	choice := target.Columns(kernels.StatTop1, kernels.StatTop1+1)
	q.Accept(kept, next, kernels.RuleGreedy, &b, target)
	q.Post(l.ring, out, stats, choice)
	if d != nil {
		d.Follow(q, &b)
	}
	q.Halt(slots, t.left.Top(n), kept, next, drafts, t.stops.Top(n))
	q.Commit(e.caches, &b, kept, kernels.Buf{})
	if d != nil {
		d.Level(l.levelled(q, b, pass, kept, next))
	}
	q.Post(l.ring)
}

// replay runs the program over all spans in use.
func (l *loop) replay() error {
	if len(l.spans) == 0 {
		return nil
	}
	f := flight{}
	if last := len(l.free); last > 0 {
		f, l.free = l.free[last-1], l.free[:last-1]
	}
	f.spans, f.prompts = append(f.spans[:0], l.spans...), nil
	if err := l.plan(&f); err != nil {
		return err
	}
	if err := l.run(f.shape); err != nil {
		return err
	}
	l.Replays++
	l.flights = append(l.flights, f)
	return nil
}

// run runs the program of a shape, captured when it is first needed.
func (l *loop) run(sh shape) error {
	if t := l.e.cfg.Timeline; t != nil {
		l.record(l.queue, sh)
		return t.device(decodeLane, fmt.Sprintf("loop: %d sequences, %d drafts", sh.spans, sh.drafts), l.e.step)
	}
	p, ok := l.program[sh]
	if !ok {
		var err error
		l.Captures++
		p, err = l.queue.Capture(kernels.GraphKey{Name: "loop", Spans: sh.spans, Rows: sh.rows()}, func(q kernels.Queue) {
			l.record(q.(kernels.LoopQueue), sh)
		})
		if err != nil {
			return err
		}
		l.program[sh] = p
	}
	l.queue.Run(p)
	return nil
}

// await takes the next n entries.
func (l *loop) await(n int) error {
	for i := range n {
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
