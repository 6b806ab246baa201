package experiments

import (
	"strings"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/experiments/load"
)

// shares gathers where an engine's time went, step by step.
type shares struct {
	mine  func(request string) bool
	stats acceptance.Stats // of the requests that count
	last  int64            // step under way, -1 before the first
	// Of the step under way: a request that counts was in it; rows that drafts
	// had, of these kept, and of prompts; a request decoded.
	counts               bool
	draftRows, kept      int64
	prompt, rows         int64
	draft, verify, total int64
	decodes              bool
	// Of all steps that count, in nanoseconds save steps and tokens.
	steps, between, promptsBetween         int64
	all, inPrompt, drafting, target, waste float64
}

// add takes a record; those of one step follow one another.
func (s *shares) add(r *engine.Record) {
	if r.Step != s.last {
		s.end()
		s.last = r.Step
	}
	if s.mine(r.Request) {
		s.counts = true
		s.stats.Add(r)
	}
	s.prompt, s.rows = int64(r.PrefillTokens), int64(r.BatchRows)
	s.draft, s.verify, s.total = r.DraftNs, r.VerifyNs, r.TotalNs
	if r.Phase == engine.Decode {
		s.decodes = true
		s.draftRows += int64(r.TreeNodes)
		s.kept += int64(r.Accepted)
	}
}

// end closes the step under way.
func (s *shares) end() {
	if s.counts && s.rows > 0 {
		s.steps++
		rows := float64(s.rows)
		s.all += float64(s.total)
		s.drafting += float64(s.draft)
		s.target += float64(s.verify)
		s.inPrompt += float64(s.verify) * float64(s.prompt) / rows
		s.waste += float64(s.verify) * float64(s.draftRows-s.kept) / rows
		if s.decodes {
			s.between++
			s.promptsBetween += s.prompt
		}
	}
	s.counts, s.decodes, s.draftRows, s.kept, s.rows = false, false, 0, 0, 0
}

// engine works the shares out; seconds is how long the load lasted.
func (s *shares) engine(seconds float64) *load.Engine {
	if s.steps == 0 {
		return nil
	}
	sum := s.stats.Summary()
	e := &load.Engine{
		Steps: s.steps, Seconds: s.all / 1e9, PrefillShare: s.inPrompt / s.all, DraftShare: s.drafting / s.all, RejectedShare: s.waste / s.all,
		HostShare: (s.all - s.drafting - s.target) / s.all, AcceptLength: sum.AcceptLength, Simulated: sum.Simulated, Lossy: sum.Lossy,
	}
	if sum.Proposed > 0 {
		e.DraftAcceptRate = float64(sum.Accepted) / float64(sum.Proposed)
	}
	if s.between > 0 {
		e.PromptTokensBetween = float64(s.promptsBetween) / float64(s.between)
	}
	if seconds > 0 {
		e.IdleShare = max(0, 1-e.Seconds/seconds)
	}
	return e
}

// engineShares says where an engine's time went in the steps that had a measured
// request of a cell, by the records in dirs; nil where there are none of it.
func engineShares(dirs []string, rep *load.Repeat) (*load.Engine, error) {
	ids := map[string]bool{}
	for i := range rep.Rows {
		if r := &rep.Rows[i]; r.OK() && r.Phase == load.Measured {
			ids[r.ServerID] = true
		}
	}
	// The engine's name of a request is POINT/TAG-0, where the answer's is cmpl-TAG.
	s := shares{last: -1, mine: func(request string) bool {
		_, id := acceptance.SplitRequest(request)
		return ids["cmpl-"+strings.TrimSuffix(id, "-0")]
	}}
	for _, dir := range dirs {
		reader, err := acceptance.Open(dir)
		if err != nil {
			return nil, err
		}
		for rec, err := range reader.All() {
			if err != nil {
				return nil, err
			}
			s.add(rec)
		}
		s.end()
		s.last = -1
	}
	return s.engine(rep.Cell.Whole.Seconds), nil
}
