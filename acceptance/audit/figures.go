package audit

import (
	"fmt"
	"math/bits"
	"strconv"

	"exacta.dev/exacta/engine"
)

// Figures are the acceptance figures of a run, by strategy ("mtp/greedy/k3", with
// "simulated/" before it where it was, "lossy/" where the rule is).
type Figures struct {
	Strategies  map[string]*StrategyFigures `json:"strategies"`
	Simulations map[string]*Realised        `json:"simulations,omitempty"`
}

// StrategyFigures are the figures of a strategy over decode steps. Accept length
// is accepted drafts and the token after them.
type StrategyFigures struct {
	Steps   int64 `json:"steps"`
	Drafted int64 `json:"drafted"` // steps that verified a draft
	Tokens  int64 `json:"tokens"`  // emitted in them
	// AcceptLengthByStep weighs every step alike (micro), ByRequest every
	// request (macro), ByToken every request by its tokens.
	AcceptLengthByStep    float64 `json:"accept_length_by_step"`
	AcceptLengthByRequest float64 `json:"accept_length_by_request"`
	AcceptLengthByToken   float64 `json:"accept_length_by_token"`
	// ByPosition[i]: of the steps that verified more than i drafts, those
	// that accepted drafts 0..i.
	ByPosition []Rate `json:"by_position"`
	// Conditional[i]: of those in which drafts 0..i-1 were accepted.
	Conditional []Rate `json:"conditional"`
	// ByDepth: accepted of proposed drafts, by committed length below 2^n.
	ByDepth   []Depth `json:"by_depth"`
	Histogram []int64 `json:"histogram"` // steps by accepted drafts

	requests map[string]*sums
	reached  []int64
	tried    []int64
	prefix   []int64
	depth    [32][2]int64
}

// Rate is a proportion with exact bounds at 95 %.
type Rate struct {
	Of   int64   `json:"of"`
	Rate float64 `json:"rate"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Depth is the acceptance among steps that began at a committed length below a
// bound, and not below the bound before.
type Depth struct {
	Below int  `json:"below"`
	Rate  Rate `json:"rate"`
}

// Realised compares a simulation with what was asked for.
type Realised struct {
	Requested float64 `json:"requested"`
	Realised  float64 `json:"realised"`
	Low       float64 `json:"low"` // exact bounds at 1 - 1e-6
	High      float64 `json:"high"`
	Steps     int64   `json:"steps"`
	Histogram []int64 `json:"histogram"`
}

// sums is what is kept of a request.
type sums struct{ steps, lengths, tokens int64 }

// figures gathers them.
type figures struct {
	out                Figures
	drafted, none, all int64
	simulated          bool
}

// add takes a record of a request (nil where it is unknown).
func (f *figures) add(req *Request, r *engine.Record) {
	if r.Phase != engine.Decode {
		return
	}
	f.simulated = f.simulated || r.Simulated
	if r.KExecuted > 0 {
		f.drafted++
		if r.Accepted == 0 {
			f.none++
		}
		if r.Leaf() {
			f.all++
		}
	}
	k := int(r.KPlanned)
	if req != nil {
		k = req.K
	}
	key := fmt.Sprintf("%s/%s/k%d", r.Drafter, r.Rule, k)
	if r.Lossy {
		key = "lossy/" + key
	}
	if r.Simulated {
		key = "simulated/" + key
	}
	if f.out.Strategies == nil {
		f.out.Strategies = map[string]*StrategyFigures{}
	}
	s := f.out.Strategies[key]
	if s == nil {
		s = &StrategyFigures{requests: map[string]*sums{}}
		f.out.Strategies[key] = s
	}
	s.add(r)
}

func (s *StrategyFigures) add(r *engine.Record) {
	s.Steps++
	s.Tokens += int64(r.Emitted())
	q := s.requests[r.Request]
	if q == nil {
		q = &sums{}
		s.requests[r.Request] = q
	}
	q.steps++
	q.lengths += int64(r.Accepted.Length())
	q.tokens += int64(r.Emitted())
	n := max(0, min(int(r.Accepted), 1<<16))
	s.Histogram = raised(s.Histogram, n)
	if r.KExecuted > 0 {
		s.Drafted++
		d := &s.depth[bits.Len32(uint32(max(0, r.Position)))]
		d[0] += int64(r.KExecuted)
		d[1] += int64(n)
	}
	for i := range int(min(r.KExecuted, 1<<16)) {
		s.reached = raised(s.reached, i)
		if n >= i {
			s.tried = raised(s.tried, i)
		}
		if n > i {
			s.prefix = raised(s.prefix, i)
		}
	}
}

func raised(h []int64, i int) []int64 {
	for len(h) <= i {
		h = append(h, 0)
	}
	h[i]++
	return h
}

// schedule enters a simulation.
func (f *figures) schedule(s *simulation) {
	if f.out.Simulations == nil {
		f.out.Simulations = map[string]*Realised{}
	}
	low, high := s.bounds(1 - alphaRun)
	f.out.Simulations[fmt.Sprintf("%s at k %d", s.asked, s.k)] = &Realised{
		Requested: s.spec.Mean(), Realised: float64(s.kept)/float64(max(1, s.eligible)) + 1, Low: low, High: high, Steps: s.eligible, Histogram: s.histogram,
	}
}

// json computes the means and rates.
func (f *figures) json() *Figures {
	for _, s := range f.out.Strategies {
		s.finish()
	}
	return &f.out
}

func (s *StrategyFigures) finish() {
	var steps, lengths, tokens int64
	var macro, weighted float64
	for _, id := range sortedKeys(s.requests) {
		q := s.requests[id]
		mean := float64(q.lengths) / float64(q.steps)
		steps, lengths, tokens = steps+q.steps, lengths+q.lengths, tokens+q.tokens
		macro += mean
		weighted += mean * float64(q.tokens)
	}
	s.AcceptLengthByStep = float64(lengths) / float64(steps)
	s.AcceptLengthByRequest = macro / float64(len(s.requests))
	s.AcceptLengthByToken = weighted / float64(max(1, tokens))
	s.ByPosition, s.Conditional, s.ByDepth = []Rate{}, []Rate{}, []Depth{}
	for i, n := range s.reached {
		s.ByPosition = append(s.ByPosition, rateOf(get(s.prefix, i), n))
		s.Conditional = append(s.Conditional, rateOf(get(s.prefix, i), get(s.tried, i)))
	}
	for i, d := range s.depth {
		if d[0] > 0 {
			s.ByDepth = append(s.ByDepth, Depth{Below: 1 << i, Rate: rateOf(d[1], d[0])})
		}
	}
}

func get(h []int64, i int) int64 {
	if i < len(h) {
		return h[i]
	}
	return 0
}

func rateOf(x, n int64) Rate {
	r := Rate{Of: n, High: 1}
	if n > 0 {
		r.Rate = float64(x) / float64(n)
		r.Low, r.High = ClopperPearson(min(x, n), n, 0.05)
	}
	return r
}

func itoa(n int) string { return strconv.Itoa(n) }
