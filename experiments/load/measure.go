package load

import (
	"slices"
	"time"
)

// meter gathers the figures of an interval, or of the intervals of several repeats.
type meter struct {
	f                                                 Figures
	ttft, sched, ttst, tpot, incl, icl, itl, e2e, req values
	inFlight, decoding                                float64
	output, decoded                                   float64
	cached, cachedOf                                  int64
	good                                              int
	goodTokens                                        int64
	slo                                               *SLO
}

// Span is an interval of a load with the rows of the load.
type Span struct {
	Rows []Row
	// From and To are nanoseconds since the load began.
	From, To int64
}

// Measure works out the figures of intervals: of one, or of several repeats
// together. Rows of warm-up count nowhere; slo may be nil.
func Measure(slo *SLO, spans ...Span) Figures {
	m := meter{slo: slo}
	for i, s := range spans {
		if i == 0 {
			m.f.From = time.Duration(s.From).Seconds()
		}
		m.f.Seconds += time.Duration(s.To - s.From).Seconds()
		m.sessions(&s)
		for j := range s.Rows {
			if r := &s.Rows[j]; r.Phase == Measured {
				m.row(r, s.From, s.To)
			}
		}
	}
	return m.figures()
}

// Whole is the interval of all measured requests, from the first sending to the
// last content; the rows may be of one load only.
func Whole(rows []Row) Span {
	s := Span{Rows: rows, From: -1}
	for i := range rows {
		r := &rows[i]
		if r.Phase != Measured || !r.OK() {
			continue
		}
		if s.From < 0 || r.Sent < s.From {
			s.From = r.Sent
		}
		s.To = max(s.To, r.Last)
	}
	s.From = max(0, s.From)
	return s
}

// sessions counts those that began and ended in the interval.
func (m *meter) sessions(s *Span) {
	type life struct{ first, last int64 }
	lives := map[string]*life{}
	for i := range s.Rows {
		r := &s.Rows[i]
		if r.Phase != Measured || r.Sent < 0 {
			continue
		}
		l := lives[r.Session]
		if l == nil {
			l = &life{first: r.Sent}
			lives[r.Session] = l
		}
		l.first, l.last = min(l.first, r.Sent), max(l.last, r.End)
	}
	in := func(at int64) bool { return at >= s.From && at <= s.To }
	for _, l := range lives {
		if in(l.first) {
			m.f.SessionsStarted++
		}
		if in(l.last) {
			m.f.SessionsFinished++
		}
	}
}

// overlap is the part of [a, b] that lies in [from, to].
func overlap(a, b, from, to int64) float64 { return float64(max(0, min(b, to)-max(a, from))) }

// row adds a request.
func (m *meter) row(r *Row, from, to int64) {
	in := func(at int64) bool { return at >= from && at <= to }
	if r.Sent >= 0 && in(r.Sent) {
		m.f.Admitted++
	}
	if !r.OK() {
		if in(r.End) {
			m.f.Failed++
		}
		return
	}
	m.inFlight += overlap(r.Sent, r.Last, from, to)
	decoding := overlap(r.First, r.Last, from, to)
	m.decoding += decoding
	m.arrivals(r, in)
	if in(r.First) {
		m.f.PromptTokens += int64(r.Prompt)
		if r.Cached >= 0 {
			m.cached, m.cachedOf = m.cached+int64(r.Cached), m.cachedOf+int64(r.Prompt)
		}
	}
	if in(r.Last) {
		m.f.Finished++
	}
	if in(r.Sent) && in(r.Last) {
		m.latencies(r)
	}
}

// arrivals counts the tokens that came in the interval. Where the server doesn't
// say how many a chunk has, they are spread evenly over the chunks.
func (m *meter) arrivals(r *Row, in func(int64) bool) {
	at := r.Arrivals()
	for j, t := range at {
		if !in(t) {
			continue
		}
		n := float64(r.Output) / float64(len(at))
		if r.Tokens != nil {
			n = float64(r.Tokens[j])
		}
		m.output += n
		if j > 0 {
			m.decoded += n
		}
	}
}

