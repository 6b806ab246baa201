package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// student are the two-sided 95 % points of Student's t for 1, 2, ... degrees of
// freedom; beyond them that of the normal distribution is near enough.
var student = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086}

// NewInterval works out the mean of values and its interval of 95 %.
func NewInterval(v []float64) Interval {
	i := Interval{Repeats: len(v), Mean: mean(v)}
	i.Low, i.High = i.Mean, i.Mean
	if n := len(v); n > 1 {
		i.SD = deviation(v, i.Mean) * math.Sqrt(float64(n)/float64(n-1))
		t := 1.96
		if n-2 < len(student) {
			t = student[n-2]
		}
		half := t * i.SD / math.Sqrt(float64(n))
		i.Low, i.High = i.Mean-half, i.Mean+half
	}
	return i
}

// Repeat is a finished cell with its rows.
type Repeat struct {
	Cell Cell
	Rows []Row
}

// span is the window of a repeat.
func (r *Repeat) span() Span { return Span{r.Rows, r.Cell.Window.From, r.Cell.Window.To} }

// NewLine joins the repeats of a target at a point.
func NewLine(slo *SLO, repeats []Repeat) Line {
	l := Line{Target: repeats[0].Cell.Target, Point: repeats[0].Cell.Point, Spread: map[string]Interval{}}
	spans := make([]Span, len(repeats))
	for i := range repeats {
		spans[i] = repeats[i].span()
		if repeats[i].Cell.Generator.Lagging {
			l.Lagging++
		}
		if !repeats[i].Cell.Window.Steady {
			l.Unsteady++
		}
	}
	l.Pooled = Measure(slo, spans...)
	for _, m := range Metrics() {
		var v []float64
		for i := range repeats {
			v = append(v, m.Of(&repeats[i].Cell.InWindow))
		}
		l.Spread[m.Name] = NewInterval(v)
	}
	return l
}

// Outcomes of a comparison.
const (
	Win       = "win"
	Tie       = "tie"
	Loss      = "loss"
	Unbounded = "unbounded"
)

// Compare puts a target beside the baseline at a point, repeat by repeat: the nth of
// each had the same requests. Of fewer than three repeats the times of requests are
// resampled by session, both sides alike.
func Compare(a, b Line, target, baseline []Repeat) Comparison {
	c := Comparison{Target: a.Target, Baseline: b.Target, Point: a.Point}
	for _, m := range Metrics() {
		v := Versus{Metric: m.Name, Value: m.Of(&a.Pooled), Baseline: m.Of(&b.Pooled), Outcome: Unbounded}
		if v.Value > 0 && v.Baseline > 0 {
			v.Ratio = v.Value / v.Baseline
			v.Low, v.High, v.Bounded = bounds(&m, target, baseline)
		}
		switch better, worse := v.Low > 1, v.High < 1; {
		case !v.Bounded:
		case m.Lower && worse || !m.Lower && better:
			v.Outcome = Win
			c.Wins++
		case better || worse:
			v.Outcome = Loss
			c.Losses++
		default:
			v.Outcome = Tie
			c.Ties++
		}
		c.Metrics = append(c.Metrics, v)
	}
	if b.Pooled.DecodeTokS > 0 && b.Pooled.Decoding > 0 {
		c.RequestSpeed, c.Decoding = a.Pooled.DecodeTokS/b.Pooled.DecodeTokS, a.Pooled.Decoding/b.Pooled.Decoding
		c.SpeedUp = c.RequestSpeed * c.Decoding
	}
	return c
}

// fewestRepeats is the number of repeats whose spread says anything.
const fewestRepeats = 3

// bounds is the interval of 95 % of a metric's ratio.
func bounds(m *Metric, target, baseline []Repeat) (low, high float64, ok bool) {
	n := min(len(target), len(baseline))
	if n < fewestRepeats {
		return resample(m, target[:n], baseline[:n])
	}
	var logs []float64
	for i := range n {
		x, y := m.Of(&target[i].Cell.InWindow), m.Of(&baseline[i].Cell.InWindow)
		if !(x > 0 && y > 0) {
			return 0, 0, false
		}
		logs = append(logs, math.Log(x/y))
	}
	i := NewInterval(logs)
	return math.Exp(i.Low), math.Exp(i.High), true
}

// resamples is the number of samples of the bootstrap, and fewestSessions the number
// of sessions below which it says nothing.
const (
	resamples      = 500
	fewestSessions = 8
)

// resample bounds the ratio of a metric of single requests by a bootstrap over the
// sessions that both sides finished, with a fixed seed. Metrics of the load as a
// whole have no bound by it.
func resample(m *Metric, a, b []Repeat) (low, high float64, ok bool) {
	if m.Request == nil {
		return 0, 0, false
	}
	x, y := bySession(m, a), bySession(m, b)
	var sessions []string
	for s := range x {
		if y[s] != nil {
			sessions = append(sessions, s)
		}
	}
	if len(sessions) < fewestSessions {
		return 0, 0, false
	}
	slices.Sort(sessions)
	r := rand.New(rand.NewPCG(1, 2))
	ratios := make([]float64, 0, resamples)
	for range resamples {
		var p, q []float64
		for range sessions {
			s := sessions[r.IntN(len(sessions))]
			p, q = append(p, x[s]...), append(q, y[s]...)
		}
		slices.Sort(p)
		slices.Sort(q)
		if v := m.Stat(q); v > 0 {
			ratios = append(ratios, m.Stat(p)/v)
		}
	}
	if len(ratios) < resamples {
		return 0, 0, false
	}
	slices.Sort(ratios)
	return quantile(ratios, 0.025), quantile(ratios, 0.975), true
}

// bySession lists a metric's values of requests by session; sessions of two repeats
// are different ones.
func bySession(m *Metric, repeats []Repeat) map[string][]float64 {
	out := map[string][]float64{}
	for n := range repeats {
		s := repeats[n].span()
		for i := range s.Rows {
			r := &s.Rows[i]
			if r.Phase != Measured || !r.OK() || r.Sent < s.From || r.Last > s.To {
				continue
			}
			if v, ok := m.Request(r); ok {
				key := fmt.Sprintf("%d/%s", n, r.Session)
				out[key] = append(out[key], v)
			}
		}
	}
	return out
}
