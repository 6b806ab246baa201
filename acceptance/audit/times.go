package audit

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// roofMargin is how many times faster than this machine's best reading a pass may
// seem before it is called impossible: the machine may be busier now than it was.
const roofMargin = 4

// flatMargin is the change of a step's time per accepted draft, as a share of the
// step, up to which the times are called flat.
const flatMargin = 0.03

// durations checks the times of a step.
func (a *workAudit) durations(recs []*engine.Record) {
	k := a.b.check(checkTimes)
	for _, r := range recs {
		drafted := len(r.ProposedIDs) > 0
		ok := r.TotalNs > 0 && r.VerifyNs > 0 && r.DraftNs >= 0 && r.DraftNs+r.VerifyNs <= r.TotalNs && (!drafted || r.DraftNs > 0)
		if !k.holds(ok) {
			k.blame(r, "draft %d ns, verification %d ns, step %d ns, %d drafts", r.DraftNs, r.VerifyNs, r.TotalNs, len(r.ProposedIDs))
		}
	}
	r := recs[0]
	if a.roof <= 0 || r.VerifyNs <= 0 {
		return
	}
	bytes := float64(a.c.Lab.Cost([]SpanCost{{Rows: 1, LogitRows: 1}}).WeightBytes)
	if r.Phase == engine.Prefill && r.NextKind == engine.NextNone {
		bytes = float64(a.unit.WeightBytes)
	}
	least := bytes / a.roof / roofMargin * 1e9
	if k := a.b.check(checkRoof); !k.holds(float64(r.VerifyNs) >= least) {
		k.blame(r, "the pass took %d ns; reading its %.0f bytes of weights takes %.0f ns at the %.3g bytes/s that this machine reads, a %dth of it is the limit",
			r.VerifyNs, bytes, bytes/a.roof*1e9, a.roof, roofMargin)
	}
}

// flatness tests the step time against the accept length by pairs of neighbouring
// steps of one shape: drift of the machine moves both, and which of the two
// accepted more has nothing to do with it. Over pairs, a sign test.
type flatness struct {
	slopes  *quantiles // change of time per accepted draft, as a share of the step
	up      int64      // pairs with a slope above the margin
	down    int64      // below minus the margin
	n       int64
	example *engine.Record
}

// timing enters a decode step, with the step before it.
func (a *workAudit) timing(recs []*engine.Record) {
	previous := a.last
	a.last = nil
	shape, accepted, steady := a.shapeOf(recs)
	if !steady {
		return
	}
	times := a.rounds
	if recs[0].KPlanned == 0 {
		times = a.plain
	}
	if times[recs[0].Batch] == nil {
		times[recs[0].Batch] = &quantiles{}
	}
	times[recs[0].Batch].add(float64(recs[0].TotalNs))
	if len(previous) == 0 {
		a.last = slices.Clone(recs)
		return
	}
	before, earlier, _ := a.shapeOf(previous)
	if before != shape || previous[0].Step+1 != recs[0].Step {
		a.last = slices.Clone(recs)
		return
	}
	if earlier == accepted || recs[0].KPlanned == 0 {
		return
	}
	f := a.flat[shape]
	if f == nil {
		f = &flatness{slopes: &quantiles{}, example: recs[0]}
		a.flat[shape] = f
	}
	mean := float64(recs[0].TotalNs+previous[0].TotalNs) / 2
	slope := float64(recs[0].TotalNs-previous[0].TotalNs) / mean / float64(accepted-earlier)
	f.n++
	f.slopes.add(slope)
	if slope > flatMargin {
		f.up++
	} else if slope < -flatMargin {
		f.down++
	}
}

// shapeOf names what the time of a step may depend on, with the drafts accepted
// in it. steady says that accept length is not among that: for rules that read
// the logits on the host it is, unless the outcome was forced.
func (a *workAudit) shapeOf(recs []*engine.Record) (shape string, accepted int64, steady bool) {
	r := recs[0]
	for _, q := range recs {
		req := a.c.Requests[q.Request]
		if req == nil || q.Phase != engine.Decode || q.KExecuted != r.KExecuted || q.KPlanned != r.KPlanned || q.Drafter != r.Drafter || q.Rule != r.Rule {
			return "", 0, false
		}
		if !req.Params.Plain() && !q.Simulated {
			a.b.blindTo("rules that read logits on the host take longer the more drafts they accept: their step times are not held to be flat")
			return "", 0, false
		}
		accepted += int64(q.Accepted)
	}
	return fmt.Sprintf("%s %s k %d of %d, batch %d, simulated %v", r.Drafter, r.Rule, r.KExecuted, r.KPlanned, r.Batch, r.Simulated), accepted, true
}

