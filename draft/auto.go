package draft

import (
	"cmp"
	"math"
	"slices"

	"exacta.dev/exacta/engine"
)

// NewAuto returns a policy that maximises the expected number of committed tokens
// per second, step by step. For the sequences that decode together it knows
//
//   - what a step costs: the measured time of steps with as many sequences, by
//     the number of drafts verified and by the depth drafted, each a running median,
//     interpolated in between. Of a single sequence, each measurement is taken in
//     units of the pace of the steps before it, which is how much longer than they
//     were believed to take they took: costs are only compared, and what slows the
//     machine down for a while then makes no length look dear;
//   - what a draft is worth: the running share of drafts at each position that
//     were accepted after those before them, of the sequence and of all.
//
// Drafts are added in order of their probability of being accepted, that is of
// all drafts before them being accepted too, while the expected tokens per second
// of the whole step rise, as in the verification budgets of DSpark and vLLM. A
// length is tried now and then to keep its cost known. Where no draft pays it
// goes to k = 0 and drafts one token now and then, ever more rarely, to notice
// when that changes.
func NewAuto() engine.Lengths {
	return &auto{costs: map[int]*batchCost{}, seqs: map[int64]*autoSeq{}}
}

const (
	autoGain       = 1.01 // what drafting must promise over not drafting
	autoTry        = 48   // steps between two looks at a neighbouring length
	autoTryFirst   = 12   // the same while its cost has been measured less than autoKnown times
	autoKnown      = 10
	autoPace       = 7    // steps whose median is the pace
	autoSure       = 8    // measurements of a length from which its steps tell the pace
	autoSeqDecay   = 0.97 // of a sequence's counts, per verification
	autoAllDecay   = 0.99 // of everybody's
	autoPriorSeqs  = 12.  // weight of everybody's rate in a sequence's
	autoPriorRate  = 0.5  // rate of a position that was never drafted
	autoProbeFirst = 16   // steps without drafts before the first probe
	autoProbeLast  = 256
	autoProbeNear  = 32  // at most, where drafting is believed to do nearly as well as not
	autoNear       = 0.9 // that is, this share of the tokens per second
	autoWarm       = 2   // times that each warm-up length is measured
	autoHopeless   = 0.3 // share of first drafts below which longer ones are not tried
)

type auto struct {
	costs map[int]*batchCost
	all   rates
	seqs  map[int64]*autoSeq
	order []candidate // scratch
}

// rates are acceptance counts by position.
type rates struct{ tried, stood []float64 }

func (r *rates) add(drafts, accepted int, decay float64) {
	for len(r.tried) < drafts {
		r.tried, r.stood = append(r.tried, 0), append(r.stood, 0)
	}
	for i := range min(drafts, accepted+1) {
		r.tried[i] = decay*r.tried[i] + 1
		r.stood[i] *= decay
		if i < accepted {
			r.stood[i]++
		}
	}
}

// rate is the estimate at a position, shrunk towards a prior of some weight.
func (r *rates) rate(i int, prior, weight float64) float64 {
	if i >= len(r.tried) {
		return prior
	}
	return (r.stood[i] + prior*weight) / (r.tried[i] + weight)
}

// autoSeq is what is known of a sequence.
type autoSeq struct {
	rates
	idle, probe int  // steps without drafts; after how many to draft one
	hopeful     bool // the last probe was accepted: draft again
	probing     int  // length of the last probe
}

// typical is a running median: it goes a step towards each measurement, however far
// that is, long ones at first. Of the first two it keeps the lesser if they have
// little to do with each other: what disturbs a measurement makes it longer.
type typical struct {
	value float64
	n     int
}

const (
	typicalFirst = 0.25 // of the value, over the number of measurements
	typicalStep  = 0.01 // at least
)

func (t *typical) add(x float64) {
	switch t.n++; {
	case t.n == 1:
		t.value = x
	case t.n == 2:
		t.value = min((t.value+x)/2, 1.2*min(t.value, x))
	default:
		step := max(typicalFirst/float64(t.n), typicalStep) * t.value
		t.value += min(max(x-t.value, -step), step)
	}
}

