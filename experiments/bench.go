package experiments

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/verify"
)

// Calibrated is a backend that can measure the machine's limits: a plain read
// loop over its weights and its arithmetic peak.
type Calibrated interface {
	kernels.Backend
	ReadWeights(passes int) (bytes int64, took time.Duration)
	PeakMACs(iterations int) (macs int64, took time.Duration)
}

// BenchOptions say what exacta bench measures.
type BenchOptions struct {
	Model           string
	Backend         string
	Kernels         string
	Threads         int
	Rows            []int // rows of a verification
	Prompt, Context int   // tokens before the decode step; length of the prefill
	Rounds          int
	Steps           int // decode steps per round and row count
}

// BenchResult holds what one interleaved run measured. Times and rates are the
// best seen; ratios are medians over samples of which each has the machine's
// limits measured right beside it.
type BenchResult struct {
	Model   string       `json:"model"`
	Info    kernels.Info `json:"backend"`
	Rounds  int          `json:"rounds"`
	Machine struct {
		ReadBytesS float64 `json:"read_bytes_per_s"` // plain read loop over the weights
		PeakMACS   float64 `json:"peak_macs_per_s"`
	} `json:"machine"`
	Decode struct {
		TokS        float64 `json:"tok_s"`
		BytesS      float64 `json:"bytes_per_s"`
		RatioToRead float64 `json:"ratio_to_read"`
		StepMs      float64 `json:"step_ms"`
	} `json:"decode"`
	// Verify: Rows is the time of a step of n rows relative to one of 1 row;
	// Bound relates it to the larger of a 1-row step and n rows'
	// multiply-adds at the peak.
	Verify struct {
		Rows  map[string]float64 `json:"rows"`
		Bound map[string]float64 `json:"bound"`
		Ms    map[string]float64 `json:"ms"`
	} `json:"verify"`
	Prefill struct {
		Tokens      int     `json:"tokens"`
		TokS        float64 `json:"tok_s"`
		RatioToPeak float64 `json:"ratio_to_peak"`
	} `json:"prefill"`
	Draft *DraftCost `json:"draft,omitempty"` // with an MTP module
	// Heads are the same for the heads that come with the model, by strategy.
	Heads  map[string]DraftCost `json:"heads,omitempty"`
	Memory struct {
		Weights  int64   `json:"weights_bytes"`
		Caches   int64   `json:"caches_bytes"`
		Resident int64   `json:"resident_bytes"`
		Ratio    float64 `json:"resident_ratio"` // resident to weights and caches
	} `json:"memory"`
}

// DraftCost is what one draft costs: for an MTP module, layer and LM head.
type DraftCost struct {
	Ms        float64 `json:"ms"`
	StepShare float64 `json:"step_share"` // of a 1-row step
}

// garbage drafts ids at random: a verification of given width whose outcome does
// not matter.
type garbage struct {
	rand  *rand.Rand
	vocab int
}

func (*garbage) Name() string                 { return "garbage" }
func (*garbage) Committed(*engine.Step) error { return nil }
func (*garbage) Release(*engine.Sequence)     {}
func (g *garbage) Propose(_ kernels.Queue, asks []*engine.Ask) error {
	for _, a := range asks {
		a.Draft.Tokens = a.Draft.Tokens[:0]
		for range a.K {
			a.Draft.Tokens = append(a.Draft.Tokens, int32(g.rand.IntN(g.vocab)))
		}
	}
	return nil
}

// bench is a running measurement.
type bench struct {
	o     BenchOptions
	be    Calibrated
	m     *model.Model
	entry *registry.Entry
	rand  *rand.Rand
	res   BenchResult

	samples  map[int][]benchSample // steps by rows
	prefills []benchSample
	draft    map[string]int64 // least drafting time of a step with benchDrafts drafts, ns, by strategy
}

// benchDrafts is the k at which the cost of a draft is measured: k heads, k-1
// further passes of the layer and one to level its cache, so k drafts in all.
const benchDrafts = 3

// validate names the option that is out of range.
func (o BenchOptions) validate() error {
	most := slices.Max(append(o.Rows, 1))
	for _, v := range []struct {
		name      string
		v, lo, hi int
	}{
		{"rounds", o.Rounds, 1, 10000}, {"steps", o.Steps, 1, 1 << 16}, {"prompt", o.Prompt, 1, 1 << 20},
		{"rows", slices.Min(append(o.Rows, 1)), 1, kernels.WindowTokens}, {"rows", most, 1, kernels.WindowTokens},
		{"context", o.Context, o.Prompt + max(o.Steps, most) + 2, 1 << 20},
	} {
		if v.v < v.lo || v.v > v.hi {
			return fmt.Errorf("%s is %d; it must be %d..%d", v.name, v.v, v.lo, v.hi)
		}
	}
	return nil
}

