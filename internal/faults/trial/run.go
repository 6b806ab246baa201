package trial

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/verify"
)

// Wiring is what stands in an engine's places during a run; nil fields leave
// the engine as it is.
type Wiring struct {
	// Interposer is the engine's.
	Interposer engine.Interposer
	// Drafter wraps the drafter.
	Drafter func(engine.Drafter) engine.Drafter
	// Rule wraps the rule of a request, before the simulation, if there is
	// one, goes around it; Simulation replaces the simulated rule.
	Rule       func(engine.Verifier) engine.Verifier
	Simulation func(inner, honest engine.Verifier) engine.Verifier
	// Loop replaces operations of a loop on a device.
	Loop LoopOver
	// Engine may change the engine's configuration.
	Engine func(*engine.Config)
	// Submit may change what the engine is told to do.
	Submit func(*engine.Request)
	// Ranked is the wiring of each rank, where there are several; it takes
	// the place of all others but Summary.
	Ranked func(rank int) Wiring
	// Summary makes the claims of the records' statistics.
	Summary func(*acceptance.Stats, *audit.Claim)
}

// Result is a run as it was recorded and received.
type Result struct {
	Requests []*audit.Request
	Records  []*engine.Record
	Claim    audit.Claim
	// Err is why the run ended early, or "".
	Err string
	// Uncached says that the setup asks for no prefix cache.
	Uncached bool
}

// Case makes an audit's case of the result.
func (r *Result) Case(run string, lab audit.Lab) *audit.Case {
	c := &audit.Case{
		Run: run, Requests: map[string]*audit.Request{}, CutShort: r.Err != "", Lab: lab, Uncached: r.Uncached,
		Claims: map[string]audit.Claim{"trial": r.Claim},
		Records: func() iter.Seq2[*engine.Record, error] {
			return func(yield func(*engine.Record, error) bool) {
				for _, rec := range r.Records {
					if !yield(rec, nil) {
						return
					}
				}
			}
		},
	}
	for _, q := range r.Requests {
		c.Requests[q.ID] = q
	}
	return c
}

// Run makes a run of requests, which it does not change: the result has copies
// with what was received. known are the continuations that a drafter with known
// drafts proposes, by request. An error is one of the setup; what goes wrong in
// the run is in the result.
func (m *Machine) Run(s Setup, reqs []*audit.Request, known map[string][]int32, w Wiring) (*Result, error) {
	s = s.filled()
	p := &play{setup: s, known: known, res: &Result{Uncached: !s.PrefixCache}}
	for _, q := range reqs {
		c := *q
		p.res.Requests = append(p.res.Requests, &c)
	}
	var err error
	switch {
	case s.Ranks > 1:
		err = m.ranked(p, w)
	case s.Loop:
		err = m.loops(p, w)
	default:
		err = p.on(m, nil, w)
	}
	if err != nil {
		return nil, err
	}
	p.res.Claim = claim(&p.stats)
	if w.Summary != nil {
		w.Summary(&p.stats, &p.res.Claim)
	}
	return p.res, nil
}

// play is a run under way.
type play struct {
	setup Setup
	known map[string][]int32
	res   *Result
	stats acceptance.Stats
}

// Record implements engine.Recorder.
func (p *play) Record(rec *engine.Record) error {
	c := *rec
	p.res.Records = append(p.res.Records, &c)
	p.stats.Add(rec)
	return nil
}

// ends is the number of records after which a run that does not end is ended.
func (p *play) ends() int { return 100 * p.setup.Requests * p.setup.MaxNew }

