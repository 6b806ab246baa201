package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
)

// Profiled is a backend that can time its operations one by one and measure how fast
// the device copies.
type Profiled interface {
	kernels.Backend
	// CopyRate is the bytes that a large copy reads and writes in a second.
	CopyRate() (float64, error)
	// Profile runs what body records and returns the time of each operation.
	Profile(body func(kernels.Queue)) ([]kernels.OpTime, error)
}

// StepBenchOptions say which whole steps BenchSteps measures: all combinations.
type StepBenchOptions struct {
	Model     string
	Backend   string
	GPUMemory float64 // see BackendChoice
	// Layers cuts a shape of random weights to its first layers; 0: all.
	Layers               int
	Batch, Rows, Context []int
	Prefill              []int // chunks of these many rows
	Replays              int
	Operations           bool // time the operations of each step, too
	// Draft, if not empty, is one of Drafts: the loop with K drafts is measured, too.
	Draft string
	K     int
	// Trace, if not empty, is the file for a timeline of each step's operations.
	Trace string
}

// StepBench holds what BenchSteps measured.
type StepBench struct {
	Model  string       `json:"model"`
	Info   kernels.Info `json:"backend"`
	Layers int          `json:"layers"`
	// CopyBytesS is the device's copy rate, read and written, before and after.
	CopyBytesS [2]float64 `json:"copy_bytes_per_s"`
	Steps      []StepCost `json:"steps"`
	// Loops are turns of the loop, where drafts were asked for.
	Loops []LoopCost `json:"loops,omitempty"`
}

// StepCost is what one whole step costs: tables, the target's pass, statistics and
// acceptance, replayed back to back.
type StepCost struct {
	Batch   int     `json:"batch"`
	Rows    int     `json:"rows"` // of each sequence
	Context int     `json:"context"`
	Ms      float64 `json:"ms"`
	// Idle is the share of the replays' time in which the device was between two of
	// them.
	Idle float64 `json:"idle"`
	// FloorMs is the time of the bytes below at the copy rate, ToPlain the time by
	// that of one row a sequence (0: not measured).
	FloorMs float64 `json:"floor_ms"`
	ToPlain float64 `json:"to_plain,omitempty"`
	// Peer is the fastest other engine that was measured at this work: see Peers.
	Peer *PeerStep `json:"peer,omitempty"`
	// Weights and Caches are the bytes that the step must read: of the weights that
	// its products used, each once (of experts those of every row, at most all
	// there are), and of keys, values and states.
	Weights int64 `json:"weight_bytes"`
	Caches  int64 `json:"cache_bytes"`
	// BytesS is their sum by the time, RatioToCopy that by the copy rate. FLOPS are
	// those of the products.
	BytesS      float64 `json:"bytes_per_s"`
	RatioToCopy float64 `json:"ratio_to_copy"`
	FLOPS       float64 `json:"flop_per_s"`
	TokS        float64 `json:"tok_s"` // rows by the time
	Skipped     string  `json:"skipped,omitempty"`
	// Operations are sums by name, where they were asked for.
	Operations []OperationCost `json:"operations,omitempty"`
}

// OperationCost is the time of all operations of one name in a step.
type OperationCost struct {
	Name  string  `json:"name"`
	Count int     `json:"count"`
	Ms    float64 `json:"ms"`
}

// stepBench is a running measurement.
type stepBench struct {
	o        StepBenchOptions
	be       Profiled
	m        *model.Model
	source   model.Source
	res      StepBench
	timeline *engine.Timeline // of Trace, or nil
}

func (o StepBenchOptions) validate() error {
	if o.Draft != "" && !slices.Contains(Drafts, o.Draft) {
		return fmt.Errorf("draft is %q; it must be one of %v", o.Draft, Drafts)
	}
	for _, v := range []struct {
		name   string
		list   []int
		lo, hi int
	}{
		{"batch", o.Batch, 1, 1 << 12}, {"rows", o.Rows, 1, kernels.WindowTokens}, {"context", o.Context, 0, 1 << 20},
		{"prefill", o.Prefill, 1, 1 << 17}, {"replays", []int{o.Replays}, 1, 1 << 16}, {"layers", []int{o.Layers}, 0, 1 << 10},
		{"k", []int{o.K}, 0, kernels.WindowTokens - 1},
	} {
		for _, n := range v.list {
			if n < v.lo || n > v.hi {
				return fmt.Errorf("%s is %d; it must be %d..%d", v.name, n, v.lo, v.hi)
			}
		}
	}
	return nil
}