// latencies adds the times of a request that lies in the interval as a whole.
func (m *meter) latencies(r *Row) {
	n := float64(r.Output)
	ttft, e2e := ms(r.First-r.Sent), ms(r.Last-r.Sent)
	m.ttft.add(ttft, 1)
	m.sched.add(ms(r.First-r.Sched), 1)
	m.e2e.add(e2e, 1)
	m.incl.add(e2e/n, 1)
	if e2e > 0 {
		m.req.add(n/e2e*1000, 1)
	}
	tpot, several := r.tpot()
	if several {
		m.tpot.add(tpot, 1)
	}
	if len(r.Gaps) > 0 {
		m.ttst.add(ms(r.Gaps[0]), 1)
	}
	for j, g := range r.Gaps {
		m.icl.add(ms(g), 1)
		if r.Tokens != nil && r.Tokens[j+1] > 0 {
			m.itl.add(ms(g)/float64(r.Tokens[j+1]), r.Tokens[j+1])
		}
	}
	if l := m.slo; l != nil && within(ttft, l.TTFT) && within(tpot, l.TPOT) && within(e2e, l.E2E) {
		m.good++
		m.goodTokens += int64(r.Output)
	}
}

func within(v, limit float64) bool { return limit == 0 || v <= limit }

// figures works out what was gathered.
func (m *meter) figures() Figures {
	f := m.f
	f.OutputTokens = int64(m.output + 0.5)
	f.TTFT, f.TTFTSched, f.TTST, f.TPOT, f.TPOTIncl = m.ttft.dist(), m.sched.dist(), m.ttst.dist(), m.tpot.dist(), m.incl.dist()
	f.ICL, f.ITL, f.E2E, f.ReqTokS = m.icl.dist(), m.itl.dist(), m.e2e.dist(), m.req.dist()
	f.Interactivity = [2]float64{inverse(f.TPOT.P50), inverse(f.TPOT.P90)}
	f.E2EInteractivity = [2]float64{inverse(f.TPOTIncl.P50), inverse(f.TPOTIncl.P90)}
	f.DecodeTokens = m.decoded
	if m.decoding > 0 {
		f.DecodeTokS = m.decoded / time.Duration(m.decoding).Seconds()
	}
	f.CacheHit = -1
	if m.cachedOf > 0 {
		f.CacheHit = float64(m.cached) / float64(m.cachedOf)
	}
	if f.Seconds > 0 {
		f.OutTokS, f.InTokS = m.output/f.Seconds, float64(f.PromptTokens)/f.Seconds
		f.TotalTokS, f.ReqS = f.OutTokS+f.InTokS, float64(f.Finished)/f.Seconds
		f.InFlight, f.Decoding = time.Duration(m.inFlight).Seconds()/f.Seconds, time.Duration(m.decoding).Seconds()/f.Seconds
	}
	if m.slo != nil {
		f.Goodput = &Goodput{SLO: *m.slo}
		if ended := m.ttft.n + int64(f.Failed); ended > 0 && f.Seconds > 0 {
			f.Goodput.ReqS, f.Goodput.TokS = float64(m.good)/f.Seconds, float64(m.goodTokens)/f.Seconds
			f.Goodput.Share = float64(m.good) / float64(ended)
		}
	}
	return f
}

// inverse turns milliseconds a token into tokens a second; 0 stays 0.
func inverse(ms float64) float64 {
	if ms == 0 {
		return 0
	}
	return 1000 / ms
}

// measured are the rows that count and were answered, by when they were sent.
func measured(rows []Row) []*Row {
	var out []*Row
	for i := range rows {
		if r := &rows[i]; r.Phase == Measured && r.OK() {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b *Row) int { return int(a.Sent - b.Sent) })
	return out
}
