package experiments

import (
	"maps"
	"slices"
)

// table turns what was gathered into the summary's lines.
func (r *runner) table() []PointResult {
	out := []PointResult{}
	for i, p := range r.points {
		st := r.results[i]
		if len(st.seconds) == 0 {
			continue
		}
		plain := r.results[r.plainOf(p)]
		sum := st.stats.Summary()
		res := PointResult{
			Point: p, Tokens: int(sum.Emitted), AcceptLength: sum.AcceptLength, AcceptanceByPosition: sum.AcceptanceByPosition,
			Seconds: st.seconds, DraftShare: sum.DraftShare, Lossy: sum.Lossy, Simulated: sum.Simulated, StepMs: sum.DecodeStepMs, Preemptions: int(sum.Preemptions),
		}
		res.Repeated4Grams, res.FreshAcceptLength = st.fresh.RepeatedShare(), st.fresh.AcceptLength()
		var speed, ratio, decode, fresh []float64
		for n := range st.seconds {
			speed = append(speed, float64(st.tokens[n])/st.seconds[n])
			if n < len(plain.seconds) {
				ratio = append(ratio, speed[n]/(float64(plain.tokens[n])/plain.seconds[n]))
				if plain.decode[n] > 0 { // 0 where no step was without prefill
					decode = append(decode, st.decode[n]/plain.decode[n])
					if p.Concurrency == 1 && plain.freshTokS[n] > 0 {
						fresh = append(fresh, st.freshTokS[n]/plain.freshTokS[n])
					}
				}
			}
		}
		res.TokS, res.RatioToPlain = median(speed), median(ratio)
		res.DecodeTokS, res.DecodeRatio = median(st.decode), median(decode)
		if len(fresh) > 0 {
			f := median(fresh)
			res.FreshRatio = &f
		}
		if sum.Simulated {
			real := sum.RealAccepted.Per(sum.Verifications) + 1
			res.RealAcceptLength = &real
		}
		// In a run with simulated points or lossy rules nothing is called
		// exact, but what is not is still told.
		if rule, err := p.rule(); err == nil && rule.Exact(r.cfg.Sampling.Params(0)) && !(st.exact && (r.simulates() || len(r.cfg.lossy()) > 0)) {
			exact := st.exact
			res.Exact, res.FirstDiff = &exact, st.firstDiff
		}
		res.Classes = r.byClass(st, plain)
		out = append(out, res)
	}
	return out
}

// byClass makes the lines of a point by class, if the prompts are of several.
func (r *runner) byClass(st, plain *pointState) []ClassResult {
	if len(st.classes) < 2 {
		return nil
	}
	var out []ClassResult
	for _, name := range slices.Sorted(maps.Keys(st.classes)) {
		c, base := st.classes[name], plain.classes[name]
		sum := c.stats.Summary()
		res := ClassResult{
			Class: name, Tokens: int(sum.Emitted), AcceptLength: sum.AcceptLength, AcceptanceByPosition: sum.AcceptanceByPosition, DraftShare: sum.DraftShare,
		}
		var speed, ratio []float64
		for n := range st.seconds {
			speed = append(speed, 1e9*float64(c.tokens[n])/float64(c.ns[n]))
			if n < len(plain.seconds) {
				ratio = append(ratio, speed[n]/(1e9*float64(base.tokens[n])/float64(base.ns[n])))
			}
		}
		res.TokS, res.RatioToPlain = median(speed), median(ratio)
		out = append(out, res)
	}
	return out
}

// simulates reports whether any point of the run is simulated.
func (r *runner) simulates() bool {
	return slices.ContainsFunc(r.points, func(p Point) bool { return p.Simulation != "" })
}

// plainOf returns the index of the plain point of p's concurrency.
func (r *runner) plainOf(p Point) int {
	return slices.IndexFunc(r.points, func(q Point) bool { return q.Strategy < 0 && q.Concurrency == p.Concurrency })
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}