// BenchSteps measures whole steps of a model on a device, with caches of the given
// lengths (their contents are zeros), against the device's copy rate.
func BenchSteps(ctx context.Context, o StepBenchOptions, progress func(string)) (res *StepBench, err error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	be, err := OpenBackend(BackendChoice{Name: o.Backend, GPUMemory: o.GPUMemory})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, be.Close()) }()
	b := &stepBench{o: o}
	var ok bool
	if b.be, ok = be.(Profiled); !ok {
		return nil, fmt.Errorf("bench: backend %s can't measure its copy rate; use cuda", o.Backend)
	}
	if b.res.CopyBytesS[0], err = b.be.CopyRate(); err != nil {
		return nil, err
	}
	if o.Trace != "" {
		if b.timeline, err = engine.NewTimeline(be); err == nil {
			err = b.timeline.Pause()
		}
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, WriteTimeline(o.Trace, b.timeline)) }()
	}
	progress("loading " + o.Model)
	if err := b.load(); err != nil {
		return nil, err
	}
	for _, step := range b.steps() {
		if ctx.Err() != nil {
			return nil, ErrInterrupted
		}
		progress(fmt.Sprintf("%d sequences, %d rows, context %d", step.Batch, step.Rows, step.Context))
		if err := b.measure(&step); errors.Is(err, errTooLarge) {
			step.Skipped = err.Error()
		} else if err != nil {
			return nil, err
		}
		b.res.Steps = append(b.res.Steps, step)
	}
	b.compare()
	if o.Draft != "" {
		b.loops(progress)
	}
	b.res.CopyBytesS[1], err = b.be.CopyRate()
	return &b.res, err
}

// errTooLarge says that a step does not fit the device's memory.
var errTooLarge = errors.New("does not fit")

// load opens the model, with a context that is long enough.
func (b *stepBench) load() error {
	entry, err := registry.Open(b.o.Model)
	if err != nil {
		return err
	}
	defer entry.Close()
	longest := slices.Max(append(slices.Clone(b.o.Context), 0)) + 2*kernels.WindowTokens
	longest = max(longest, slices.Max(append(slices.Clone(b.o.Prefill), 0))+kernels.WindowTokens)
	src := entry.Source
	if r, ok := src.(model.Random); ok {
		r.Shape.MaxPositions = max(r.Shape.MaxPositions, longest)
		if n := b.o.Layers; n > 0 && n < r.Shape.NumLayers {
			r.Shape = shallow(r.Shape, n)
		}
		src = r
	}
	if b.o.Draft != "" {
		longest = max(longest, 2*loopPrompt+(b.o.K+1)*(loopWarm+loopTurns)+slices.Max(append(slices.Clone(b.o.Batch), 0)))
	}
	b.source = src
	if b.m, err = model.Load(b.be, src, model.Options{MaxTokens: longest, MTP: b.o.Draft == "mtp"}); err != nil {
		return err
	}
	b.res.Model, b.res.Info, b.res.Layers = b.o.Model, b.be.Info(), b.m.Config.NumLayers
	return nil
}

// shallow cuts a configuration to its first layers.
func shallow(c checkpoint.Config, n int) checkpoint.Config {
	c.NumLayers, c.LayerTypes = n, c.LayerTypes[:n]
	if len(c.Sparse) > n {
		c.Sparse = c.Sparse[:n]
	}
	return c
}

// steps lists what is to be measured.
func (b *stepBench) steps() (out []StepCost) {
	for _, n := range b.o.Context {
		for _, batch := range b.o.Batch {
			for _, rows := range b.o.Rows {
				out = append(out, StepCost{Batch: batch, Rows: rows, Context: n})
			}
		}
	}
	for _, rows := range b.o.Prefill {
		out = append(out, StepCost{Batch: 1, Rows: rows})
	}
	return out
}

// advanceRows is how far one commit moves a sequence that is only pretended.
const advanceRows = 512

// stepTables are the tables of a step.
type stepTables struct {
	be                      kernels.Backend
	caches                  kernels.Caches
	batch, long             kernels.Batch
	first, rest, kept, next kernels.Buf
	longRest, longKept      kernels.Buf
	stats                   kernels.Buf
	bufs                    []kernels.Buf
}