// batchCost is the cost of steps of one number of sequences.
type batchCost struct {
	target []typical // without drafting, by number of drafts
	draft  []typical // of drafting, by depth
	steps  int
	looked int // the step of the last look

	recent [autoPace]float64 // what the last steps took over what was believed
	paces  int               // of them so far
}

// add takes in the times of a step, in units of the pace if paced. Several sequences
// have too many lengths together for any of them to tell the pace.
func (c *batchCost) add(drafts, depth int, target, draft float64, paced bool) {
	c.steps++
	c.target, c.draft = reach(c.target, drafts), reach(c.draft, depth)
	t, d := &c.target[drafts], &c.draft[depth]
	if believed := t.value + d.value; paced && min(t.n, d.n) >= autoSure && believed > 0 {
		c.recent[c.paces%autoPace] = (target + draft) / believed
		c.paces++
	}
	pace := c.pace()
	t.add(target / pace)
	d.add(draft / pace)
}

// pace is the running one.
func (c *batchCost) pace() float64 {
	n := min(c.paces, autoPace)
	if n == 0 {
		return 1
	}
	sorted := c.recent
	slices.Sort(sorted[:n])
	return max((sorted[(n-1)/2]+sorted[n/2])/2, math.SmallestNonzeroFloat32)
}

func reach(list []typical, i int) []typical {
	for len(list) <= i {
		list = append(list, typical{})
	}
	return list
}

// estimate is the cost at i: measured, or between the nearest that are. Beyond
// those it is that of the nearest.
func estimate(list []typical, i int) float64 {
	lo, hi := -1, -1
	for j := range list {
		if list[j].n > 0 {
			if j <= i {
				lo = j
			}
			if j >= i && hi < 0 {
				hi = j
			}
		}
	}
	switch {
	case lo < 0 && hi < 0:
		return 0
	case lo < 0:
		return list[hi].value
	case hi < 0 || lo == hi:
		return list[lo].value
	}
	f := float64(i-lo) / float64(hi-lo)
	return list[lo].value + f*(list[hi].value-list[lo].value)
}

// Release implements engine.Lengths.
func (a *auto) Release(seq *engine.Sequence) { delete(a.seqs, seq.ID()) }

func (a *auto) seq(s *engine.Sequence) *autoSeq {
	q := a.seqs[s.ID()]
	if q == nil {
		q = &autoSeq{probe: autoProbeFirst}
		a.seqs[s.ID()] = q
	}
	return q
}

// Observe implements engine.Lengths.
func (a *auto) Observe(o *engine.StepOutcome) {
	drafts, depth := 0, 0
	for _, s := range o.Sequences {
		drafts += s.Drafts
		depth = max(depth, s.Drafts)
		q := a.seq(s.Seq)
		if s.Drafts == 0 {
			q.idle++
			continue
		}
		q.hopeful = (s.Drafts == 1 || s.Drafts == q.probing) && s.Accepted > 0
		if q.idle = 0; s.Accepted > 0 {
			q.probe = autoProbeFirst
		} else if s.Drafts == 1 {
			q.probe = min(2*q.probe, autoProbeLast)
		}
		q.add(s.Drafts, int(s.Accepted), autoSeqDecay)
		a.all.add(s.Drafts, int(s.Accepted), autoAllDecay)
	}
	if o.PrefillRows > 0 || len(o.Sequences) == 0 {
		return
	}
	a.cost(len(o.Sequences)).add(drafts, depth, float64(o.TotalNs-o.DraftNs), float64(o.DraftNs), len(o.Sequences) == 1)
}

func (a *auto) cost(sequences int) *batchCost {
	c := a.costs[sequences]
	if c == nil {
		c = &batchCost{}
		a.costs[sequences] = c
	}
	return c
}

// candidate is a draft that could be verified.
type candidate struct {
	ask, depth int
	worth      float64 // probability that it is accepted
}

