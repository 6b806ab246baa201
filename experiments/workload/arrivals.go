package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

func init() {
	for _, i := range []Info[Arrival]{
		{"closed", "a number of sessions open at once, the next one starting when one has ended", func() Arrival { return &Closed{Count: 1} }},
		{"constant", "a fixed time between starts", func() Arrival { return &Rate{constant: true} }},
		{"poisson", "exponentially distributed times between starts", func() Arrival { return &Rate{} }},
		{"gamma", "gamma-distributed times between starts, burstiness 1 being poisson and less being burstier", func() Arrival { return &Gamma{Burstiness: 1} }},
		{"burst", "all at once, or groups at intervals", func() Arrival { return &Burst{} }},
		{"trace", "the recorded times of the source", func() Arrival { return &Trace{Speed: 1} }},
		{"ramp", "a rate that goes from one value to another over the requests, poisson in between", func() Arrival { return &Ramp{Shape: linear} }},
	} {
		RegisterArrival(i)
	}
}

// seconds is a time of so many seconds.
func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// longest is the most that a schedule may last.
const longest = 30 * 24 * 3600.0

func checkRate(key string, rate float64) error {
	if !(rate > 1/longest && rate <= 1e6) {
		return fmt.Errorf("%s is %v; it is a number of sessions a second, above 0 and at most a million", key, rate)
	}
	return nil
}

// Closed keeps a number of sessions open.
type Closed struct {
	// Count is that number.
	Count int `yaml:"lanes"`
}

// Validate implements Arrival.
func (a *Closed) Validate() error {
	if a.Count < 1 || a.Count > 1<<16 {
		return fmt.Errorf("lanes is %d; it is 1 to %d", a.Count, 1<<16)
	}
	return nil
}

// Lanes implements Arrival.
func (a *Closed) Lanes() int { return a.Count }

// Schedule implements Arrival: there is nothing to do.
func (a *Closed) Schedule([]Session, *rand.Rand) error { return nil }

// open is what arrival processes with times have in common.
type open struct{}

// Lanes implements Arrival.
func (open) Lanes() int { return 0 }

// Rate starts sessions at a mean rate, at equal or exponential distances.
type Rate struct {
	open
	// PerSecond is the rate in sessions per second.
	PerSecond float64 `yaml:"rate"`
	constant  bool
}

// Validate implements Arrival.
func (a *Rate) Validate() error { return checkRate("rate", a.PerSecond) }

// Schedule implements Arrival.
func (a *Rate) Schedule(s []Session, r *rand.Rand) error {
	if a.constant {
		for i := range s {
			s[i].At = seconds(float64(i) / a.PerSecond)
		}
		return nil
	}
	return (&Gamma{PerSecond: a.PerSecond, Burstiness: 1}).Schedule(s, r)
}

// Gamma starts sessions at gamma-distributed distances of shape Burstiness and mean
// 1/rate: their coefficient of variation is 1/sqrt(burstiness). As in vllm bench
// serve the distances are then scaled so that they add up to sessions/rate; the
// first session starts after the first of them.
type Gamma struct {
	open
	PerSecond  float64 `yaml:"rate"`
	Burstiness float64 `yaml:"burstiness"`
}

// Validate implements Arrival.
func (a *Gamma) Validate() error {
	if !(a.Burstiness >= 1e-3 && a.Burstiness <= 1e6) {
		return fmt.Errorf("burstiness is %v; it is 0.001 to 1000000", a.Burstiness)
	}
	return checkRate("rate", a.PerSecond)
}

// Schedule implements Arrival.
func (a *Gamma) Schedule(s []Session, r *rand.Rand) error {
	total := 0.0
	at := make([]float64, len(s))
	for i := range at {
		total += gamma(r, a.Burstiness)
		at[i] = total
	}
	for i := range s {
		s[i].At = seconds(at[i] / total * float64(len(s)) / a.PerSecond)
	}
	return nil
}

// gamma draws from the gamma distribution of a shape, scale 1, by the method of
// Marsaglia and Tsang (2000).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape == 1 {
		return r.ExpFloat64()
	}
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(1-r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// Burst starts all sessions at once, or groups of Size every so many seconds.
type Burst struct {
	open
	// Size is the number in a group; 0 is all of them.
	Size  int     `yaml:"size"`
	Every float64 `yaml:"every_seconds"`
}

// Validate implements Arrival.
func (a *Burst) Validate() error {
	if a.Size < 0 || !(a.Every >= 0 && a.Every <= longest) || a.Size > 0 && a.Every == 0 {
		return errors.New("size and every_seconds are not negative, and groups (size) come at intervals (every_seconds)")
	}
	return nil
}

// Schedule implements Arrival.
func (a *Burst) Schedule(s []Session, _ *rand.Rand) error {
	for i := range s {
		s[i].At = 0
		if a.Size > 0 {
			s[i].At = seconds(float64(i/a.Size) * a.Every)
		}
	}
	return nil
}

// Trace takes the times that the source recorded.
type Trace struct {
	open
	// Speed divides them: 2 is twice as fast.
	Speed float64 `yaml:"speed"`
}

// Validate implements Arrival.
func (a *Trace) Validate() error {
	if !(a.Speed >= 1e-6 && a.Speed <= 1e6) {
		return fmt.Errorf("speed is %v; it is 0.000001 to 1000000", a.Speed)
	}
	return nil
}

// Schedule implements Arrival.
func (a *Trace) Schedule(s []Session, _ *rand.Rand) error {
	first := s[0].At
	for i := range s {
		if i > 0 && s[i].At < first {
			return fmt.Errorf("session %s starts before the first one", s[i].ID)
		}
	}
	for i := len(s) - 1; i >= 0; i-- {
		s[i].At = time.Duration(float64(s[i].At-first) / a.Speed)
	}
	return nil
}

// Shapes of a ramp.
const (
	linear      = "linear"
	exponential = "exponential"
)

// Ramp raises or lowers the rate over the sessions.
type Ramp struct {
	open
	From  float64 `yaml:"from"`
	To    float64 `yaml:"to"`
	Shape string  `yaml:"shape"` // linear or exponential
}

// Validate implements Arrival.
func (a *Ramp) Validate() error {
	if a.Shape != linear && a.Shape != exponential {
		return fmt.Errorf("shape is %q; it is %s or %s", a.Shape, linear, exponential)
	}
	return errors.Join(checkRate("from", a.From), checkRate("to", a.To))
}

// Schedule implements Arrival.
func (a *Ramp) Schedule(s []Session, r *rand.Rand) error {
	at := 0.0
	for i := range s {
		part := float64(i) / math.Max(1, float64(len(s)-1))
		rate := a.From + (a.To-a.From)*part
		if a.Shape == exponential {
			rate = a.From * math.Pow(a.To/a.From, part)
		}
		at += r.ExpFloat64() / rate
		s[i].At = seconds(at)
	}
	return nil
}
