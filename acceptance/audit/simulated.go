package audit

import (
	"fmt"
	"math"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/verify"
)

// Checks of simulated acceptance.
const (
	checkSpec    = "what is simulated is what was asked for, and stamped"
	checkDraw    = "each forced length is the documented draw"
	checkSupport = "forced lengths are among the declared ones"
	checkBeyond  = "forced length is at most k executed"
	checkMean    = "realised accept length is the requested one"
	checkSpread  = "histogram of forced lengths is the declared schedule"
	checkBatch   = "sequences of a step draw independently"
)

// alphaRun is the probability that a run that does as declared is called wrong by
// any statistical test of an audit: it is divided among them.
const alphaRun = 1e-6

// simulation gathers the simulated steps of one declared schedule.
type simulation struct {
	asked string
	k     int
	spec  verify.Simulation
	bad   error // asked does not parse

	steps, rows     int64 // all simulated decode steps and their rows
	accepted, drawn int64 // realised and documented, over all of them
	eligible        int64 // steps that could accept the most that is declared
	kept            int64 // accepted over the eligible steps
	histogram       []int64
	spread          *Mixture
	seeds           map[seedKey]string // the request whose steps count
	skipped         int64
}

type seedKey struct {
	seed   uint64
	choice uint32
}

// schedule returns the state for a request.
func (a *countsAudit) schedule(asked string, k int) *simulation {
	key := fmt.Sprintf("%s k %d", asked, k)
	s := a.sims[key]
	if s == nil {
		s = &simulation{asked: asked, k: k, seeds: map[seedKey]string{}}
		s.spec, s.bad = verify.ParseSimulation(asked)
		if s.bad == nil {
			s.bad = s.spec.Validate(k)
		}
		if s.bad == nil {
			s.spread = NewMixture(cells(s.spec))
		}
		a.sims[key] = s
	}
	return s
}

// cells returns the probability of accepting 0, 1, ... drafts.
func cells(s verify.Simulation) []float64 {
	rates := s.Unconditional()
	out := make([]float64, len(rates)+1)
	above := 1.0
	for i, r := range rates {
		out[i] = above - r
		above = r
	}
	out[len(rates)] = above
	return out
}

// simulate checks a decode record of a request that simulates, or that says so.
func (a *countsAudit) simulate(req *Request, r *engine.Record) {
	if k := a.b.check(checkSpec); !k.holds(r.Simulated == (req.Simulation != "") && r.Simulation == req.Simulation) {
		k.blame(r, "simulation %q was asked for; the record says %q (simulated: %v)", req.Simulation, r.Simulation, r.Simulated)
	}
	if req.Simulation == "" || r.Phase != engine.Decode {
		return
	}
	s := a.schedule(req.Simulation, req.K)
	if s.bad != nil {
		if k := a.b.check(checkSpec); !k.holds(false) {
			k.blame(r, "%v", s.bad)
		}
		return
	}
	if k := a.b.check(checkBeyond); !k.holds(int32(r.Accepted) <= r.KExecuted) {
		k.blame(r, "%d drafts forced, of %d executed", r.Accepted, r.KExecuted)
	}
	s.add(a, req, r)
}

