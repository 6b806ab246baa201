package acceptance

import (
	"strings"

	"exacta.dev/exacta/engine"
)

// Stats accumulates the acceptance statistics of a stream of records. The zero
// value is ready.
type Stats struct {
	Steps         int64 // records
	Verifications int64 // decode records: one verification each, drafts or not
	Proposed      int64 // draft tokens verified (engine.Proposed)
	Accepted      int64 // draft tokens accepted (engine.Accepted)
	Emitted       int64 // tokens that reached the client (engine.Emitted)
	AcceptLengths int64 // sum over verifications of engine.AcceptLength
	Simulated     bool  // any record was simulated
	Preemptions   int64
	CachedTokens  int64

	// Histogram[i] counts verifications that accepted i drafts.
	Histogram []int64
	// Reached[i] counts verifications that executed more than i drafts;
	// Prefix[i] those of them whose drafts 0..i were all accepted.
	Reached, Prefix []int64
	// tried[i] counts verifications that executed more than i drafts and
	// accepted all of 0..i-1.
	tried []int64

	steps stepTimes
	seen  map[int64]int32 // preemptions by sequence
}

// stepTimes sums engine-step times once per step, over the records of all
// sequences in it.
type stepTimes struct {
	last        int64
	started     bool
	pure        bool // no prefill in the current step
	Steps       int64
	TotalNs     int64
	DraftNs     int64
	VerifyNs    int64
	DecodeSteps int64 // steps without prefill
	DecodeNs    int64
	DecodeToks  int64 // tokens emitted in them
}

// Add takes one record; records come in step order.
func (s *Stats) Add(r *engine.Record) {
	s.Steps++
	s.Simulated = s.Simulated || r.Simulated
	s.Emitted += int64(r.Emitted())
	s.steps.add(r)
	if s.seen == nil {
		s.seen = map[int64]int32{}
	}
	s.Preemptions += int64(r.Preemptions - s.seen[r.Sequence])
	s.seen[r.Sequence] = r.Preemptions
	if r.SeqStep == 0 {
		s.CachedTokens += int64(r.Cached)
	}
	if r.Phase != engine.Decode {
		return
	}
	s.Verifications++
	s.Proposed += int64(engine.Proposed(r.KExecuted))
	s.Accepted += int64(r.Accepted)
	s.AcceptLengths += int64(r.Accepted.Length())
	s.Histogram = count(s.Histogram, int(r.Accepted))
	for i := range int(r.KExecuted) {
		s.Reached = count(s.Reached, i)
		if int(r.Accepted) >= i {
			s.tried = count(s.tried, i)
		}
		if int(r.Accepted) > i {
			s.Prefix = count(s.Prefix, i)
		}
	}
}

func count(h []int64, i int) []int64 {
	for len(h) <= i {
		h = append(h, 0)
	}
	h[i]++
	return h
}

func (t *stepTimes) add(r *engine.Record) {
	if !t.started || r.Step != t.last {
		t.started, t.last = true, r.Step
		t.pure = r.PrefillTokens == 0
		t.Steps++
		t.TotalNs += r.TotalNs
		t.VerifyNs += r.VerifyNs
		t.DraftNs += r.DraftNs
		if t.pure {
			t.DecodeSteps++
			t.DecodeNs += r.TotalNs
		}
	}
	if t.pure {
		t.DecodeToks += int64(r.Emitted())
	}
}

// Summary is Stats as figures.
type Summary struct {
	Steps         int64   `json:"steps"`
	Verifications int64   `json:"verifications"`
	Proposed      int64   `json:"proposed"`
	Accepted      int64   `json:"accepted"`
	Emitted       int64   `json:"emitted"`
	AcceptLength  float64 `json:"accept_length"` // mean over verifications
	// AcceptanceByPosition[i]: of the verifications with more than i drafts,
	// the share in which drafts 0..i were all accepted. Conditional: of
	// those in which drafts 0..i-1 were.
	AcceptanceByPosition []float64 `json:"acceptance_by_position"`
	Conditional          []float64 `json:"acceptance_conditional"`
	Histogram            []int64   `json:"histogram"`
	Preemptions          int64     `json:"preemptions"`
	CachedTokens         int64     `json:"cached_tokens"`
	Simulated            bool      `json:"simulated"`

	EngineSteps  int64   `json:"engine_steps"`
	TotalSeconds float64 `json:"total_seconds"`  // of engine steps
	DraftShare   float64 `json:"draft_share"`    // of step time
	DecodeStepMs float64 `json:"decode_step_ms"` // mean step without prefill
	DecodeTokS   float64 `json:"decode_tok_s"`   // tokens per second in such steps
}

// Summary computes the figures; ratios of nothing are 0.
func (s *Stats) Summary() Summary {
	t := s.steps
	out := Summary{
		Steps: s.Steps, Verifications: s.Verifications, Proposed: s.Proposed, Accepted: s.Accepted, Emitted: s.Emitted,
		AcceptLength: ratio(s.AcceptLengths, s.Verifications), Histogram: s.Histogram, Preemptions: s.Preemptions,
		CachedTokens: s.CachedTokens, Simulated: s.Simulated, EngineSteps: t.Steps,
		TotalSeconds: float64(t.TotalNs) / 1e9, DraftShare: ratio(t.DraftNs, t.TotalNs),
		DecodeStepMs: ratio(t.DecodeNs, t.DecodeSteps) / 1e6, DecodeTokS: 1e9 * ratio(t.DecodeToks, t.DecodeNs),
		AcceptanceByPosition: []float64{}, Conditional: []float64{},
	}
	for i, n := range s.Reached {
		all := at(s.Prefix, i)
		out.AcceptanceByPosition = append(out.AcceptanceByPosition, ratio(all, n))
		out.Conditional = append(out.Conditional, ratio(all, at(s.tried, i)))
	}
	return out
}

func at(h []int64, i int) int64 {
	if i < len(h) {
		return h[i]
	}
	return 0
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Group accumulates statistics by a key of the record, in order of first
// appearance.
type Group struct {
	Key   func(*engine.Record) string
	Order []string
	By    map[string]*Stats
}

// NewGroup groups by key.
func NewGroup(key func(*engine.Record) string) *Group {
	return &Group{Key: key, By: map[string]*Stats{}}
}

// Add takes one record.
func (g *Group) Add(r *engine.Record) {
	k := g.Key(r)
	s := g.By[k]
	if s == nil {
		s = &Stats{}
		g.By[k] = s
		g.Order = append(g.Order, k)
	}
	s.Add(r)
}

// ByPoint is the part of the request id before the first slash, with which
// experiments name their points and rounds.
func ByPoint(r *engine.Record) string {
	point, _, _ := strings.Cut(r.Request, "/")
	return point
}
