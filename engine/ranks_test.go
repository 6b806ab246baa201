package engine_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/embedded"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

// Ranks give the tokens and logits of one, also where pages run out.
func TestRanksChangeNothing(t *testing.T) {
	m := tinyCPU(t)
	reqs := mixed()
	reqs[3].Rule = rule(t, "coupled")
	want := plain(t, m, reqs...)
	for _, c := range []struct {
		name   string
		size   int
		device bool
	}{{"one", 1, false}, {"two", 2, false}, {"three", 3, false}, {"two devices", 2, true}} {
		t.Run(c.name, func(t *testing.T) {
			x := &tandem{size: c.size, device: c.device, source: tinySource, cfg: engine.Config{MaxSequences: 4, Pages: 7, ExpectedOutput: -1}, reqs: mixed(), rules: map[string]string{"d": "coupled"}}
			require.NoError(t, x.run())
			preempted := int32(0)
			for id, o := range x.out {
				same(t, want[id], o)
				preempted += o.records[len(o.records)-1].Preemptions
			}
			require.Positive(t, preempted)
			if c.size == 1 {
				require.Nil(t, x.out["a"].records[0].RankHashes, "one rank has nobody to compare with")
				return
			}
			x.twinned(t)
		})
	}
}

// A prefix-cache hit is the same hit on every rank, and the records of a run
// count the work that one rank would have counted.
func TestRanksSharePrefixesAndWork(t *testing.T) {
	shared := prompt(131, 3)
	var reqs []engine.Request
	for i := range 4 {
		reqs = append(reqs, engine.Request{
			ID: fmt.Sprint("r", i), Prompt: append(append([]int32(nil), shared...), prompt(1+30*i, 40+i)...), MaxNew: 40, Drafter: []string{"mtp", "ngram"}[i/2], K: 3,
		})
	}
	play := func(size int) *tandem {
		x := &tandem{size: size, source: tinySource, cfg: engine.Config{MaxSequences: 2, PrefixCache: true}, reqs: reqs, oneByOne: true}
		require.NoError(t, x.run())
		return x
	}
	one, two := play(1), play(2)
	two.twinned(t)
	for id, o := range two.out {
		same(t, one.out[id], o)
		for i, rec := range o.records {
			alone := one.out[id].records[i]
			for _, w := range [][2]kernels.Counters{{alone.DraftWork, rec.DraftWork}, {alone.TargetWork, rec.TargetWork}} {
				w[0].Launches, w[1].Launches = 0, 0
				w[0].WeightBytes, w[1].WeightBytes = 0, 0 // lanes of half-empty panels
				require.Equal(t, w[0], w[1], "%s, record %d", id, i)
			}
		}
	}
	require.EqualValues(t, 128, two.out["r1"].records[0].Cached)
	require.EqualValues(t, 128, two.out["r3"].records[0].Cached)
}

// The model in the binary, on one rank and on two, each with half of the weights.
func TestRanksOfTheEmbeddedModel(t *testing.T) {
	if testing.Short() {
		t.Skip("the embedded model is too slow under the race detector")
	}
	open := func() (model.Source, error) {
		e, err := registry.Open(registry.Embedded)
		if err != nil {
			return nil, err
		}
		return e.Source, nil
	}
	if _, err := open(); errors.Is(err, embedded.ErrAbsent) {
		t.Skip(err)
	}
	reqs := []engine.Request{
		{ID: "a", Prompt: prompt(70, 1), MaxNew: 150, Drafter: "mtp", K: 3},
		{ID: "b", Prompt: prompt(90, 2), MaxNew: 150, Drafter: "mtp", K: 2},
		{ID: "c", Prompt: append(prompt(70, 1), prompt(30, 4)...), MaxNew: 40, Drafter: "mtp", K: 1},
	}
	play := func(size int) *tandem {
		x := &tandem{size: size, source: open, cfg: engine.Config{MaxSequences: 2, Pages: 6, ExpectedOutput: -1, PrefixCache: true}, reqs: reqs}
		require.NoError(t, x.run())
		return x
	}
	one, two := play(1), play(2)
	two.twinned(t)
	var preempted, cached int32
	for id, o := range two.out {
		same(t, one.out[id], o)
		for _, rec := range o.records {
			preempted, cached = max(preempted, rec.Preemptions), max(cached, rec.Cached)
		}
	}
	require.Positive(t, preempted)
	require.Positive(t, cached)
	whole := float64(one.mem[0][kernels.Weights])
	for r := range 2 {
		// Vectors are on both, and narrow matrices leave panels half empty.
		require.InDelta(t, 0.53, float64(two.mem[r][kernels.Weights])/whole, 0.04, "weights of rank %d", r)
	}
}

