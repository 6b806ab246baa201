package verify

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// Simulation says how many drafts a simulated verification accepts. One of the
// fields is set.
type Simulation struct {
	// Length is the mean accept length: accepted drafts and the one token
	// after them, in 1..k+1. It is realised with the least variance: each
	// step accepts the whole part of Length-1, or one more, with the
	// fraction as probability.
	Length float64
	// Rates[i] is the probability that drafts 0..i are all accepted:
	// unconditional, so it does not rise with i. Drafts beyond the list are
	// never accepted.
	Rates []float64
}

// SimulationError names what can't be honoured.
type SimulationError struct {
	Key  string // length, rates or rates[1]
	Want string
}

// Error implements error.
func (e *SimulationError) Error() string { return "simulate: " + e.Key + ": " + e.Want }

// ParseSimulation reads what String writes: length=2.6 or rates=0.9,0.5. The
// values are not checked: see Validate.
func ParseSimulation(text string) (Simulation, error) {
	key, list, found := strings.Cut(text, "=")
	if !found || key != "length" && key != "rates" {
		return Simulation{}, fmt.Errorf("simulate: %q; want length=2.6 or rates=0.9,0.5", text)
	}
	var values []float64
	for _, field := range strings.Split(list, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return Simulation{}, &SimulationError{key, fmt.Sprintf("%q is not a number", field)}
		}
		values = append(values, v)
	}
	if key == "rates" {
		return Simulation{Rates: values}, nil
	}
	if len(values) != 1 {
		return Simulation{}, &SimulationError{key, fmt.Sprintf("%q is not one number", list)}
	}
	return Simulation{Length: values[0]}, nil
}

// String returns the simulation as records carry it: length=2.6 or
// rates=0.9,0.5.
func (s Simulation) String() string {
	format := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	if s.Rates == nil {
		return "length=" + format(s.Length)
	}
	fields := make([]string, len(s.Rates))
	for i, r := range s.Rates {
		fields[i] = format(r)
	}
	return "rates=" + strings.Join(fields, ",")
}

// Validate returns nil if the simulation can be honoured with k drafts a step,
// and else a SimulationError. Nothing is ever clamped.
func (s Simulation) Validate(k int) error {
	wrong := func(key, format string, args ...any) error {
		return &SimulationError{key, fmt.Sprintf(format, args...)}
	}
	if s.Rates == nil {
		if !(s.Length >= 1 && s.Length <= float64(k+1)) {
			return wrong("length", "%v is out of range 1..%d (k+1 with k = %d; the token after the drafts counts)", s.Length, k+1, k)
		}
		return nil
	}
	switch {
	case s.Length != 0:
		return wrong("length", "is given beside rates; give one of them")
	case len(s.Rates) == 0:
		return wrong("rates", "is empty; give the rate of each draft position")
	}
	for i, r := range s.Rates {
		key := fmt.Sprintf("rates[%d]", i)
		switch {
		case !(r >= 0 && r <= 1):
			return wrong(key, "%v is out of range 0..1", r)
		case i > 0 && r > s.Rates[i-1]:
			return wrong(key, "%v is above %v before it; a rate is of all drafts up to its own, so rates do not rise", r, s.Rates[i-1])
		case i >= k:
			return wrong(key, "%v is of draft %d, and a step has %d", r, i+1, k)
		}
	}
	return nil
}

// Unconditional returns, by position, the probability that a draft and all
// before it are accepted, as far as that can be positive.
func (s Simulation) Unconditional() []float64 {
	if s.Rates != nil {
		return slices.Clone(s.Rates)
	}
	whole, fraction := math.Modf(s.Length - 1)
	rates := slices.Repeat([]float64{1}, int(whole))
	if fraction > 0 {
		rates = append(rates, fraction)
	}
	return rates
}

// Mean returns the mean accept length that is asked for.
func (s Simulation) Mean() float64 {
	mean := 1.0
	for _, r := range s.Unconditional() {
		mean += r
	}
	return mean
}

// Most returns the largest number of drafts that a step may be told to accept.
// A step that verified fewer may have been told to accept more than it could,
// so the mean is to be looked for among steps that verified at least that many.
func (s Simulation) Most() engine.Accepted {
	most := 0
	for i, r := range s.Unconditional() {
		if r > 0 {
			most = i + 1
		}
	}
	return engine.Accepted(most)
}

// Draw returns the number of drafts that the step starting at a committed length
// is told to accept: those whose unconditional rate exceeds one uniform number,
// that of stream (sample.Simulate, position, offset 0), index 0. That is one
// draw from the distribution that trying each draft in turn with its conditional
// rate, rates[i]/rates[i-1], has, and for a length the one of least variance.
func (s Simulation) Draw(p sample.Params, position int) engine.Accepted {
	u := p.Stream(sample.Simulate, position, 0).Uniform(0)
	n := engine.Accepted(0)
	for _, r := range s.Unconditional() {
		if u >= r {
			break
		}
		n++
	}
	return n
}

// SimulatedAccepted recomputes from a record how many drafts a simulated step
// had to accept: p are the request's parameters, position and k the record's
// Position and KExecuted. bounded says that the draw was for more drafts than
// were verified, so that all of them were accepted.
func SimulatedAccepted(s Simulation, p sample.Params, position, k int) (forced engine.Accepted, bounded bool) {
	n := s.Draw(p, position)
	if int(n) > k {
		return engine.Accepted(k), true
	}
	return n, false
}