func (t *stepTables) close() error {
	for _, b := range t.bufs {
		t.be.Free(b)
	}
	for _, b := range []kernels.Batch{t.batch, t.long} {
		if !b.Seq.None() {
			b.Free(t.be)
		}
	}
	if t.caches != nil {
		return t.caches.Close()
	}
	return nil
}

// tables makes the caches and tables of a step.
func (b *stepBench) tables(s *StepCost) (t *stepTables, err error) {
	t = &stepTables{be: b.be}
	pages := (s.Context+s.Rows)/kernels.PageTokens + 1
	spec := kernels.CacheSpec{Layers: b.m.Layers(), Slots: s.Batch, Pages: s.Batch * pages, SlotPages: pages, MaxDraft: min(s.Rows, kernels.WindowTokens) - 1}
	if t.caches, err = b.be.Caches(spec); err != nil {
		return t, err
	}
	if t.batch, err = kernels.NewBatch(b.be, s.Batch, s.Batch*s.Rows, s.Batch*min(s.Rows, kernels.WindowTokens)); err != nil {
		return t, err
	}
	t.batch.MaxLen = s.Rows
	if t.long, err = kernels.NewBatch(b.be, 1, advanceRows, 1); err != nil {
		return t, err
	}
	for _, a := range []struct {
		dst        *kernels.Buf
		rows, cols int
	}{
		{&t.first, s.Batch, 1}, {&t.rest, s.Batch, s.Rows - 1}, {&t.kept, s.Batch, 1}, {&t.next, s.Batch, 1},
		{&t.longRest, 1, advanceRows - 1}, {&t.longKept, 1, 1}, {&t.stats, t.batch.LogitRows, kernels.StatCols},
	} {
		if a.cols == 0 {
			continue
		}
		if *a.dst, err = b.be.Alloc(kernels.Tables, kernels.I32, a.rows, a.cols); err != nil {
			return t, err
		}
		t.bufs = append(t.bufs, *a.dst)
	}
	return t, b.m.Reserve(s.Batch*s.Rows, t.batch.LogitRows)
}

// advance pretends that every sequence has been read up to the step's context.
func (t *stepTables) advance(q kernels.Queue, s *StepCost) {
	pages := t.caches.Spec().SlotPages
	list := make([]int32, pages)
	for slot := range s.Batch {
		for i := range list {
			list[i] = int32(slot*pages + i)
		}
		q.SetPages(t.caches, slot, 0, list)
		q.Reset(t.caches, slot)
		q.Write(t.long.Seq, ints(int32(slot)))
		for at := 0; at < s.Context; {
			n := min(advanceRows, s.Context-at)
			b := t.long.Prefix(1, n, 1)
			rest := kernels.Buf{}
			if n > 1 {
				rest = t.longRest.Columns(0, n-1)
			}
			q.Write(t.longKept, ints(int32(n)))
			q.Chain(&b, t.caches, 0, t.first.Top(1), rest)
			q.Commit(t.caches, &b, t.longKept, kernels.Buf{})
			at += n
		}
	}
	seqs := make([]int32, s.Batch)
	tokens := make([]int32, s.Batch*(s.Rows-1)) // ids that differ, so that a mixture's experts do
	for i := range seqs {
		seqs[i] = int32(i)
	}
	for i := range tokens {
		tokens[i] = int32(101 + 7*i)
	}
	q.Write(t.batch.Seq, ints(seqs...))
	for i := range seqs {
		seqs[i] = int32(53 + 11*i)
	}
	q.Write(t.first, ints(seqs...))
	if s.Rows > 1 {
		q.Write(t.rest, ints(tokens...))
	}
}

// ints are the bytes of values.
func ints(v ...int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
}