// add takes a step.
func (s *simulation) add(a *countsAudit, req *Request, r *engine.Record) {
	forced, _ := verify.SimulatedAccepted(s.spec, req.Params, int(r.Position), int(r.KExecuted))
	s.steps++
	s.rows += int64(r.Rows)
	s.accepted += int64(r.Accepted)
	s.drawn += int64(forced)
	if k := a.b.check(checkDraw); !k.holds(r.Accepted == forced) {
		k.blame(r, "at position %d of a request with seed %d, %s draws %d accepted of %d; the record has %d", r.Position, req.Params.Seed, s.asked, forced, r.KExecuted, r.Accepted)
	}
	declared := cells(s.spec)
	if int(r.KExecuted) < len(declared)-1 {
		return // all that was verified may have been accepted: says nothing of the schedule
	}
	n := int(r.Accepted)
	if k := a.b.check(checkSupport); !k.holds(n < len(declared) && declared[n] > 0) {
		k.blame(r, "%d drafts accepted; %s declares accept lengths %v", n, s.asked, support(declared))
	}
	s.eligible++
	s.kept += int64(n)
	for len(s.histogram) <= n {
		s.histogram = append(s.histogram, 0)
	}
	s.histogram[n]++
	// Requests of equal seeds draw equal numbers at equal positions: only
	// the first of each seed is a sample.
	key := seedKey{req.Params.Seed, req.Params.Choice}
	if s.seeds[key] == "" {
		s.seeds[key] = r.Request
	}
	if s.seeds[key] != r.Request {
		s.skipped++
		return
	}
	s.spread.Add(n)
}

// support lists the accept lengths of positive probability.
func support(cells []float64) []int {
	var out []int
	for i, p := range cells {
		if p > 0 {
			out = append(out, i+1)
		}
	}
	return out
}

// together tests whether the sequences of a step draw independently, by the first
// two of the step: two independent draws are equal with a known probability.
func (a *countsAudit) together(recs []*engine.Record) {
	var first *engine.Record
	for _, r := range recs {
		req := a.c.Requests[r.Request]
		if req == nil || req.Simulation == "" || r.Phase != engine.Decode {
			continue
		}
		s := a.schedule(req.Simulation, req.K)
		if s.bad != nil || r.KExecuted < int32(s.spec.Most()) {
			continue
		}
		if first == nil {
			first = r
			continue
		}
		other := a.c.Requests[first.Request]
		if other.Simulation != req.Simulation || other.K != req.K || other.Params.Seed == req.Params.Seed && other.Params.Choice == req.Params.Choice {
			continue
		}
		equal := 0.0
		for _, p := range cells(s.spec) {
			equal += p * p
		}
		if equal < 1 {
			a.pair(req.Simulation, equal, first.Accepted == r.Accepted)
		}
		return
	}
}

// pair enters whether two draws of a step were equal.
func (a *countsAudit) pair(spec string, equal float64, same bool) {
	m := a.pairs[spec]
	if m == nil {
		m = NewMixture([]float64{1 - equal, equal})
		if a.pairs == nil {
			a.pairs = map[string]*Mixture{}
		}
		a.pairs[spec] = m
	}
	m.Add(map[bool]int{false: 0, true: 1}[same])
}

// simulated closes the checks of simulated acceptance.
func (a *countsAudit) simulated() {
	alpha := alphaRun / float64(max(1, len(a.sims)+len(a.pairs)))
	for _, key := range sortedKeys(a.sims) {
		s := a.sims[key]
		if s.bad != nil || s.steps == 0 {
			continue
		}
		if draw := a.b.check(checkDraw); draw.finding != nil && s.accepted != s.drawn && !a.told {
			a.told = true
			draw.finding.Why += "; " + s.arithmetic()
		}
		a.mean(s, alpha)
		a.figures.schedule(s)
		if s.skipped > 0 {
			a.b.blindTo(fmt.Sprintf("%s: %d steps of requests whose seed another request has count in no test of the schedule, since equal seeds draw equal numbers", s.asked, s.skipped))
		}
	}
	for _, spec := range sortedKeys(a.pairs) {
		m := a.pairs[spec]
		a.b.test(Test{
			Name: checkBatch, Samples: m.N(), Statistic: m.ChiSquare(), P: m.P(), Alpha: alpha,
			Detects: fmt.Sprintf("a share of equal draws that differs from %.3f by %.3f", m.declared[1], detectable(m.declared[1], m.N(), alpha)),
		}, fmt.Sprintf("%s: in %d of %d steps the first two sequences drew the same; independent draws do in %.1f %%", spec, m.counts[1], m.N(), 100*m.declared[1]))
	}
}

