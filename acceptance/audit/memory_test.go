package audit_test

import (
	"fmt"
	"iter"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
)

// endlessRun is a case of one request after another, made as it is read, and the
// largest heap that was seen while it was.
func endlessRun(requests, steps int) (*audit.Case, *uint64) {
	const prompt = 16
	c := &audit.Case{Run: "long", Requests: map[string]*audit.Request{}, NoLab: "none here", Claims: map[string]audit.Claim{}}
	heap := new(uint64)
	for i := range requests {
		id := fmt.Sprintf("q%d", i)
		r := &audit.Request{
			ID: id, Prompt: make([]int32, prompt), MaxNew: 1 + 2*steps, Drafter: "ngram", Strategy: "ngram", K: 3, Rule: "greedy",
			IgnoreStop: true, Ended: true, Finish: engine.FinishLength,
		}
		for range 1 + 2*steps {
			r.Received = append(r.Received, 7)
		}
		c.Requests[id] = r
	}
	c.Records = func() iter.Seq2[*engine.Record, error] {
		return func(yield func(*engine.Record, error) bool) {
			step := int64(0)
			for i := range requests {
				for s := range steps + 1 {
					r := &engine.Record{
						Request: fmt.Sprintf("q%d", i), Sequence: int64(i), Step: step, SeqStep: int32(s), Phase: engine.Decode, Batch: 1,
						Drafter: "ngram", Rule: "greedy", Position: int32(prompt + 2*s - 2), Rows: 4, BatchRows: 4, KPlanned: 3, KExecuted: 3, TreeNodes: 3,
						ProposedIDs: []int32{7, 8, 8}, TargetIDs: []int32{7, 7, 7, 7}, Accepted: 1, RealAccepted: 1, ForcedAccepted: 1,
						NextID: 7, RealNextID: 7, NextKind: engine.NextCorrection, EmittedIDs: []int32{7, 7},
						Gaps: make([]float32, 4), Hashes: make([]uint64, 4), DraftNs: 1, VerifyNs: 2, TotalNs: 10 + step%7,
					}
					if s == 0 {
						r.Phase, r.Position, r.Rows, r.BatchRows, r.PrefillTokens = engine.Prefill, 0, prompt, prompt, prompt
						r.KPlanned, r.KExecuted, r.TreeNodes, r.ProposedIDs, r.TargetIDs = 0, 0, 0, nil, []int32{7}
						r.Accepted, r.RealAccepted, r.ForcedAccepted, r.NextKind, r.EmittedIDs = 0, 0, 0, engine.NextSampled, []int32{7}
						r.Gaps, r.Hashes = r.Gaps[:1], r.Hashes[:1]
					}
					step++
					if step%5000 == 0 {
						var m runtime.MemStats
						runtime.GC()
						runtime.ReadMemStats(&m)
						*heap = max(*heap, m.HeapAlloc)
					}
					if !yield(r, nil) {
						return
					}
				}
			}
		}
	}
	return c, heap
}

// The audits stream: eight times the records of as many requests take no more
// memory than their tokens and some.
func TestMemoryIsFlat(t *testing.T) {
	for name, f := range audits {
		var peaks []uint64
		for _, steps := range []int{250, 2000} {
			c, heap := endlessRun(40, steps)
			r, err := f(t.Context(), c, nil)
			require.NoError(t, err)
			require.NotEqual(t, audit.Fail, r.Verdict, "%s: %s", name, r.Why)
			peaks = append(peaks, *heap)
		}
		tokens := uint64(40 * (2000 - 250) * 2 * 4) // what was received
		require.Less(t, peaks[1], peaks[0]+tokens+2<<20, name)
	}
}
