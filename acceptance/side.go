package acceptance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"exacta.dev/exacta/engine"
)

// Side is a point of a run as a comparison sees it: its sums, prompt by prompt.
type Side struct {
	Point string // with a round, or without one for all rounds together
	// Prompts are the sums by prompt id, Requests the ids of the requests
	// that they come from.
	Prompts    map[string]*PromptSums
	Requests   map[string]bool
	Lossy      bool
	Simulated  bool
	Simulation string
}

// PromptSums are the sums of one prompt.
type PromptSums struct {
	Counts
	// Tokens were emitted in steps without prefill, and took Ns: the
	// prompt's part of the steps that it was in, each step's time divided by
	// its sequences and rounded down to a nanosecond.
	Tokens Sum[engine.Emitted]
	Ns     int64
}

// NewSide gathers the records of a point.
func NewSide(point string) *Side {
	return &Side{Point: point, Prompts: map[string]*PromptSums{}, Requests: map[string]bool{}}
}

// Add takes one record of the run; those of other points are passed over.
func (s *Side) Add(r *engine.Record) {
	point, prompt := SplitRequest(r.Request)
	if !ParsePoint(point).Is(s.Point) {
		return
	}
	p := s.Prompts[prompt]
	if p == nil {
		p = &PromptSums{}
		s.Prompts[prompt] = p
	}
	if !s.Requests[r.Request] {
		s.Requests[r.Request] = true
	}
	s.Lossy = s.Lossy || r.Lossy
	if r.Simulated && !s.Simulated {
		s.Simulated, s.Simulation = true, r.Simulation
	}
	if r.Phase == engine.Decode {
		p.Verification(r)
	}
	if r.PrefillTokens == 0 {
		p.Tokens.Add(r.Emitted())
		p.Ns += r.TotalNs / int64(max(1, r.Batch))
	}
}

// Unfinished returns the side's requests that finished does not have, sorted: a
// run that was cut short recorded a part of them only.
func (s *Side) Unfinished(finished map[string]bool) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(s.Requests)) {
		if !finished[id] {
			out = append(out, id)
		}
	}
	return out
}

// pair returns the prompt ids of two sides in order, or says why they don't pair.
func pair(a, b *Side) ([]string, error) {
	for _, s := range []*Side{a, b} {
		if len(s.Prompts) == 0 {
			return nil, fmt.Errorf("%s has no records", s.Point)
		}
		var all Counts
		for _, p := range s.Prompts {
			all.Drafted += p.Drafted
			all.SimulatedDrafted += p.SimulatedDrafted
		}
		if all.Mixed() {
			return nil, mixed(s.Point, &all)
		}
	}
	if a.Simulated != b.Simulated {
		return nil, fmt.Errorf("acceptance of %s is %s, of %s %s; they are not compared", a.Point, kind(a), b.Point, kind(b))
	}
	var faults []string
	for _, c := range []struct{ has, lacks *Side }{{a, b}, {b, a}} {
		var missing []string
		for _, id := range slices.Sorted(maps.Keys(c.has.Prompts)) {
			if c.lacks.Prompts[id] == nil {
				missing = append(missing, id)
			}
		}
		if len(missing) > 0 {
			faults = append(faults, fmt.Sprintf("%s has no records of %s, which %s has", c.lacks.Point, Some(missing), c.has.Point))
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("prompts without a pair: %s", strings.Join(faults, "; "))
	}
	return slices.Sorted(maps.Keys(a.Prompts)), nil
}

func kind(s *Side) string {
	if s.Simulated {
		return "simulated"
	}
	return "real"
}

// Some names the first twenty of many, and says how many more there are.
func Some(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