// on makes the run on a machine, as the first of ranks or alone: others than the
// first leave no trace in the result.
func (p *play) on(m *Machine, group engine.Ranks, w Wiring) (err error) {
	e, err := m.engine(p.setup, p.known, w, p, group)
	if err != nil {
		return err
	}
	defer func() {
		if closed := e.Close(); group == nil {
			err = errors.Join(err, closed)
		}
	}()
	var seqs []*engine.Sequence
	for _, q := range p.res.Requests {
		seq, err := m.submit(e, p.setup, q, w)
		if err != nil {
			return err
		}
		seqs = append(seqs, seq)
	}
	steps := 0
	failed := e.Run(func() bool { steps++; return steps > p.ends() })
	if group != nil && group.Rank() != 0 {
		return nil
	}
	if failed != nil {
		p.res.Err = failed.Error()
	}
	for i, seq := range seqs {
		q := p.res.Requests[i]
		q.Received, q.Finish = slices.Clone(seq.Output()), seq.Finish()
		q.Ended = q.Finish != ""
		if seq.Err() != nil && p.res.Err == "" {
			p.res.Err = seq.Err().Error()
		}
	}
	return nil
}

func claim(s *acceptance.Stats) audit.Claim {
	sum := s.Summary()
	return audit.Claim{
		Tokens: int64(sum.Emitted), AcceptLength: sum.AcceptLength, AcceptanceByPosition: sum.AcceptanceByPosition, Simulated: sum.Simulated,
	}
}

// engine makes the engine of a run.
func (m *Machine) engine(s Setup, known map[string][]int32, w Wiring, rec engine.Recorder, group engine.Ranks) (*engine.Engine, error) {
	drafters := map[string]engine.Drafter{}
	if s.Drafter != "" {
		d, err := m.Drafter(s.Drafter, func(seq *engine.Sequence) []int32 { return known[seq.Request().ID] })
		if err != nil {
			return nil, err
		}
		if w.Drafter != nil {
			d = w.Drafter(d)
		}
		drafters[s.name()] = d
	}
	rule, err := verify.New(s.Rule)
	if err != nil {
		return nil, err
	}
	cfg := engine.Config{
		MaxTokens: Context, MaxSequences: s.Concurrency, MaxDraft: max(1, s.K), Vocab: m.Entry.Vocab(), Tokens: m.Tokens,
		Chunk: s.Chunk, BatchTokens: s.BatchTokens, PrefixCache: s.PrefixCache, Interposer: w.Interposer,
		Ranks: group, Drift: group != nil, Lengths: s.Length.New(), Loop: s.Loop,
	}
	if w.Engine != nil {
		w.Engine(&cfg)
	}
	if s.TightPages {
		cfg.MaxTokens = s.PromptLen + (s.Requests-1)*s.PromptStep + s.MaxNew
		cfg.Pages = (cfg.MaxTokens+cfg.MaxDraft+2+kernels.PageTokens-1)/kernels.PageTokens + 1
		cfg.ExpectedOutput = -1 // or nobody would be preempted
	}
	return engine.New(m.Model, cfg, drafters, rule, rec, engine.Listener{})
}

// submit gives a request to the engine.
func (m *Machine) submit(e *engine.Engine, s Setup, q *audit.Request, w Wiring) (*engine.Sequence, error) {
	rule, err := verify.New(q.Rule)
	if err != nil {
		return nil, err
	}
	if w.Rule != nil {
		rule = w.Rule(rule)
	}
	if q.Simulation != "" {
		if rule, err = simulate(q, rule, w); err != nil {
			return nil, err
		}
	}
	r := engine.Request{
		ID: q.ID, Prompt: q.Prompt, MaxNew: q.MaxNew, Params: q.Params, Drafter: s.name(), K: q.K, Rule: rule,
		Stop: q.Stop, IgnoreStop: q.IgnoreStop,
	}
	if w.Submit != nil {
		w.Submit(&r)
	}
	seq, err := e.Submit(r)
	if err != nil {
		return nil, fmt.Errorf("trial: %w", err)
	}
	return seq, nil
}

func simulate(q *audit.Request, rule engine.Verifier, w Wiring) (engine.Verifier, error) {
	spec, err := verify.ParseSimulation(q.Simulation)
	if err != nil {
		return nil, err
	}
	honest, err := verify.Simulate(rule, spec, q.K)
	if err != nil {
		return nil, err
	}
	if w.Simulation != nil {
		return w.Simulation(rule, honest), nil
	}
	return honest, nil
}
