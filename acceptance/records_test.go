package acceptance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"exacta.dev/exacta/engine"

	"github.com/stretchr/testify/require"
)

// fakeRun makes the records of a run: requests of one engine after another, each
// a prompt of two chunks and some verifications.
func fakeRun(seed uint64, engines, requests, steps int) []*engine.Record {
	r := rand.New(rand.NewPCG(seed, 1))
	var out []*engine.Record
	for e := range engines {
		position := make([]int32, requests)
		for step := range steps {
			for q := range requests {
				rec := &engine.Record{
					Request: fmt.Sprintf("p%d.r0/q%d", e, q), Sequence: int64(q), Step: int64(step), SeqStep: int32(step),
					Phase: engine.Prefill, Batch: int32(requests), BatchRows: int32(5 * requests), Position: position[q], Rows: 7,
					Drafter: "mtp", Rule: "greedy", NextID: -1, NextKind: engine.NextNone,
					DraftNs: int64(100 * step), VerifyNs: int64(1000 + step), TotalNs: int64(2000 + 10*step + e),
				}
				out = append(out, rec)
				kept := int32(7)
				switch {
				case step == 0:
					rec.PrefillTokens, rec.Cached = int32(7*requests), int32(64*q)
				case step == 1:
					rec.PrefillTokens = int32(7 * requests)
					choose(r, rec, 0)
				default:
					k := r.IntN(5)
					rec.Phase, rec.KPlanned, rec.KExecuted, rec.TreeNodes = engine.Decode, 4, int32(k), int32(k)
					rec.Rows = int32(k + 1)
					choose(r, rec, k)
					kept = int32(rec.Accepted.Length())
				}
				position[q] += kept
			}
		}
	}
	return out
}

// choose fills in what a verification of k random drafts decided.
func choose(r *rand.Rand, rec *engine.Record, k int) {
	accepted := r.IntN(k + 1)
	for range k {
		rec.ProposedIDs = append(rec.ProposedIDs, r.Int32N(100))
	}
	for range k + 1 {
		rec.Hashes = append(rec.Hashes, r.Uint64())
		rec.Gaps = append(rec.Gaps, r.Float32())
	}
	rec.Accepted, rec.RealAccepted, rec.ForcedAccepted = engine.Accepted(accepted), engine.Accepted(accepted), engine.Accepted(accepted)
	rec.NextID, rec.NextKind = r.Int32N(100), engine.NextCorrection
	switch {
	case k == 0:
		rec.NextKind = engine.NextSampled
	case accepted == k:
		rec.NextKind = engine.NextBonus
	}
	rec.EmittedIDs = append(append([]int32(nil), rec.ProposedIDs[:accepted]...), rec.NextID)
	rec.TargetIDs = append([]int32(nil), rec.EmittedIDs...)
}

// write stores records and returns their directory.
func write(t testing.TB, meta Meta, records []*engine.Record) string {
	t.Helper()
	dir := t.TempDir()
	w, err := NewWriter(dir, meta)
	require.NoError(t, err)
	for _, r := range records {
		require.NoError(t, w.Record(r))
	}
	require.NoError(t, w.Close())
	return dir
}

// read returns all records of a directory.
func read(t testing.TB, dir string) []*engine.Record {
	t.Helper()
	r, err := Open(dir)
	require.NoError(t, err)
	var out []*engine.Record
	for rec, err := range r.All() {
		require.NoError(t, err)
		out = append(out, rec)
	}
	return out
}

// same compares records; an empty list comes back as none.
func same(t testing.TB, want, got []*engine.Record) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		w, g := *want[i], *got[i]
		for _, list := range []*[]int32{&w.ProposedIDs, &w.Parents, &w.TargetIDs, &w.EmittedIDs, &g.ProposedIDs, &g.Parents, &g.TargetIDs, &g.EmittedIDs} {
			if len(*list) == 0 {
				*list = nil
			}
		}
		if len(g.Gaps) == 0 {
			g.Gaps, g.Hashes = nil, nil
		}
		if len(g.RankHashes) == 0 {
			g.RankHashes = nil
		}
		require.Equal(t, w, g, "record %d", i)
	}
}
