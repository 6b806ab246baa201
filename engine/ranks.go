package engine

import (
	"fmt"
	"slices"
	"strings"

	"exacta.dev/exacta/kernels"
)

// Ranks connects an engine to its twins: engines of the same configuration, one
// per rank of a tensor-parallel group, each on a backend that holds a part of
// the weights (kernels/ranks; its Backend is a Ranks). All are given the same
// requests in the same order, and nothing else between two steps, so that all
// take the same steps: the scheduler, the drafters and the rules run on every
// rank. They must decide alike, and after the verdicts of each step the engines
// exchange what they decided:
//
//   - Every record carries the outcome's hash by rank (Record.RankHashes).
//   - If a hash differs, the step ends at once on every rank: the records of
//     the step are written as rank 0 decided, and Step returns a *DriftError
//     that names the step and the request. With Config.Drift the engines go
//     on, as engines without this check do, until an exchange of activations
//     no longer fits; then every rank gets the group's error. No rank is left
//     waiting in either case.
//   - Rank 0 alone has a recorder and a listener; those given to others are
//     not called.
//
// A drafter or rule that decides by the clock, or a sequence that is cancelled on
// one rank, leads the ranks apart like any other difference.
type Ranks interface {
	// Rank is this engine's number, from 0.
	Rank() int
	// Size is the number of ranks.
	Size() int
	// Gather exchanges hashes, and returns those of every rank, by rank,
	// valid until the next call. The ranks' lists may differ in length. Its
	// error says that a rank is gone or somewhere else.
	Gather(hashes []uint64) ([][]uint64, error)
	// Fail tells the other ranks that this one has ended, and why.
	Fail(err error)
}

// DriftError says that the ranks of a group decided differently on a sequence.
type DriftError struct {
	Step    int64
	Request string
	// Hashes are the hashes of the outcome by rank; 0 where a rank did not
	// have the sequence in its step.
	Hashes []uint64
}

// Error names the step, the request and the hashes.
func (d *DriftError) Error() string {
	var by []string
	for r, h := range d.Hashes {
		by = append(by, fmt.Sprintf("rank %d %016x", r, h))
	}
	return fmt.Sprintf("request %s: the ranks decided differently in step %d (%s); their random numbers, weights or inputs are not the same", d.Request, d.Step, strings.Join(by, ", "))
}

// OutcomeHash is the hash of what was decided on a sequence in a step, as
// Record.RankHashes has it. next is -1 where no token was decided.
func OutcomeHash(sequence int64, accepted Accepted, next int32, emitted []int32) uint64 {
	h := kernels.FoldHash(kernels.HashStart, uint64(sequence))
	h = kernels.FoldHash(h, uint64(accepted))
	h = kernels.FoldHash(h, uint64(uint32(next)))
	for _, id := range emitted {
		h = kernels.FoldHash(h, uint64(uint32(id)))
	}
	return h
}

// twins is the engine's side of the exchange; all is empty on a single rank.
type twins struct {
	hashes []uint64   // of this rank, by place in the plan
	all    [][]uint64 // of every rank
}

// several reports whether the engine is one of several.
func (c *Config) several() bool { return c.Ranks != nil && c.Ranks.Size() > 1 }

// quiet takes recorder and listener away from ranks other than the first.
func (c *Config) quiet(r Recorder, l Listener) (Recorder, Listener) {
	if c.several() && c.Ranks.Rank() != 0 {
		return nil, Listener{}
	}
	return r, l
}

// outcomes exchanges what was decided in the step. A difference ends the step,
// after its records, unless the configuration lets ranks drift.
func (e *Engine) outcomes(b kernels.Batch, begin, verifyNs int64) error {
	if !e.cfg.several() {
		return nil
	}
	t := &e.twins
	t.hashes = slices.Grow(t.hashes[:0], len(e.w.items))[:len(e.w.items)]
	for i := range e.w.items {
		it := &e.w.items[i]
		t.hashes[it.at] = OutcomeHash(it.seq.id, it.verdict.Accepted, it.verdict.Next, it.emit)
		if it.err != nil {
			t.hashes[it.at] = OutcomeHash(it.seq.id, -1, -1, nil)
		}
	}
	var err error
	if t.all, err = e.cfg.Ranks.Gather(t.hashes); err != nil {
		return err
	}
	drift := e.drift()
	if drift == nil || e.cfg.Drift {
		return nil
	}
	if err := e.advance(nil); err != nil {
		return err
	}
	if err := e.report(b, verifyNs, e.cfg.Now()-begin); err != nil {
		return err
	}
	return drift
}

// drift returns the first difference between the ranks, in order of the plan, or
// nil.
func (e *Engine) drift() error {
	for at := range e.twins.hashes {
		if e.agreed(at) {
			continue
		}
		i := slices.IndexFunc(e.w.items, func(it item) bool { return it.at == at })
		return &DriftError{Step: e.step, Request: e.w.items[i].seq.req.ID, Hashes: e.rankHashes(at)}
	}
	for r, hashes := range e.twins.all {
		if len(hashes) != len(e.twins.hashes) {
			return fmt.Errorf("the ranks decided differently in step %d: %d sequences on rank %d, %d on rank %d", e.step, len(e.twins.hashes), e.cfg.Ranks.Rank(), len(hashes), r)
		}
	}
	return nil
}

// agreed reports whether all ranks have one hash at a place of the plan.
func (e *Engine) agreed(at int) bool {
	for _, hashes := range e.twins.all {
		if at >= len(hashes) || hashes[at] != e.twins.hashes[at] {
			return false
		}
	}
	return true
}

// rankHashes returns the hashes of the outcome at a place of the plan, by rank;
// nil on a single rank.
func (e *Engine) rankHashes(at int) []uint64 {
	if len(e.twins.all) == 0 {
		return nil
	}
	by := make([]uint64, len(e.twins.all))
	for r, hashes := range e.twins.all {
		if at < len(hashes) {
			by[r] = hashes[at]
		}
	}
	return by
}

// fails tells the other ranks.
func (e *Engine) fails(err error) error {
	if e.cfg.several() {
		e.cfg.Ranks.Fail(err)
	}
	return err
}