// times enters the tests.
func (a *workAudit) times() {
	var shapes []string
	alpha := alphaRun / float64(max(1, len(a.flat)))
	few := int64(0)
	for _, shape := range sortedKeys(a.flat) {
		if f := a.flat[shape]; needed(f.n, alpha) < 0.5 {
			shapes = append(shapes, shape)
		} else {
			few += f.n
		}
	}
	if few > 0 {
		a.b.blindTo(fmt.Sprintf("%d pairs of neighbouring steps are of shapes that have too few to say anything of their times", few))
	}
	for _, shape := range shapes {
		a.flatTest(shape, a.flat[shape], alpha)
	}
	k := a.b.check(checkPlainTime)
	for _, batch := range slices.Sorted(maps.Keys(a.rounds)) {
		plain, round := a.plain[batch], a.rounds[batch]
		if plain == nil || plain.n < 20 || round.n < 20 {
			continue
		}
		if !k.holds(round.median() >= plainShare*plain.quantile(0.1)) {
			k.blame(nil, "with %d sequences, a speculative round takes %.3f ms (median), nine of ten plain steps over %.3f ms: it did less than a plain step", batch, round.median()/1e6, plain.quantile(0.1)/1e6)
		}
	}
	if k.Checked == 0 {
		k.skip("the run has not 20 plain and 20 speculative steps of the same number of sequences")
	}
}

// needed is how far above one half the share of pairs on one side must be to be
// called so at a level.
func needed(n int64, alpha float64) float64 {
	return normalQuantile(alpha/2) / 2 / math.Sqrt(float64(n))
}

// flatTest enters the test of a shape. Were the true slope within the margin, a
// pair would lie beyond it on either side with a probability of at most one half.
func (a *workAudit) flatTest(shape string, f *flatness, alpha float64) {
	p := min(1, 2*min(tailAtLeast(f.n, f.up, 0.5), tailAtLeast(f.n, f.down, 0.5)))
	median, spread := f.slopes.median(), f.slopes.spread()
	detects := 100 * (flatMargin + spread*normalQuantile(0.5-needed(f.n, alpha)))
	a.b.test(Test{
		Name: checkFlat, Samples: f.n, Statistic: median, P: p, Alpha: alpha,
		Detects: fmt.Sprintf("%s: a change of %.1f %% of the step per accepted draft", shape, detects),
	}, fmt.Sprintf("%s: a step takes %+.1f %% per draft more that it accepts (median of %d pairs of neighbouring steps)", shape, 100*median, f.n))
}

// plainShare is the share of a fast plain step below which a speculative round is
// called impossible.
const plainShare = 0.7

// quantiles keeps a sample of fixed size of a stream of numbers: the first
// sampleSize, then each with the probability that keeps them even (Vitter's
// algorithm R, from a fixed stream).
type quantiles struct {
	n    int64
	kept []float64
}

const sampleSize = 2048

func (q *quantiles) add(x float64) {
	q.n++
	if len(q.kept) < sampleSize {
		q.kept = append(q.kept, x)
		return
	}
	u := sample.Params{Seed: 1}.Stream(sample.Target, int(uint32(q.n)), 0).Uniform(0)
	if i := int64(u * float64(q.n)); i < sampleSize {
		q.kept[i] = x
	}
}

func (q *quantiles) quantile(p float64) float64 {
	if len(q.kept) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(q.kept))
	return s[int(p*float64(len(s)-1)+0.5)]
}

func (q *quantiles) median() float64 { return q.quantile(0.5) }

// spread is the standard deviation of a normal distribution with the same middle
// half.
func (q *quantiles) spread() float64 { return (q.quantile(0.75) - q.quantile(0.25)) / 1.349 }