// arithmetic says what the schedule asked for and what came out.
func (s *simulation) arithmetic() string {
	got, want := float64(s.accepted)/float64(s.steps)+1, float64(s.drawn)/float64(s.steps)+1
	return fmt.Sprintf("%d steps x (k %d + 1) rows: %d tokens drawn for them (%.4f a step), %d realised (%.4f a step, %+.1f %%)",
		s.steps, s.k, s.drawn+s.steps, want, s.accepted+s.steps, got, 100*(got/want-1))
}

// mean tests the realised mean and spread against the declared schedule.
func (a *countsAudit) mean(s *simulation, alpha float64) {
	if s.spread.N() == 0 {
		a.b.blindTo(fmt.Sprintf("%s: no step verified the %d drafts that it may accept, so nothing is known of its mean", s.asked, s.spec.Most()))
		return
	}
	requested, realised := s.spec.Mean(), float64(s.kept)/float64(s.eligible)+1
	low, high := s.bounds(1 - alphaRun)
	n := s.spread.N()
	a.b.test(Test{
		Name: checkSpread, Samples: n, Statistic: s.spread.ChiSquare(), P: s.spread.P(), Alpha: alpha,
		Detects: fmt.Sprintf("a mean accept length that differs by %.3f", s.detects(n, alpha)),
	}, fmt.Sprintf("%s: %v drafts accepted, by count, in %d steps; realised %.4f for %.4f requested (%+.1f %%, Clopper-Pearson bounds %.4f..%.4f)",
		s.asked, s.histogram, s.eligible, realised, requested, 100*(realised/requested-1), low, high))
	k := a.b.check(checkMean)
	if !k.holds(requested >= low-1e-12 && requested <= high+1e-12) {
		k.blame(nil, "%s: realised %.4f over %d steps, requested %.4f (%+.1f %%); Clopper-Pearson bounds at 1 - %.0g are %.4f..%.4f: %s",
			s.asked, realised, s.eligible, requested, 100*(realised/requested-1), alphaRun, low, high, s.arithmetic())
	}
}

// bounds returns exact bounds of the mean accept length: Clopper-Pearson for
// each position whose rate is not certain, with the level divided among them.
func (s *simulation) bounds(level float64) (low, high float64) {
	low, high = 1, 1
	rates := s.spec.Unconditional()
	uncertain := 0
	for _, r := range rates {
		if r > 0 && r < 1 {
			uncertain++
		}
	}
	at := s.spread.counts
	above := s.spread.N()
	longest := max(len(rates), len(s.histogram)-1)
	for i := range longest {
		if i < len(at) {
			above -= at[i]
		}
		if i >= len(rates) || rates[i] == 0 || rates[i] == 1 {
			share := float64(above) / float64(max(1, s.spread.N()))
			if i >= len(rates) {
				share = 0
			}
			low, high = low+share, high+share
			continue
		}
		l, h := ClopperPearson(above, s.spread.N(), (1-level)/float64(max(1, uncertain)))
		low, high = low+l, high+h
	}
	return low, high
}

// detects is the difference of the mean that n steps show at a level, nine
// times in ten.
func (s *simulation) detects(n int64, alpha float64) float64 {
	variance, mean := 0.0, s.spec.Mean()-1
	for i, p := range cells(s.spec) {
		variance += p * (float64(i) - mean) * (float64(i) - mean)
	}
	return (normalQuantile(alpha/2) + normalQuantile(0.1)) * math.Sqrt(variance/float64(max(1, n)))
}

// detectable is the difference of a rate that n samples show, nine times in ten.
func detectable(rate float64, n int64, alpha float64) float64 {
	return min(1, (normalQuantile(alpha/2)+normalQuantile(0.1))*math.Sqrt(rate*(1-rate)/float64(max(1, n))))
}