// Choose implements engine.Lengths.
func (a *auto) Choose(asks []engine.LengthAsk) {
	c, most := a.cost(len(asks)), 0
	for i := range asks {
		asks[i].K = 0
		most = max(most, asks[i].Most)
	}
	if k, ok := c.warming(most, len(asks), a.all.rate(0, autoPriorRate, 2)); ok {
		for i := range asks {
			asks[i].K = min(k, asks[i].Most)
		}
		return
	}
	last := autoProbeLast
	if a.best(asks, c) >= autoNear && len(asks) == 1 {
		last = autoProbeNear
	}
	for i := range asks {
		if q := a.seq(asks[i].Seq); asks[i].K == 0 && (q.hopeful || q.idle >= min(q.probe, last)) {
			asks[i].K = min(a.probe(c, len(asks)), asks[i].Most)
			q.probing = asks[i].K
		}
	}
	a.look(asks, c)
}

// probe is the length of a probe: one draft, and of a single sequence whose first ones
// are accepted two, until their cost is known.
func (a *auto) probe(c *batchCost, sequences int) int {
	if sequences == 1 && a.all.rate(0, autoPriorRate, 2) >= autoHopeless && (len(c.target) <= 2 || c.target[2].n < autoKnown) {
		return 2
	}
	return 1
}

// warming returns a length that has not been measured yet: none, one, two, half,
// all; two and more only where first drafts are accepted, at the share first.
func (c *batchCost) warming(most, sequences int, first float64) (int, bool) {
	if c.steps >= 10*autoWarm { // the scheduler may never give some length
		return 0, false
	}
	for times := range autoWarm {
		if sequences > 1 {
			times = autoWarm - 1
		}
		for _, k := range []int{0, min(1, most), min(2, most), most, (most + 1) / 2} {
			if k > 1 && first < autoHopeless {
				break
			}
			if n := k * sequences; len(c.target) <= n || c.target[n].n <= times {
				return k, true
			}
		}
	}
	return 0, false
}

// best adds drafts while that pays, and returns what the best number of drafts would
// give over what none gives.
func (a *auto) best(asks []engine.LengthAsk, c *batchCost) (gain float64) {
	a.order = a.order[:0]
	for i := range asks {
		q, worth := a.seq(asks[i].Seq), 1.0
		for d := range asks[i].Most {
			worth *= q.rate(d, a.all.rate(d, autoPriorRate, 1), autoPriorSeqs)
			a.order = append(a.order, candidate{i, d + 1, worth})
		}
	}
	slices.SortStableFunc(a.order, func(x, y candidate) int { return cmp.Compare(y.worth, x.worth) })
	tokens := float64(len(asks))
	none, n, depth := tokens/(estimate(c.target, 0)+estimate(c.draft, 0)), 0, 0
	best := autoGain * none
	for i, x := range a.order {
		tokens += x.worth
		depth = max(depth, x.depth)
		rate := tokens / (estimate(c.target, i+1) + estimate(c.draft, depth))
		if gain = max(gain, rate/none); rate > best {
			best, n = rate, i+1
		}
	}
	for _, x := range a.order[:n] {
		asks[x.ask].K = x.depth
	}
	return gain
}

// look moves one step in autoTry to a length beside the best, so that its cost
// and worth stay known; of a single sequence sooner, while that length's cost has
// been measured a few times only.
// Where the best is none, probes do that.
func (a *auto) look(asks []engine.LengthAsk, c *batchCost) {
	since, by, drafts := c.steps-c.looked, 1, 0
	if c.looked%2 == 1 {
		by = -1
	}
	if since < autoTryFirst {
		return
	}
	for i := range asks {
		drafts += beside(&asks[i], by)
	}
	if since < autoTry && (len(asks) > 1 || drafts < len(c.target) && c.target[drafts].n >= autoKnown) {
		return
	}
	c.looked = c.steps + (c.steps+c.looked+1)%2 // the other way next time
	for i := range asks {
		asks[i].K = beside(&asks[i], by)
	}
}

// beside is the length beside that of an ask which drafts.
func beside(a *engine.LengthAsk, by int) int {
	if a.K == 0 {
		return 0
	}
	return min(max(a.K+by, 0), a.Most)
}
