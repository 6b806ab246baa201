package draft

import (
	"errors"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

func init() {
	Register(Info{
		Name:    "cascade",
		Summary: "several strategies in a row, the cheap one first: the next is asked where the draft is expected to give too little",
		New: func() Strategy {
			return &Cascade{Stages: []Stage{{Drafter: "ngram", MinExpected: 1.5}, {Drafter: "mtp"}}}
		},
	})
}

// Cascade configures strategies that are asked one after the other. A stage's
// draft is taken if it is expected to give at least MinExpected accepted tokens:
// by the drafter's own estimate (engine.Draft.Expect), or else by how its drafts
// have done in this sequence. Otherwise the next stage is asked; what the last
// one says is taken.
type Cascade struct {
	// Stages are the strategies, in the order in which they are asked.
	Stages []Stage `yaml:"stages" json:"stages"`
}

// Stage is one strategy of a cascade.
type Stage struct {
	// Drafter is the strategy's registered name.
	Drafter string `yaml:"drafter" json:"drafter"`
	// MinExpected is the least number of accepted tokens that its draft must
	// promise; the last stage needs none.
	MinExpected float64 `yaml:"min_expected" json:"min_expected"`
	// Config are the strategy's own settings.
	Config map[string]any `yaml:"config" json:"config,omitempty"`
}

// Validate implements Strategy.
func (c *Cascade) Validate() error {
	if len(c.Stages) < 2 {
		return fmt.Errorf("stages has %d entries; a cascade has at least 2", len(c.Stages))
	}
	for i, s := range c.Stages {
		if s.Drafter == "cascade" || s.Drafter == "none" {
			return fmt.Errorf("stages[%d].drafter is %s; a stage is a strategy that drafts", i, s.Drafter)
		}
		if !(s.MinExpected >= 0 && s.MinExpected <= kernels.WindowTokens) {
			return fmt.Errorf("stages[%d].min_expected is %v; it must be 0..%d", i, s.MinExpected, kernels.WindowTokens)
		}
		if _, err := s.strategy(); err != nil {
			return fmt.Errorf("stages[%d]: %w", i, err)
		}
	}
	return nil
}

// strategy makes the stage's strategy with its settings, decoded strictly.
func (s *Stage) strategy() (Strategy, error) {
	st, err := New(s.Drafter)
	if err != nil {
		return nil, err
	}
	if len(s.Config) > 0 {
		text, err := yaml.Marshal(s.Config)
		if err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		if err := yaml.UnmarshalWithOptions(text, st, yaml.Strict()); err != nil {
			return nil, fmt.Errorf("config of %s: %w", s.Drafter, err)
		}
	}
	if err := st.Validate(); err != nil {
		return nil, fmt.Errorf("config of %s: %w", s.Drafter, err)
	}
	return st, nil
}

// Provision implements Strategy.
func (c *Cascade) Provision(env Env) (_ engine.Drafter, err error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft cascade: %w", err)
	}
	d := &cascade{seqs: map[int64]*cascadeSeq{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	device := false
	for i, s := range c.Stages {
		st, err := s.strategy()
		if err != nil {
			return nil, err
		}
		inner, err := st.Provision(env)
		if err != nil {
			return nil, fmt.Errorf("draft cascade: stages[%d]: %w", i, err)
		}
		dev, _ := inner.(engine.DeviceDrafter)
		device = device || dev != nil
		d.stages = append(d.stages, stage{Drafter: inner, device: dev, least: s.MinExpected})
	}
	if device {
		return &deviceCascade{d}, nil
	}
	return d, nil
}

// stage is a strategy at work.
type stage struct {
	engine.Drafter
	device engine.DeviceDrafter // nil for host drafters
	least  float64
	asks   []*engine.Ask
}

// cascade asks its stages in turn.
type cascade struct {
	stages []stage
	seqs   map[int64]*cascadeSeq
}

// cascadeSeq is what is known of one sequence: how each stage's drafts have done.
type cascadeSeq struct {
	gave []float64 // by stage, running mean of accepted drafts
	from int       // the stage of the draft under way; -1 none
}

var (
	_ engine.Drafter       = (*cascade)(nil)
	_ engine.DeviceDrafter = (*deviceCascade)(nil)
)

const (
	// cascadeLearn is the weight of the latest outcome in a running mean.
	cascadeLearn = 1. / 8
	// cascadeForgive is how far a stage that was passed over comes back to
	// what it must promise, so that it is tried again.
	cascadeForgive = 1. / 32
)

// Name implements engine.Drafter.
func (d *cascade) Name() string { return "cascade" }

func (d *cascade) seq(s *engine.Sequence) *cascadeSeq {
	q := d.seqs[s.ID()]
	if q == nil {
		q = &cascadeSeq{from: -1}
		for _, st := range d.stages {
			q.gave = append(q.gave, st.least)
		}
		d.seqs[s.ID()] = q
	}
	return q
}

// Committed implements engine.Drafter.
func (d *cascade) Committed(s *engine.Step) error {
	for _, sp := range s.Spans {
		q := d.seq(sp.Seq)
		if q.from >= 0 {
			q.gave[q.from] += cascadeLearn * (float64(sp.Kept-1) - q.gave[q.from])
			q.from = -1
		}
	}
	from := 0
	for i := range d.stages {
		step := *s
		if dev := d.stages[i].device; dev != nil && len(dev.TapLayers()) > 0 {
			// The stage's columns of the taps of all.
			width := int(s.Hidden.Cols) * len(dev.TapLayers())
			step.Taps = s.Taps.Columns(from, from+width)
			from += width
		}
		if err := d.stages[i].Committed(&step); err != nil {
			return fmt.Errorf("%s: %w", d.stages[i].Name(), err)
		}
	}
	return nil
}

// Propose implements engine.Drafter.
func (d *cascade) Propose(q kernels.Queue, asks []*engine.Ask) error {
	left := append(d.stages[0].asks[:0], asks...)
	for i := range d.stages {
		st := &d.stages[i]
		st.asks = left
		if len(left) == 0 {
			break
		}
		if err := st.Propose(q, st.asks); err != nil {
			return fmt.Errorf("%s: %w", st.Name(), err)
		}
		if i+1 == len(d.stages) {
			d.take(i, st.asks)
			break
		}
		left = d.stages[i+1].asks[:0]
		for _, a := range st.asks {
			if d.passes(i, a) {
				d.take(i, []*engine.Ask{a})
			} else {
				a.Draft = engine.Draft{}
				left = append(left, a)
			}
		}
	}
	return nil
}

// passes says whether stage i's draft is taken.
func (d *cascade) passes(i int, a *engine.Ask) bool {
	if len(a.Draft.Tokens) == 0 {
		return false
	}
	s, least := d.seq(a.Seq), d.stages[i].least
	expected := float64(a.Draft.Expect)
	if expected == 0 {
		expected = s.gave[i]
	}
	if expected >= least {
		return true
	}
	s.gave[i] += cascadeForgive * (least - s.gave[i])
	return false
}

// take notes whose drafts are under way.
func (d *cascade) take(i int, asks []*engine.Ask) {
	for _, a := range asks {
		if len(a.Draft.Tokens) > 0 {
			d.seq(a.Seq).from = i
		}
	}
}

// Release implements engine.Drafter. What is known of a sequence outlives a
// preemption.
func (d *cascade) Release(seq *engine.Sequence) {
	if seq.Finish() != "" {
		delete(d.seqs, seq.ID())
	}
	for i := range d.stages {
		d.stages[i].Release(seq)
	}
}

// Close closes the stages that can be.
func (d *cascade) Close() error {
	var errs []error
	for i := range d.stages {
		if c, ok := d.stages[i].Drafter.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// deviceCascade is a cascade with stages that have caches of their own.
type deviceCascade struct{ *cascade }

// each calls f for the stages on the device, with the index of their first layer
// after first.
func (d *deviceCascade) each(first int, f func(s engine.DeviceDrafter, first int) error) error {
	for i := range d.stages {
		if dev := d.stages[i].device; dev != nil {
			if err := f(dev, first); err != nil {
				return fmt.Errorf("%s: %w", dev.Name(), err)
			}
			first += len(dev.Layers())
		}
	}
	return nil
}

// Layers implements engine.DeviceDrafter.
func (d *deviceCascade) Layers() (layers []kernels.LayerSpec) {
	for i := range d.stages {
		if dev := d.stages[i].device; dev != nil {
			layers = append(layers, dev.Layers()...)
		}
	}
	return layers
}

// TapLayers implements engine.DeviceDrafter: the stages' one after the other.
func (d *deviceCascade) TapLayers() (layers []int) {
	for i := range d.stages {
		if dev := d.stages[i].device; dev != nil {
			layers = append(layers, dev.TapLayers()...)
		}
	}
	return layers
}

// Attach implements engine.DeviceDrafter.
func (d *deviceCascade) Attach(c kernels.Caches, first, spans, rows int) error {
	return d.each(first, func(s engine.DeviceDrafter, first int) error { return s.Attach(c, first, spans, rows) })
}

// Follow implements engine.DeviceDrafter.
func (d *deviceCascade) Follow(q kernels.Queue, b *kernels.Batch) (ran bool) {
	for i := range d.stages {
		if dev := d.stages[i].device; dev != nil {
			ran = dev.Follow(q, b) || ran
		}
	}
	return ran
}

// Detach implements engine.DeviceDrafter.
func (d *deviceCascade) Detach() {
	for i := range d.stages {
		if dev := d.stages[i].device; dev != nil {
			dev.Detach()
		}
	}
}

// Save implements engine.DeviceDrafter.
func (d *deviceCascade) Save(q kernels.Queue, seq *engine.Sequence, snapshot int) error {
	return d.each(0, func(s engine.DeviceDrafter, _ int) error { return s.Save(q, seq, snapshot) })
}

// Restore implements engine.DeviceDrafter.
func (d *deviceCascade) Restore(q kernels.Queue, seq *engine.Sequence, snapshot int, next int32) error {
	return d.each(0, func(s engine.DeviceDrafter, _ int) error { return s.Restore(q, seq, snapshot, next) })
}
