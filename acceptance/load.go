package acceptance

import (
	"cmp"
	"slices"

	"exacta.dev/exacta/engine"
)

// Load takes the records of a run or a server, in order, and tells what its engine
// was busy with: how many requests were decoding, what prefill took of it, and what
// was computed again after preemptions. Its time is that of steps; while an engine
// has nothing to do, no time passes.
type Load struct {
	step    loadStep // the one that records are being added to
	started bool
	reached map[string]int32 // tokens that a request had computed at most
	behind  int64            // tokens prefilled since the last step that decoded

	steps    []loadStep
	between  []int64
	emitted  int64
	rows     int64
	prefill  int64
	again    int64
	preempts map[string]int32
}

// loadStep is a step: how many sequences decoded and were in prefill, and its time.
type loadStep struct {
	number, ns          int64
	decoding, preparing int64
}

// NewLoad returns a Load without records.
func NewLoad() *Load { return &Load{reached: map[string]int32{}, preempts: map[string]int32{}} }

// Add takes a record in.
func (l *Load) Add(r *engine.Record) error {
	if !l.started || r.Step != l.step.number || r.TotalNs != l.step.ns {
		l.close()
		l.started, l.step = true, loadStep{number: r.Step, ns: r.TotalNs}
		l.prefill += int64(r.PrefillTokens)
		l.rows += int64(r.BatchRows)
		l.behind += int64(r.PrefillTokens)
	}
	l.emitted += int64(len(r.EmittedIDs))
	l.preempts[r.Request] = r.Preemptions
	if r.Phase == engine.Decode {
		l.step.decoding++
		l.reached[r.Request] = max(l.reached[r.Request], r.Position+1+int32(r.Accepted))
		return nil
	}
	l.step.preparing++
	end := r.Position + r.Rows
	l.again += int64(max(0, min(end, l.reached[r.Request])-r.Position))
	l.reached[r.Request] = max(l.reached[r.Request], end)
	return nil
}

// close takes the step that is complete into the sums.
func (l *Load) close() {
	if !l.started {
		return
	}
	l.steps = append(l.steps, l.step)
	if l.step.decoding > 0 {
		l.between = append(l.between, l.behind)
		l.behind = 0
	}
}

// LoadFigures are what a Load tells. The rate is a product: Rate = Decoding.Mean x
// PerRequest, where PerRequest counts the time in which a request was decoding.
type LoadFigures struct {
	Requests int     `json:"requests"`
	Steps    int     `json:"engine_steps"`
	Seconds  float64 `json:"busy_seconds"` // the sum of the steps' times
	Emitted  int64   `json:"emitted"`
	Rate     float64 `json:"tok_s"` // emitted tokens per second of it
	// Decoding and Preparing are the requests in a step that decoded and that were
	// in prefill, each step weighing as long as it took.
	Decoding   Spread  `json:"requests_decoding"`
	Preparing  Spread  `json:"requests_in_prefill"`
	PerRequest float64 `json:"tok_s_per_decoding_request"`
	// PrefillTokens are the rows of prefill, RowShare what they are of all rows, and
	// TimeShare the share of the time that went to steps with any.
	PrefillTokens int64   `json:"prefill_tokens"`
	RowShare      float64 `json:"prefill_row_share"`
	TimeShare     float64 `json:"prefill_step_share"`
	// Between are the tokens prefilled from one step that decoded to the next, that
	// one's own included.
	Between Spread `json:"prefill_between_decode_steps"`
	// Recomputed are rows of prefill for tokens that the request had computed
	// before, and RecomputedShare what they are of all rows.
	Preemptions     int64   `json:"preemptions"`
	Recomputed      int64   `json:"recomputed_tokens"`
	RecomputedShare float64 `json:"recomputed_share"`
}

// Spread describes a list of numbers.
type Spread struct {
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Most   float64 `json:"most"`
}

// weighted is a number and its weight.
type weighted struct{ value, weight float64 }

// spread describes numbers by their weights; nothing is all zeros.
func spread(list []weighted) (s Spread) {
	slices.SortFunc(list, func(a, b weighted) int { return cmp.Compare(a.value, b.value) })
	total := 0.0
	for _, w := range list {
		total += w.weight
		s.Mean += w.value * w.weight
		s.Most = w.value
	}
	if total == 0 {
		return Spread{}
	}
	s.Mean /= total
	s.Median, s.P99 = s.Most, s.Most
	sum, half, most := 0.0, false, false
	for _, w := range list {
		sum += w.weight
		if !half && sum >= total/2 {
			s.Median, half = w.value, true
		}
		if !most && sum >= total*0.99 {
			s.P99, most = w.value, true
		}
	}
	return s
}

// SpreadOf describes numbers of equal weight.
func SpreadOf(values []float64) Spread {
	list := make([]weighted, len(values))
	for i, v := range values {
		list[i] = weighted{v, 1}
	}
	return spread(list)
}

// Figures returns what the records so far tell.
func (l *Load) Figures() LoadFigures {
	steps, between := l.steps, l.between
	if l.started {
		steps = append(slices.Clip(steps), l.step)
		if l.step.decoding > 0 {
			between = append(slices.Clip(between), l.behind)
		}
	}
	f := LoadFigures{Requests: len(l.reached), Steps: len(steps), Emitted: l.emitted, PrefillTokens: l.prefill, Recomputed: l.again}
	for _, n := range l.preempts {
		f.Preemptions += int64(n)
	}
	decoding, preparing := make([]weighted, len(steps)), make([]weighted, len(steps))
	mixed, inDecode := 0.0, 0.0 // seconds of steps with prefill, and of requests
	for i, s := range steps {
		seconds := float64(s.ns) / 1e9
		decoding[i], preparing[i] = weighted{float64(s.decoding), seconds}, weighted{float64(s.preparing), seconds}
		f.Seconds += seconds
		inDecode += float64(s.decoding) * seconds
		if s.preparing > 0 {
			mixed += seconds
		}
	}
	gaps := make([]float64, len(between))
	for i, n := range between {
		gaps[i] = float64(n)
	}
	f.Decoding, f.Preparing, f.Between = spread(decoding), spread(preparing), SpreadOf(gaps)
	f.Rate, f.PerRequest, f.TimeShare = share(float64(f.Emitted), f.Seconds), share(float64(f.Emitted), inDecode), share(mixed, f.Seconds)
	f.RowShare, f.RecomputedShare = share(float64(l.prefill), float64(l.rows)), share(float64(l.again), float64(l.rows))
	return f
}

// share is a / b, and 0 for nothing of nothing.
func share(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
