package acceptance

import "exacta.dev/exacta/engine"

// Stats accumulates the acceptance statistics of a stream of records. The zero
// value is ready.
//
// Verifications are the decode records, those without drafts included: such a
// step has accept length 1. The last chunk of a prompt yields a token without
// being a verification; its token is in Emitted only.
type Stats struct {
	Steps         int64 // records
	Verifications int64
	Drafted       int64 // verifications of at least one draft
	Proposed      Sum[engine.Proposed]
	Accepted      Sum[engine.Accepted]
	RealAccepted  Sum[engine.Accepted]     // by the real rule; differs when simulated
	Emitted       Sum[engine.Emitted]      // by all records
	Verified      Sum[engine.Emitted]      // by verifications: at most AcceptLengths, less what stop and length cut
	AcceptLengths Sum[engine.AcceptLength] // over verifications
	Simulated     bool                     // any record was simulated
	Preemptions   int64
	CachedTokens  int64 // prompt tokens from the prefix cache

	// Histogram[i] counts verifications that accepted i drafts.
	Histogram []int64
	// Reached[i] counts verifications that executed more than i drafts;
	// Tried[i] those of them that accepted drafts 0..i-1; Prefix[i] those
	// that accepted drafts 0..i.
	Reached, Tried, Prefix []int64

	times    stepTimes
	requests map[string]*requestSums
}

// requestSums is what is kept of each request.
type requestSums struct {
	preemptions   int32
	verifications int64
	lengths       Sum[engine.AcceptLength]
}

// Add takes one record; records come in the order of their steps.
func (s *Stats) Add(r *engine.Record) {
	s.Steps++
	s.Simulated = s.Simulated || r.Simulated
	s.Emitted.Add(r.Emitted())
	s.times.add(r)
	req := s.request(r.Request)
	s.Preemptions += int64(r.Preemptions - req.preemptions)
	req.preemptions = r.Preemptions
	if r.SeqStep == 0 {
		s.CachedTokens += int64(r.Cached)
	}
	if r.Phase != engine.Decode {
		return
	}
	s.Verifications++
	req.verifications++
	req.lengths.Add(r.Accepted.Length())
	s.Proposed.Add(engine.Proposed(r.KExecuted))
	s.Accepted.Add(r.Accepted)
	s.RealAccepted.Add(r.RealAccepted)
	s.AcceptLengths.Add(r.Accepted.Length())
	s.Verified.Add(r.Emitted())
	s.Histogram = count(s.Histogram, int(r.Accepted))
	if r.KExecuted > 0 {
		s.Drafted++
	}
	for i := range int(r.KExecuted) {
		s.Reached = count(s.Reached, i)
		if int(r.Accepted) >= i {
			s.Tried = count(s.Tried, i)
		}
		if int(r.Accepted) > i {
			s.Prefix = count(s.Prefix, i)
		}
	}
}

func (s *Stats) request(id string) *requestSums {
	if s.requests == nil {
		s.requests = map[string]*requestSums{}
	}
	q := s.requests[id]
	if q == nil {
		q = &requestSums{}
		s.requests[id] = q
	}
	return q
}

func count(h []int64, i int) []int64 {
	for len(h) <= i {
		h = append(h, 0)
	}
	h[i]++
	return h
}

func at(h []int64, i int) int64 {
	if i < len(h) {
		return h[i]
	}
	return 0
}
