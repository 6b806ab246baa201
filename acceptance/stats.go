package acceptance

import "exacta.dev/exacta/engine"

// Stats accumulates the acceptance statistics of a stream of records. The zero
// value is ready. Its memory grows with the number of requests, not of records.
//
// Verifications are the decode records, those without drafts included: such a
// step has accept length 1. The last chunk of a prompt yields a token without
// being a verification; its token is in Emitted only.
type Stats struct {
	Counts
	Steps        int64               // records
	Emitted      Sum[engine.Emitted] // by all records
	Lossy        bool                // any record was of a lossy rule
	Simulated    bool                // any record was simulated
	Simulation   string              // what the first of them was asked for
	Preemptions  int64
	CachedTokens int64 // prompt tokens from the prefix cache

	times    stepTimes
	requests map[string]*requestSums
	passes   passes
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
	s.Lossy = s.Lossy || r.Lossy
	if r.Simulated && !s.Simulated {
		s.Simulated, s.Simulation = true, r.Simulation
	}
	s.Emitted.Add(r.Emitted())
	s.times.add(r)
	s.passes.add(r)
	req := s.request(r.Request)
	s.Preemptions += int64(r.Preemptions - req.preemptions)
	req.preemptions = r.Preemptions
	if r.SeqStep == 0 {
		s.CachedTokens += int64(r.Cached)
	}
	if r.Phase != engine.Decode {
		return
	}
	s.Verification(r)
	req.verifications++
	req.lengths.Add(r.Accepted.Length())
}

// Passes returns how often the prompts were run: the number of rounds and points
// that the records are of, and 1 where their names have no round. Rounds repeat
// the same requests to measure time; what they accept is the same again.
func (s *Stats) Passes() int { return max(1, len(s.passes.names)) }

// passes gathers the points, with their rounds, of a stream of records.
type passes struct {
	names map[string]bool
	last  string
}

func (p *passes) add(r *engine.Record) {
	name := ByPoint(r)
	if p.names != nil && name == p.last {
		return
	}
	p.last = name
	if p.names == nil {
		p.names = map[string]bool{}
	}
	if ParsePoint(name).Round < 0 {
		name = "" // not of an experiment, or its reference
	}
	p.names[name] = true
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
