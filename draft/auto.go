package draft

import (
	"cmp"
	"slices"

	"exacta.dev/exacta/engine"
)

// NewAuto returns a policy that maximises the expected number of committed tokens
// per second, step by step. For the sequences that decode together it knows
//
//   - what a step costs: the measured time of steps with as many sequences, by
//     the number of drafts verified and by the depth drafted, each a running median,
//     interpolated in between;
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
	autoSeqDecay   = 0.97 // of a sequence's counts, per verification
	autoAllDecay   = 0.99 // of everybody's
	autoPriorSeqs  = 12.  // weight of everybody's rate in a sequence's
	autoPriorRate  = 0.5  // rate of a position that was never drafted
	autoProbeFirst = 16   // steps without drafts before the first probe
	autoProbeLast  = 256
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
	hopeful     bool // the last probe was accepted: draft one again
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
	target []typical // ns without drafting, by number of drafts
	draft  []typical // ns of drafting, by depth
	steps  int
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
		q.hopeful = s.Drafts == 1 && s.Accepted == 1
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
	c := a.cost(len(o.Sequences))
	c.steps++
	c.target, c.draft = reach(c.target, drafts), reach(c.draft, depth)
	c.target[drafts].add(float64(o.TotalNs - o.DraftNs))
	c.draft[depth].add(float64(o.DraftNs))
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
	a.best(asks, c)
	for i := range asks {
		if q := a.seq(asks[i].Seq); asks[i].K == 0 && (q.hopeful || q.idle >= q.probe) {
			asks[i].K = min(1, asks[i].Most)
		}
	}
	a.look(asks, c)
}

// warming returns a length that has not been measured yet: none, one, two, half,
// all; two and more only where first drafts are accepted, at the share first.
func (c *batchCost) warming(most, sequences int, first float64) (int, bool) {
	for _, k := range []int{0, min(1, most), min(2, most), most, (most + 1) / 2} {
		if k > 1 && first < autoHopeless {
			return 0, false
		}
		if n := k * sequences; len(c.target) <= n || c.target[n].n < autoWarm {
			if c.steps < 10*autoWarm { // the scheduler may never give this length
				return k, true
			}
		}
	}
	return 0, false
}

// best adds drafts while that pays.
func (a *auto) best(asks []engine.LengthAsk, c *batchCost) {
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
	best, n, depth := autoGain*tokens/(estimate(c.target, 0)+estimate(c.draft, 0)), 0, 0
	for i, x := range a.order {
		tokens += x.worth
		depth = max(depth, x.depth)
		if rate := tokens / (estimate(c.target, i+1) + estimate(c.draft, depth)); rate > best {
			best, n = rate, i+1
		}
	}
	for _, x := range a.order[:n] {
		asks[x.ask].K = x.depth
	}
}

// look moves one step in autoTry to a length beside the best, so that its cost
// and worth stay known. Where the best is none, probes do that.
func (a *auto) look(asks []engine.LengthAsk, c *batchCost) {
	if c.steps%autoTry != autoTry-1 {
		return
	}
	by := 1
	if c.steps/autoTry%2 == 1 {
		by = -1
	}
	for i := range asks {
		if asks[i].K > 0 {
			asks[i].K = min(max(asks[i].K+by, 0), asks[i].Most)
		}
	}
}