// measure times one kind of step.
func (b *stepBench) measure(s *StepCost) (err error) {
	t, err := b.tables(s)
	defer func() { err = errors.Join(err, t.close()) }()
	if isOutOfMemory(err) {
		return fmt.Errorf("%w: %w", errTooLarge, err)
	}
	if err != nil {
		return err
	}
	q := b.be.Queue()
	t.advance(q, s)
	looper := q.(kernels.LoopQueue)
	ring, err := b.be.(kernels.Looper).Ring(2*b.o.Replays, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ring.Close()) }()
	posts := false
	step := func(q kernels.Queue) {
		if posts {
			q.(kernels.LoopQueue).Post(ring)
		}
		q.Chain(&t.batch, t.caches, 0, t.first, t.rest)
		out := b.m.Forward(q, &t.batch, t.caches)
		q.Stats(t.stats, out.Logits, b.m.Config.VocabSize, true)
		if t.batch.LogitRows == t.batch.Rows {
			q.Accept(t.kept, t.next, kernels.RuleGreedy, &t.batch, t.stats)
		}
		if posts {
			q.(kernels.LoopQueue).Post(ring)
		}
	}
	step(q)
	if err := q.Err(); err != nil {
		return err
	}
	before := b.be.Work()
	key := kernels.GraphKey{Name: "step", Spans: s.Batch, Rows: s.Batch * s.Rows}
	program, err := q.Capture(key, step)
	if err != nil {
		return err
	}
	took, err := replay(q, program, max(1, b.o.Replays/4))
	if err == nil {
		took, err = replay(q, program, b.o.Replays)
	}
	if err != nil {
		return err
	}
	work := b.be.Work().Sub(before)
	b.account(s, took, work, t.caches)
	posts = true
	if program, err = looper.Capture(key, step); err == nil {
		_, err = replay(q, program, b.o.Replays)
	}
	if posts = false; err == nil {
		err = b.idle(s, ring)
	}
	if err == nil && b.o.Operations {
		err = b.operations(s, step)
	}
	if err == nil && b.timeline != nil {
		err = b.timeline.Profile(fmt.Sprintf("%d sequences, %d rows each, context %d", s.Batch, s.Rows, s.Context), step)
	}
	return err
}

// idle reads from the ring when each replay began and ended.
func (b *stepBench) idle(s *StepCost, ring kernels.Ring) error {
	var first, last, idle time.Duration
	for i := range 2 * b.o.Replays {
		var e kernels.Entry
		if there, err := ring.Take(&e); err != nil || !there {
			return errors.Join(err, fmt.Errorf("bench: entry %d of %d replays is missing", i, b.o.Replays))
		}
		switch {
		case i == 0:
			first = e.At
		case i%2 == 0:
			idle += e.At - last
		}
		last = e.At
	}
	s.Idle = idle.Seconds() / max(1e-9, (last-first).Seconds())
	return nil
}

// replay runs a program back to back and returns the time of one.
func replay(q kernels.Queue, p kernels.Program, n int) (time.Duration, error) {
	if err := q.Err(); err != nil {
		return 0, err
	}
	begin := time.Now()
	for range n {
		q.Run(p)
	}
	err := q.Err()
	return time.Since(begin) / time.Duration(n), err
}

func (b *stepBench) account(s *StepCost, took time.Duration, work kernels.Counters, c kernels.Caches) {
	runs := int64(b.o.Replays + max(1, b.o.Replays/4))
	page, _, snapshot := c.Bytes()
	s.Ms = took.Seconds() * 1e3
	// The backend counts the experts of every row, since it does not see which rows
	// share one; a step never needs a weight twice.
	s.Weights = min(int64(work.WeightBytes)/runs, b.be.Memory()[kernels.Weights])
	s.Caches = int64(s.Batch) * (page*int64(s.Context)/kernels.PageTokens + snapshot)
	s.BytesS = float64(s.Weights+s.Caches) / took.Seconds()
	s.FloorMs = float64(s.Weights+s.Caches) / b.res.CopyBytesS[0] * 1e3
	s.RatioToCopy = s.BytesS / b.res.CopyBytesS[0]
	s.FLOPS = 2 * float64(work.MACs) / float64(runs) / took.Seconds()
	s.TokS = float64(s.Batch*s.Rows) / took.Seconds()
}

// operations times the operations of a step.
func (b *stepBench) operations(s *StepCost, step func(kernels.Queue)) error {
	times, err := b.be.Profile(step)
	if err != nil {
		return err
	}
	sums := map[string]*OperationCost{}
	for _, t := range times {
		if sums[t.Name] == nil {
			sums[t.Name] = &OperationCost{Name: t.Name}
		}
		sums[t.Name].Count++
		sums[t.Name].Ms += t.Took.Seconds() * 1e3
	}
	for _, c := range sums {
		s.Operations = append(s.Operations, *c)
	}
	slices.SortFunc(s.Operations, func(a, b OperationCost) int {
		if a.Ms > b.Ms {
			return -1
		}
		return 1
	})
	return nil
}
