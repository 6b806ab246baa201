package acceptance

import (
	"fmt"
	"math"
	"slices"
)

// Resamples says how a bootstrap resamples.
type Resamples struct {
	Number     int     // of resamples, 1..MostResamples
	Seed       uint64  // of SplitMix64
	Confidence float64 // of the intervals, between 0 and 1
}

// MostResamples bounds the resamples of a bootstrap.
const MostResamples = 1_000_000

// Comparison is what PairedBootstrap found.
type Comparison struct {
	A          string       `json:"a"` // the points
	B          string       `json:"b"`
	Prompts    int          `json:"prompts"` // pairs
	Resamples  int          `json:"resamples"`
	Seed       uint64       `json:"seed"`
	Generator  string       `json:"generator"`
	Confidence float64      `json:"confidence"`
	LossyA     bool         `json:"lossy_a"` // the rule of that side is
	LossyB     bool         `json:"lossy_b"`
	Simulated  bool         `json:"simulated"` // both sides are
	SimulatedA string       `json:"simulation_a"`
	SimulatedB string       `json:"simulation_b"`
	Figures    []Difference `json:"figures"`
	// Note says what the intervals can't: that there are too few prompts.
	Note string `json:"note,omitempty"`
}

// Difference is one figure of two points.
type Difference struct {
	// Figure is accept_length, accept_length_macro (over prompts),
	// draft_accept_rate, acceptance_by_position, acceptance_conditional,
	// decode_tok_s or decode_tok_s_ratio.
	Figure   string  `json:"figure"`
	Position int     `json:"position"` // in the draft, from 0; -1 where the figure has none
	A        float64 `json:"value_a"`
	B        float64 `json:"value_b"`
	// Difference is a - b, of decode_tok_s_ratio a / b. Low and High are its
	// percentile interval.
	Difference float64 `json:"difference"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	// Defined counts the resamples in which both sides have the figure; in
	// the others nothing was to be divided by.
	Defined int `json:"defined"`
}

// fewPrompts is the number of prompts below which percentile intervals are known
// to be much too narrow.
const fewPrompts = 10

// PairedBootstrap compares two points over the same prompts. A resample draws as
// many prompts as there are, with replacement, and takes both sides' sums over
// the prompts drawn: pairing takes out what the prompts have in common, and whole
// prompts are drawn because the verifications of one output depend on each other.
// Figures are ratios of such sums. The interval at confidence c has the sorted
// differences number m = floor(n(1-c)/2 + 1e-9) and n-1-m as its ends, numbered
// from 0 of n (B. Efron, Bootstrap methods: another look at the jackknife, Annals
// of Statistics 7, 1979; B. Efron, R. Tibshirani, An Introduction to the
// Bootstrap, 1993, chapter 13). It covers the choice of prompts; of speeds, it
// does not cover that the machine may be slower tomorrow.
//
// The result is the same to the last digit everywhere. Prompts are in the order
// of their ids' bytes. Draw j of resample r, of p prompts, is prompt
//
//	((SplitMix64(seed, r·p + j) >> 32) · p) >> 32
//
// All sums are of integers but that of accept_length_macro, which adds the
// prompts' means in the order of the draws.
//
// The error names prompts without a pair, and refuses to compare simulated with
// real acceptance.
func PairedBootstrap(a, b *Side, o Resamples) (*Comparison, error) {
	if o.Number < 1 || o.Number > MostResamples {
		return nil, fmt.Errorf("%d resamples; there must be 1..%d", o.Number, MostResamples)
	}
	if !(o.Confidence > 0 && o.Confidence < 1) {
		return nil, fmt.Errorf("confidence %v; it is between 0 and 1", o.Confidence)
	}
	ids, err := pair(a, b)
	if err != nil {
		return nil, err
	}
	boot := newBoot(a, b, ids)
	c := &Comparison{
		A: a.Point, B: b.Point, Prompts: len(ids), Resamples: o.Number, Seed: o.Seed, Generator: "splitmix64", Confidence: o.Confidence,
		LossyA: a.Lossy, LossyB: b.Lossy, Simulated: a.Simulated, SimulatedA: a.Simulation, SimulatedB: b.Simulation,
	}
	if len(ids) < fewPrompts {
		c.Note = fmt.Sprintf("%d prompts are too few: percentile intervals of fewer than %d are too narrow", len(ids), fewPrompts)
	}
	c.Figures = boot.compare(o)
	return c, nil
}

// SplitMix64 is output i, from 0, of the generator of that name (G. L. Steele, D.
// Lea, C. H. Flood, Fast splittable pseudorandom number generators, OOPSLA 2014).
// Any output is had without those before it.
func SplitMix64(seed, i uint64) uint64 {
	z := seed + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// boot holds the paired sums.
type boot struct {
	a, b      []*PromptSums // by prompt
	positions int           // of the draft that both sides have
}

func newBoot(a, b *Side, ids []string) *boot {
	out := &boot{}
	longest := func(s *Side) int {
		n := 0
		for _, p := range s.Prompts {
			n = max(n, len(p.Reached))
		}
		return n
	}
	out.positions = min(longest(a), longest(b))
	for _, id := range ids {
		out.a, out.b = append(out.a, a.Prompts[id]), append(out.b, b.Prompts[id])
	}
	return out
}

// compare computes the figures of the prompts as they are, and the intervals.
func (b *boot) compare(o Resamples) []Difference {
	n := len(b.a)
	draws := make([]int, n)
	for j := range draws {
		draws[j] = j
	}
	x, y := b.sums(), b.sums()
	x.take(b.a, draws)
	y.take(b.b, draws)
	out := b.names()
	defined := make([]bool, len(out))
	for f := range out {
		d := &out[f]
		d.A, d.B, d.Difference, defined[f] = difference(d.Figure, x, y, d.Position)
	}
	values := make([][]float64, len(out))
	for r := range uint64(o.Number) {
		for j := range draws {
			draws[j] = int((SplitMix64(o.Seed, r*uint64(n)+uint64(j)) >> 32) * uint64(n) >> 32)
		}
		x.take(b.a, draws)
		y.take(b.b, draws)
		for f, d := range out {
			if _, _, v, ok := difference(d.Figure, x, y, d.Position); ok {
				values[f] = append(values[f], v)
			}
		}
	}
	kept := []Difference{}
	for f, d := range out {
		if !defined[f] || len(values[f]) == 0 {
			continue
		}
		slices.Sort(values[f])
		d.Defined = len(values[f])
		m := int(math.Floor(float64(float64(float64(d.Defined)*(1-o.Confidence))/2) + 1e-9))
		d.Low, d.High = values[f][m], values[f][d.Defined-1-m]
		kept = append(kept, d)
	}
	return kept
}

func (b *boot) names() []Difference {
	out := []Difference{{Figure: figLength, Position: -1}, {Figure: figMacro, Position: -1}, {Figure: figRate, Position: -1}}
	for _, name := range []string{figJoint, figConditional} {
		for i := range b.positions {
			out = append(out, Difference{Figure: name, Position: i})
		}
	}
	return append(out, Difference{Figure: figSpeed, Position: -1}, Difference{Figure: figSpeedRatio, Position: -1})
}
