package sched

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// The model of these tests: the next token is a function of the hash of all
// tokens before it.
const (
	vocab = 251
	eos   = 7
)

func nextToken(h uint64) int32 { return int32(h >> 13 % 997 % vocab) }

// oracle continues a prompt up to eos or maxLen tokens, with no scheduler.
func oracle(prompt []int32, maxLen int) []int32 {
	out := slices.Clone(prompt)
	for h := chainAll(prompt); len(out) < maxLen; {
		t := nextToken(h)
		out = append(out, t)
		if t == eos {
			break
		}
		h = chain(h, t)
	}
	return out
}

// world is a core with a device and a model around it: a small engine.
type world struct {
	cfg   Config
	core  *Tracer
	trace bytes.Buffer
	dev   *device
	known map[int64][]int32 // of unfinished requests
	reqs  map[int64]Request
	done  map[int64][]int32 // of finished ones
	seen  coverage

	prompts map[int64][]int32 // of all requests

	// accept says how many of k drafts are right, execute how many are
	// verified, fail and stop whether the sequence fails or ends in this
	// step.
	accept, execute func(id int64, k int) int
	fail, stop      func(id int64) bool
	// inFlight is called between Plan and Commit.
	inFlight func(Plan)
}

// coverage counts the cases that a suite must have met.
type coverage struct {
	steps, preempted, hits, saved, swapped, pending, noPages, outputPages int
	cutAtStop, failed, cancelled, cancelledInFlight, shortOfPages         int
	recomputed, computed, redrafted, pinned                               int
}

func newWorld(cfg Config) (*world, error) {
	w := &world{
		cfg: cfg, known: map[int64][]int32{}, reqs: map[int64]Request{}, done: map[int64][]int32{},
		accept:   func(_ int64, k int) int { return k },
		execute:  func(_ int64, k int) int { return k },
		fail:     func(int64) bool { return false },
		stop:     func(int64) bool { return false },
		prompts:  map[int64][]int32{},
		inFlight: func(Plan) {},
	}
	var err error
	if w.core, err = NewTracer(cfg, &w.trace); err != nil {
		return nil, err
	}
	w.cfg = w.core.Config()
	w.dev = newDevice(w.cfg)
	return w, nil
}

func (w *world) submit(r Request) error {
	if err := w.core.Submit(r); err != nil {
		return err
	}
	w.reqs[r.ID], w.prompts[r.ID] = r, slices.Clone(r.Prompt)
	w.known[r.ID] = slices.Clone(r.Prompt)
	return nil
}

// cancel ends a request; its output so far is dropped.
func (w *world) cancel(id int64) bool {
	if !w.core.Cancel(id) {
		return false
	}
	w.seen.cancelled++
	delete(w.reqs, id)
	if w.core.byID[id] == nil {
		delete(w.known, id)
	}
	return true
}

// redraft sets other draft lengths for the sequences that decode next.
func (w *world) redraft(rng *rand.Rand) (err error) {
	w.core.Decoding(func(id int64, most int) {
		if k := w.core.byID[id].most; err == nil && most > 0 && rng.IntN(2) == 0 {
			w.seen.redrafted++
			err = w.core.Drafts(id, rng.IntN(k+1))
		}
	})
	return err
}

// step plans, computes and commits one step. The error says what the plan broke.
func (w *world) step() (Plan, error) {
	before := slices.Clone(w.core.running)
	p := w.core.Plan()
	w.seen.note(w, p)
	if err := w.checkPlan(p, before); err != nil {
		return p, err
	}
	for _, op := range p.Before {
		if err := w.dev.apply(op); err != nil {
			return p, err
		}
	}
	var results []Result
	for _, it := range p.Items {
		r, err := w.compute(it)
		if err != nil {
			return p, err
		}
		results = append(results, r)
	}
	w.inFlight(p)
	for _, op := range p.After {
		if i := slices.IndexFunc(results, func(r Result) bool { return r.ID == op.ID }); results[i].Done && results[i].Kept == 0 {
			continue // failed: there is nothing to save
		}
		if err := w.dev.apply(op); err != nil {
			return p, err
		}
	}
	if err := w.core.Commit(results); err != nil {
		return p, err
	}
	return p, w.finish(results)
}