// Bench measures decode, verification and prefill of a model, interleaved with
// the machine's limits.
func Bench(ctx context.Context, o BenchOptions, progress func(string)) (res *BenchResult, err error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	b := &bench{o: o, rand: rand.New(rand.NewPCG(3, 4)), samples: map[int][]benchSample{}, draft: map[string]int64{}}
	if !slices.Contains(b.o.Rows, 1) {
		b.o.Rows = append([]int{1}, b.o.Rows...)
	}
	slices.Sort(b.o.Rows)
	if err := b.open(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.be.Close(), b.entry.Close()) }()
	for round := range o.Rounds {
		if ctx.Err() != nil {
			return nil, ErrInterrupted
		}
		progress(fmt.Sprintf("round %d of %d", round+1, o.Rounds))
		if err := b.round(); err != nil {
			return nil, err
		}
	}
	b.finish()
	return &b.res, nil
}

func (b *bench) open() error {
	be, err := OpenBackend(BackendChoice{Name: b.o.Backend, Threads: b.o.Threads, Kernels: b.o.Kernels})
	if err != nil {
		return err
	}
	var ok bool
	if b.be, ok = be.(Calibrated); !ok {
		return errors.Join(fmt.Errorf("bench: backend %s can't measure the machine's limits", b.o.Backend), be.Close())
	}
	if b.entry, err = registry.Open(b.o.Model); err != nil {
		return errors.Join(err, be.Close())
	}
	if b.m, err = model.Load(be, b.entry.Source, model.Options{MaxTokens: b.o.Context, MTP: true}); err != nil {
		return errors.Join(err, be.Close(), b.entry.Close())
	}
	b.res.Model, b.res.Info, b.res.Rounds = b.o.Model, be.Info(), b.o.Rounds
	return nil
}

// benchSample is one measured pass with the machine's limits right beside it: on a
// shared machine the limits themselves change from one second to the next, so
// ratios are taken within a sample and their median is reported.
type benchSample struct {
	ns   int64
	read float64 // bytes/s of the read loop
	peak float64 // multiply-adds/s
}

// round measures everything once.
func (b *bench) round() error {
	for _, rows := range b.o.Rows {
		if err := b.steps(rows); err != nil {
			return err
		}
	}
	if err := b.drafts(); err != nil {
		return err
	}
	return b.prefill()
}

// limits samples the read loop and the arithmetic peak.
func (b *bench) limits(ns int64) benchSample {
	bytes, took := b.be.ReadWeights(1)
	s := benchSample{ns: ns, read: float64(bytes) / took.Seconds()}
	macs, took := b.be.PeakMACs(peakIterations)
	s.peak = float64(macs) / took.Seconds()
	b.res.Machine.ReadBytesS = max(b.res.Machine.ReadBytesS, s.read)
	b.res.Machine.PeakMACS = max(b.res.Machine.PeakMACS, s.peak)
	return s
}

// peakIterations make a sample of the arithmetic peak of about a millisecond.
const peakIterations = 100_000

// steps measures verification steps of the given rows behind a prompt.
func (b *bench) steps(rows int) error {
	rec := engine.RecorderFunc(func(r *engine.Record) error {
		if r.Phase == engine.Decode && int(r.Rows) == rows {
			b.samples[rows] = append(b.samples[rows], b.limits(r.VerifyNs))
		}
		return nil
	})
	// A step drafts no more than there is room for: that many tokens at least.
	return b.run(rec, b.garbage(), b.o.Prompt, 1+max(b.o.Steps, rows), rows-1)
}

// prefill measures the prompt of the longest sequence, read in one chunk.
func (b *bench) prefill() error {
	before := b.limits(0)
	return b.run(engine.RecorderFunc(func(r *engine.Record) error {
		if r.Phase == engine.Prefill {
			s := b.limits(r.VerifyNs)
			s.peak = (s.peak + before.peak) / 2
			b.prefills = append(b.prefills, s)
			b.res.Prefill.Tokens = int(r.Rows)
		}
		return nil
	}), b.garbage(), b.o.Context-2, 1, 0)
}

func (b *bench) garbage() engine.Drafter { return &garbage{b.rand, b.m.Config.VocabSize} }

// drafts measures what drafting costs with the model's MTP module and the heads
// that come with it.
func (b *bench) drafts() error {
	_, mtp := b.m.MTPLayer()
	for _, s := range []struct {
		name string
		have bool
	}{
		{"mtp", mtp}, {"eagle3", b.m.HasHead(checkpoint.HeadEagle3)}, {"medusa", b.m.HasHead(checkpoint.HeadMedusa)}, {"dflash", b.m.HasHead(checkpoint.HeadDFlash)},
		{"dspark", b.m.HasHead(checkpoint.HeadDSpark)},
	} {
		if !s.have {
			continue
		}
		if err := b.drafting(s.name); err != nil {
			return err
		}
	}
	return nil
}