// reseeded samples on rank 1 with another seed.
func reseeded() *tandem {
	return &tandem{
		size: 2, source: tinySource, cfg: engine.Config{MaxSequences: 2}, rules: map[string]string{"s": "rejection"},
		reqs: []engine.Request{
			{ID: "g", Prompt: prompt(30, 1), MaxNew: 60, Drafter: "mtp", K: 2},
			{ID: "s", Prompt: prompt(40, 2), MaxNew: 60, Drafter: "ngram", K: 3, Params: sample.Params{Temperature: 1, Seed: 5}},
		},
		change: func(rank int, _ *engine.Config, reqs []engine.Request) { reqs[1].Params.Seed += uint64(rank) },
	}
}

// A rank with random numbers of its own is found in the step in which it decides
// differently; the record of that step is there and shows it.
func TestRanksThatDecideDifferently(t *testing.T) {
	x := reseeded()
	require.Error(t, x.run())
	var drift [2]*engine.DriftError
	for r, err := range x.errs {
		require.ErrorAs(t, err, &drift[r], "rank %d", r)
		require.Equal(t, "s", drift[r].Request)
		require.ErrorContains(t, err, fmt.Sprintf("request s: the ranks decided differently in step %d", drift[r].Step))
	}
	require.Equal(t, drift[0], drift[1], "both ranks say the same")
	records := x.out["s"].records
	for i, rec := range records {
		if i < len(records)-1 {
			require.Equal(t, rec.RankHashes[0], rec.RankHashes[1])
			continue
		}
		require.Equal(t, drift[0].Step, rec.Step)
		require.Equal(t, drift[0].Hashes, rec.RankHashes)
		require.NotEqual(t, rec.RankHashes[0], rec.RankHashes[1])
		require.Equal(t, engine.OutcomeHash(rec.Sequence, rec.Accepted, rec.NextID, rec.EmittedIDs), rec.RankHashes[0])
	}
	require.Equal(t, x.out["s"].tokens, x.out["s"].seq.Output(), "records and sequence")
}

// Ranks that may drift go on until they can't exchange activations, and then end
// together.
func TestRanksThatDrift(t *testing.T) {
	x := reseeded()
	x.cfg.Drift = true
	err := x.run()
	apart := 0
	for _, rec := range x.out["s"].records {
		if rec.RankHashes[0] != rec.RankHashes[1] {
			apart++
		}
	}
	require.Greater(t, apart, 1, "the records go on behind the first difference")
	require.ErrorContains(t, err, "rank 0: ")
	require.ErrorContains(t, err, "rank 1: ")
	require.ErrorContains(t, err, "diverged")
}

// dying is an engine that panics while it drafts.
type dying struct {
	engine.NoInterposer
	left int
}

func (d *dying) Draft(_ *engine.Sequence, _ int, draft engine.Draft) engine.Draft {
	if d.left--; d.left < 0 {
		panic("the rank is gone")
	}
	return draft
}

// A rank that dies, and one whose recorder fails, end all ranks with the reason,
// and leave no goroutine behind.
func TestRankThatDies(t *testing.T) {
	before := runtime.NumGoroutine()
	x := &tandem{size: 3, source: tinySource, cfg: engine.Config{MaxSequences: 4}, reqs: mixed(), rules: map[string]string{"d": "coupled"},
		change: func(rank int, cfg *engine.Config, _ []engine.Request) {
			if rank == 1 {
				cfg.Interposer = &dying{left: 9}
			}
		}}
	err := x.run()
	require.ErrorContains(t, err, "rank 1: panic: the rank is gone")
	for _, r := range []int{0, 2} {
		require.ErrorContains(t, x.errs[r], "rank 1: panic: the rank is gone")
		require.ErrorContains(t, x.errs[r], "engine step")
	}
	x = &tandem{size: 2, source: tinySource, cfg: engine.Config{MaxSequences: 4}, reqs: mixed(), rules: map[string]string{"d": "coupled"},
		recorder: func(rec *engine.Record) error {
			if rec.Step == 6 {
				return os.ErrClosed
			}
			return nil
		}}
	require.ErrorIs(t, x.run(), os.ErrClosed)
	for r := range x.errs {
		require.ErrorIs(t, x.errs[r], os.ErrClosed)
		require.ErrorContains(t, x.errs[r], "engine step 6: record of request")
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before, "goroutines are left")
}