// compute runs one item: the drafts, the rows, and the verdict.
func (w *world) compute(it Item) (Result, error) {
	known := w.known[it.ID]
	if it.Start+it.Rows > len(known) || it.Last != (it.Start+it.Rows == len(known)) {
		return Result{}, fmt.Errorf("%v: %d tokens are known", it, len(known))
	}
	rows := slices.Clone(known[it.Start : it.Start+it.Rows])
	k := w.execute(it.ID, it.K)
	right := min(w.accept(it.ID, it.K), k)
	h := chainAll(known)
	for i := range k {
		t := nextToken(h)
		if i >= right {
			t = (t + 1) % vocab
		}
		rows = append(rows, t)
		h = chain(h, t)
	}
	if w.fail(it.ID) {
		w.seen.failed++
		return Result{ID: it.ID, Done: true}, nil
	}
	hashes, err := w.dev.run(it, known[:it.Start], rows)
	if err != nil {
		return Result{}, err
	}
	r := Result{ID: it.ID, Kept: len(rows)}
	if it.Phase == Decode {
		r.Kept = 1
		for r.Kept <= k && nextToken(hashes[r.Kept-1]) == rows[r.Kept] {
			r.Kept++
		}
	}
	if it.Phase == Decode {
		r.Tokens = append(r.Tokens, rows[1:r.Kept]...)
	}
	if it.Last {
		r.Tokens = append(r.Tokens, nextToken(hashes[r.Kept-1]))
	}
	if i := slices.Index(r.Tokens, eos); i >= 0 {
		if i+1 < len(r.Tokens) {
			w.seen.cutAtStop++
		}
		r.Tokens, r.Done = r.Tokens[:i+1], true
	}
	r.Done = r.Done || w.stop(it.ID)
	w.dev.commit(it, hashes, r.Kept)
	return r, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *world) finish(results []Result) error {
	for _, r := range results {
		w.known[r.ID] = append(w.known[r.ID], r.Tokens...)
		known := w.known[r.ID]
		req, wanted := w.reqs[r.ID]
		gone := w.core.byID[r.ID] == nil
		if want := r.Done || !wanted || len(known) == req.MaxLen; gone != want {
			return fmt.Errorf("sequence %d: forgotten %v, want %v", r.ID, gone, want)
		}
		if !gone {
			if got := w.core.Known(r.ID); !slices.Equal(got, known) {
				return fmt.Errorf("sequence %d: known %v, want %v", r.ID, got, known)
			}
			continue
		}
		if wanted && (len(r.Tokens) > 0 || r.Kept > 0) {
			w.done[r.ID] = known
		}
		delete(w.known, r.ID)
		delete(w.reqs, r.ID)
	}
	return nil
}

// checkPlan verifies what a plan promises. before are the sequences that ran.
func (w *world) checkPlan(p Plan, before []*sequence) error {
	rows, phase := 0, Decode
	seen := map[int64]bool{}
	for _, it := range p.Items {
		rows += it.Rows + it.K
		switch {
		case seen[it.ID]:
			return fmt.Errorf("%v: twice in a plan", it)
		case it.Phase == Decode && phase == Prefill:
			return fmt.Errorf("%v: after prefill", it)
		case it.Rows < 1 || it.Phase == Prefill && (it.Rows > w.cfg.Chunk || it.K != 0) || it.Phase == Decode && it.Rows != 1:
			return fmt.Errorf("%v: rows", it)
		case it.K < 0 || it.K > w.core.byID[it.ID].k || len(w.known[it.ID])+it.K+1 > w.core.byID[it.ID].maxLen:
			return fmt.Errorf("%v: drafts", it)
		}
		seen[it.ID], phase = true, it.Phase
	}
	switch {
	case rows > w.cfg.MaxBatchTokens || len(p.Items) > w.cfg.MaxSpans:
		return fmt.Errorf("%d rows and %d spans", rows, len(p.Items))
	case rows != p.DecodeRows+p.PrefillRows:
		return fmt.Errorf("%d rows, counted as %d+%d", rows, p.DecodeRows, p.PrefillRows)
	case len(p.Items) == 0 && w.core.Len() > 0:
		return errors.New("nothing planned, and there is work")
	}
	if len(p.Preempted) > 0 {
		safe := slices.MaxFunc(before, func(a, b *sequence) int { return cmp.Compare(a.priority, b.priority) })
		if slices.Contains(p.Preempted, safe.id) {
			return fmt.Errorf("sequence %d is preempted, the oldest of the highest priority", safe.id)
		}
	}
	return w.core.verify()
}

func (v *coverage) note(w *world, p Plan) {
	v.steps++
	v.preempted += len(p.Preempted)
	for _, it := range p.Items {
		s := w.core.byID[it.ID]
		v.hits += btoi(it.Cached > 0)
		v.computed += it.Rows
		if it.Phase == Prefill && s.preemptions > 0 {
			v.recomputed += it.Rows
		}
		v.shortOfPages += btoi(it.Phase == Decode && it.K < s.wants() && p.FreePages+p.IdlePages == 0)
	}
	for _, op := range p.Before {
		length := w.core.byID[op.ID].length
		v.swapped += btoi(op.Kind == SetPages && op.First*64 < length && w.dev.slots[op.Slot].length == length)
	}
	v.saved += len(p.After)
	v.pending += btoi(p.Blocked.Why == PrefixPending)
	v.noPages += btoi(p.Blocked.Why == NoPages)
	v.outputPages += btoi(p.Blocked.Why == OutputPages)
	v.pinned += btoi(w.core.pages.Pinned() > 0)
}

func (v *coverage) add(o coverage) {
	for _, x := range []struct{ a, b *int }{
		{&v.steps, &o.steps}, {&v.preempted, &o.preempted}, {&v.hits, &o.hits}, {&v.saved, &o.saved},
		{&v.swapped, &o.swapped}, {&v.pending, &o.pending}, {&v.noPages, &o.noPages},
		{&v.cutAtStop, &o.cutAtStop}, {&v.failed, &o.failed}, {&v.cancelled, &o.cancelled},
		{&v.cancelledInFlight, &o.cancelledInFlight}, {&v.shortOfPages, &o.shortOfPages},
		{&v.recomputed, &o.recomputed}, {&v.computed, &o.computed},
		{&v.redrafted, &o.redrafted}, {&v.outputPages, &o.outputPages}, {&v.pinned, &o.pinned},
	} {
		*x.a += *x.b
	}
}