// drafting measures what drafting costs with a strategy.
func (b *bench) drafting(name string) error {
	st, err := draft.New(name)
	if err != nil {
		return err
	}
	if c, ok := st.(*draft.DSpark); ok {
		c.MinConfidence = 0 // whole drafts are measured
	}
	d, err := st.Provision(draft.Env{Backend: b.be, Model: b.m, Vocab: b.m.Config.VocabSize})
	if err != nil {
		return err
	}
	return b.run(engine.RecorderFunc(func(r *engine.Record) error {
		if r.Phase == engine.Decode && r.TreeNodes == benchDrafts && (b.draft[name] == 0 || r.DraftNs < b.draft[name]) {
			b.draft[name] = r.DraftNs
		}
		return nil
	}), d, b.o.Prompt, 1+max(2*b.o.Steps, benchDrafts+1), benchDrafts)
}

// run runs one sequence of random tokens with a drafter.
func (b *bench) run(rec engine.Recorder, d engine.Drafter, prompt, tokens, k int) error {
	rule, err := verify.New("greedy")
	if err != nil {
		return err
	}
	vocab := b.m.Config.VocabSize
	e, err := engine.New(b.m, engine.Config{
		MaxTokens: b.o.Context, MaxSequences: 1, MaxDraft: max(1, k), Chunk: b.o.Context, BatchTokens: b.o.Context,
	}, map[string]engine.Drafter{d.Name(): d}, rule, rec, engine.Listener{})
	if err != nil {
		return err
	}
	defer e.Close()
	page, slot, _ := e.CacheBytes()
	b.res.Memory.Caches = max(b.res.Memory.Caches, page*int64(e.Config().Pages)+slot)
	ids := make([]int32, prompt)
	for i := range ids {
		ids[i] = int32(b.rand.IntN(vocab))
	}
	if _, err := e.Submit(engine.Request{ID: "bench", Prompt: ids, MaxNew: tokens, Drafter: d.Name(), K: k, IgnoreStop: true}); err != nil {
		return err
	}
	if err := e.Run(nil); err != nil {
		return err
	}
	b.res.Memory.Resident = max(b.res.Memory.Resident, resident())
	return nil
}

// least is the shortest time of a list of samples.
func least(list []benchSample) float64 {
	ns := list[0].ns
	for _, s := range list {
		ns = min(ns, s.ns)
	}
	return float64(ns)
}

// over returns the median of f over samples.
func over(list []benchSample, f func(s benchSample) float64) float64 {
	x := make([]float64, len(list))
	for i, s := range list {
		x[i] = f(s)
	}
	return median(x)
}

// finish turns samples into rates (of the best) and ratios (medians).
func (b *bench) finish() {
	r := &b.res
	bytes := 2 * float64(b.m.StepParams())
	// A step's time in units of the read loop beside it.
	reads := func(s benchSample) float64 { return float64(s.ns) / 1e9 * s.read / bytes }
	one := over(b.samples[1], reads)
	r.Decode.StepMs = least(b.samples[1]) / 1e6
	r.Decode.TokS = 1e3 / r.Decode.StepMs
	r.Decode.BytesS = bytes * r.Decode.TokS
	r.Decode.RatioToRead = 1 / one
	r.Verify.Rows, r.Verify.Bound, r.Verify.Ms = map[string]float64{}, map[string]float64{}, map[string]float64{}
	for rows, list := range b.samples {
		key := strconv.Itoa(rows)
		r.Verify.Ms[key] = least(list) / 1e6
		r.Verify.Rows[key] = over(list, reads) / one
		r.Verify.Bound[key] = over(list, func(s benchSample) float64 {
			return float64(s.ns) / 1e9 / max(one*bytes/s.read, bytes/2*float64(rows)/s.peak)
		})
	}
	for name, ns := range b.draft {
		cost := DraftCost{Ms: float64(ns) / benchDrafts / 1e6, StepShare: float64(ns) / benchDrafts / least(b.samples[1])}
		if name == "mtp" {
			r.Draft = &cost
			continue
		}
		if r.Heads == nil {
			r.Heads = map[string]DraftCost{}
		}
		r.Heads[name] = cost
	}
	macs := b.m.PrefillMACs(r.Prefill.Tokens)
	r.Prefill.TokS = 1e9 * float64(r.Prefill.Tokens) / least(b.prefills)
	r.Prefill.RatioToPeak = over(b.prefills, func(s benchSample) float64 { return macs / (float64(s.ns) / 1e9) / s.peak })
	mem := b.be.Memory()
	r.Memory.Weights = mem[kernels.Weights]
	r.Memory.Ratio = float64(r.Memory.Resident) / float64(r.Memory.Weights+r.Memory.Caches)
}

// resident returns the resident set of the process in bytes, or 0 where the
// system does not tell.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
