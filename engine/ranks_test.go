package engine_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/fakedev"
	"exacta.dev/exacta/kernels/ranks"
	"exacta.dev/exacta/verify"
)

// tandem is a run of one model on several ranks.
type tandem struct {
	size     int
	device   bool // on fake devices
	source   func() (model.Source, error)
	cfg      engine.Config
	reqs     []engine.Request
	rules    map[string]string // by request; greedy is the default
	oneByOne bool              // each request runs before the next is submitted
	recorder func(rec *engine.Record) error
	// change may change what one rank does.
	change func(rank int, cfg *engine.Config, reqs []engine.Request)

	// What came of it.
	out  map[string]*outcome           // records of rank 0
	seqs []map[string]*engine.Sequence // by rank
	work []kernels.Counters            // by rank
	mem  []kernels.Memory              // by rank
	errs []error                       // by rank
}

func (x *tandem) open(int) (kernels.Backend, error) {
	be, err := cpu.New(cpu.Options{Threads: 1})
	if err == nil && x.device {
		return fakedev.New(be), nil
	}
	return be, err
}

// run plays the requests on all ranks.
func (x *tandem) run() error {
	x.out = map[string]*outcome{}
	for _, q := range x.reqs {
		x.out[q.ID] = &outcome{}
	}
	for range x.size {
		x.seqs = append(x.seqs, map[string]*engine.Sequence{})
	}
	x.work, x.mem, x.errs = make([]kernels.Counters, x.size), make([]kernels.Memory, x.size), make([]error, x.size)
	return ranks.Run(x.size, x.open, ranks.Options{Timeout: 20 * time.Second}, func(be *ranks.Backend) error {
		err := x.rank(be)
		x.errs[be.Rank()] = err
		return err
	})
}

func (x *tandem) record(rec *engine.Record) error {
	if x.recorder != nil {
		if err := x.recorder(rec); err != nil {
			return err
		}
	}
	o := x.out[rec.Request]
	o.records = append(o.records, rec)
	o.tokens = append(o.tokens, rec.EmittedIDs...)
	o.hashes = append(o.hashes, rec.Hashes[:len(rec.EmittedIDs)]...)
	return nil
}

// rank is what each rank does.
func (x *tandem) rank(be *ranks.Backend) (err error) {
	src, err := x.source()
	if err != nil {
		return err
	}
	m, err := model.Load(be, src, model.Options{MaxTokens: context, MTP: true})
	if err != nil {
		return err
	}
	cfg, reqs := x.cfg, append([]engine.Request(nil), x.reqs...)
	cfg.Ranks = be
	for i := range reqs {
		if name := x.rules[reqs[i].ID]; name != "" {
			if reqs[i].Rule, err = verify.New(name); err != nil {
				return err
			}
		}
	}
	if x.change != nil {
		x.change(be.Rank(), &cfg, reqs)
	}
	drafters := map[string]engine.Drafter{}
	for _, name := range []string{"mtp", "ngram"} {
		s, err := draft.New(name)
		if err != nil {
			return err
		}
		if drafters[name], err = s.Provision(draft.Env{Backend: be, Model: m, Vocab: m.Config.VocabSize}); err != nil {
			return err
		}
	}
	greedy, err := verify.New("greedy")
	if err != nil {
		return err
	}
	e, err := engine.New(m, cfg, drafters, greedy, engine.RecorderFunc(x.record), engine.Listener{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for _, q := range reqs {
		seq, err := e.Submit(q)
		if err != nil {
			return err
		}
		x.seqs[be.Rank()][q.ID] = seq
		if be.Rank() == 0 {
			x.out[q.ID].seq = seq
		}
		if x.oneByOne {
			if err := e.Run(nil); err != nil {
				return err
			}
		}
	}
	err = e.Run(nil)
	x.work[be.Rank()], x.mem[be.Rank()] = be.Work(), be.Memory()
	return err
}

func tinySource() (model.Source, error) { return tiny(), nil }

// twinned requires that every record carries equal hashes of all ranks, and that
// they are those of what the record says.
func (x *tandem) twinned(t *testing.T) {
	t.Helper()
	for id, o := range x.out {
		for _, rec := range o.records {
			require.Len(t, rec.RankHashes, x.size)
			for _, h := range rec.RankHashes {
				require.Equal(t, engine.OutcomeHash(rec.Sequence, rec.Accepted, rec.NextID, rec.EmittedIDs), h, "%s, step %d", id, rec.Step)
			}
		}
		for r := range x.size {
			require.Equal(t, o.tokens, x.seqs[r][id].Output(), "%s on rank %d", id, r)
		}
	}
}

// mixed are requests of every drafter, greedy and sampled.
func mixed() []engine.Request {
	return []engine.Request{
		{ID: "a", Prompt: prompt(50, 5), MaxNew: 150, Drafter: "mtp", K: 3},
		{ID: "b", Prompt: prompt(63, 6), MaxNew: 120, Drafter: "ngram", K: 4},
		{ID: "c", Prompt: prompt(20, 7), MaxNew: 150},
		{ID: "d", Prompt: prompt(40, 8), MaxNew: 150, Drafter: "mtp", K: 5, Params: sample.Params{Temperature: 0.7, Seed: 11}},
	}
}

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
			x := &tandem{size: c.size, device: c.device, source: tinySource, cfg: engine.Config{MaxSequences: 4, Pages: 7}, reqs: mixed(), rules: map[string]string{"d": "coupled"}}
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
		t.Skip("decodes with the embedded model")
	}
	open := func() (model.Source, error) {
		e, err := registry.Open(registry.Embedded)
		if err != nil {
			return nil, err
		}
		return e.Source, nil
	}
	if _, err := open(); err != nil {
		t.Skip(err)
	}
	reqs := []engine.Request{
		{ID: "a", Prompt: prompt(70, 1), MaxNew: 150, Drafter: "mtp", K: 3},
		{ID: "b", Prompt: prompt(90, 2), MaxNew: 150, Drafter: "mtp", K: 2},
		{ID: "c", Prompt: append(prompt(70, 1), prompt(30, 4)...), MaxNew: 40, Drafter: "mtp", K: 1},
	}
	play := func(size int) *tandem {
		x := &tandem{size: size, source: open, cfg: engine.Config{MaxSequences: 2, Pages: 6, PrefixCache: true}, reqs: reqs}
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
