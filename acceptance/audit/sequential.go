package audit

import "math"

// Mixture is a test of declared probabilities that may look at every sample and
// stop whenever it likes: the likelihood ratio of a uniform mixture of all
// distributions over the cells against the declared one is a martingale under
// the latter, so by Ville's inequality it ever reaches 1/alpha with probability
// at most alpha, for any number of samples and any rule of stopping. 1/ratio is
// therefore a valid p. The number of steps of a run depends on what was drawn (it
// ends when enough tokens are there), which a fixed-size test would have to
// ignore.
type Mixture struct {
	declared []float64
	counts   []int64
	n        int64
	log      float64 // of the ratio
	least    float64 // the smallest p so far
}

// NewMixture returns a test of declared probabilities, which sum to 1.
func NewMixture(declared []float64) *Mixture {
	return &Mixture{declared: declared, counts: make([]int64, len(declared)), least: 1}
}

// Add takes a sample and returns the p so far. A sample of no declared
// probability, or outside the cells, makes it 0 for good.
func (m *Mixture) Add(cell int) float64 {
	m.n++
	if cell < 0 || cell >= len(m.declared) || m.declared[cell] <= 0 {
		m.log = math.Inf(1)
	} else {
		// The predictive probability under the uniform mixture (Laplace).
		predicted := float64(m.counts[cell]+1) / float64(m.n-1+int64(m.cells()))
		m.log += math.Log(predicted / m.declared[cell])
		m.counts[cell]++
	}
	m.least = min(m.least, math.Exp(-m.log))
	return m.least
}

// cells is the number of cells of positive probability.
func (m *Mixture) cells() int {
	n := 0
	for _, p := range m.declared {
		if p > 0 {
			n++
		}
	}
	return n
}

// P returns the smallest 1/ratio that was reached: valid whenever it is asked for.
func (m *Mixture) P() float64 { return m.least }

// N returns the number of samples.
func (m *Mixture) N() int64 { return m.n }

// ChiSquare returns Pearson's statistic of the samples against the declared
// probabilities, for reading; the decision is P's.
func (m *Mixture) ChiSquare() float64 {
	x := 0.0
	for i, p := range m.declared {
		if e := p * float64(m.n); e > 0 {
			d := float64(m.counts[i]) - e
			x += d * d / e
		}
	}
	return x
}

// SPRT is Wald's sequential probability ratio test of a rate (Wald 1945): with
// at most alpha it calls a declared rate p0 wrong, with at most beta a rate of p1
// right. It stops as soon as the evidence is enough. Use two, with p1 on either
// side, to look both ways.
type SPRT struct {
	hit, miss   float64
	upper, down float64
	log         float64
	n           int64
	decision    Decision
}

// Decision is where a sequential test stands.
type Decision int8

// Decisions.
const (
	Undecided Decision = iota // more samples are needed
	Declared                  // p0 stands
	Other                     // p1: the declared rate is wrong
)

// NewSPRT returns a test of p0 against p1, both strictly between 0 and 1 and
// different, with the probabilities of the two errors.
func NewSPRT(p0, p1, alpha, beta float64) *SPRT {
	return &SPRT{
		hit: math.Log(p1 / p0), miss: math.Log((1 - p1) / (1 - p0)),
		upper: math.Log((1 - beta) / alpha), down: math.Log(beta / (1 - alpha)),
	}
}

// Add takes one sample; after a decision it changes nothing.
func (s *SPRT) Add(hit bool) Decision {
	if s.decision != Undecided {
		return s.decision
	}
	s.n++
	if hit {
		s.log += s.hit
	} else {
		s.log += s.miss
	}
	switch {
	case s.log >= s.upper:
		s.decision = Other
	case s.log <= s.down:
		s.decision = Declared
	}
	return s.decision
}

// Decision returns where the test stands, and after how many samples.
func (s *SPRT) Decision() (Decision, int64) { return s.decision, s.n }
