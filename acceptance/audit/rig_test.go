package audit_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/ref"
	"exacta.dev/exacta/verify"
)

const context_ = 512

// world is the embedded model, loaded once for all tests, with its prompts.
type world struct {
	m       *model.Model
	entry   *registry.Entry
	prompts [][]int32
	lab     *experiments.Lab
}

var loaded = sync.OnceValues(func() (*world, error) {
	entry, err := registry.Open(registry.Embedded)
	if err != nil {
		return nil, err
	}
	be, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	m, err := model.Load(be, entry.Source, model.Options{MaxTokens: context_, MTP: true})
	if err != nil {
		return nil, err
	}
	w := &world{m: m, entry: entry}
	texts, err := entry.Prompts()
	if err != nil {
		return nil, err
	}
	for _, t := range texts {
		ids := entry.Tokenizer.Encode(t.Text, true)
		w.prompts = append(w.prompts, ids[:min(len(ids), 48)])
	}
	w.lab = experiments.NewLab(experiments.LabConfig{Model: m, Vocab: entry.Vocab(), Context: context_, Drafter: w.drafter, Oracle: w.oracle})
	return w, nil
})

func theWorld(t testing.TB) *world {
	t.Helper()
	w, err := loaded()
	require.NoError(t, err)
	return w
}

func (w *world) drafter(r *audit.Request) (engine.Drafter, error) {
	s, err := draft.New(r.Strategy)
	if err != nil {
		return nil, err
	}
	return s.Provision(draft.Env{Backend: w.m.Backend(), Model: w.m, Vocab: w.entry.Vocab()})
}

// oracle opens the model in float64.
func (w *world) oracle() (*model.Model, func() error, error) {
	be := ref.New()
	m, err := model.Load(be, w.entry.Source, model.Options{MaxTokens: context_})
	return m, be.Close, err
}

// setup says what a test runs.
type setup struct {
	drafter  string
	k        int
	rule     string
	requests int
	maxNew   int
	params   sample.Params
	engine   engine.Config
	simulate string
	endless  bool // stop tokens do not end the output
}

// running is a case with its records, which a test may change.
type running struct {
	*audit.Case
	records []*engine.Record
}

// run decodes and returns the case.
func (w *world) run(t testing.TB, s setup) *running {
	t.Helper()
	out := &running{Case: &audit.Case{Run: t.Name(), Requests: map[string]*audit.Request{}, Lab: w.lab}}
	rule, err := verify.New(s.rule)
	require.NoError(t, err)
	if s.simulate != "" {
		spec, err := verify.ParseSimulation(s.simulate)
		require.NoError(t, err)
		rule, err = verify.Simulate(rule, spec, s.k)
		require.NoError(t, err)
	}
	drafters := map[string]engine.Drafter{}
	name := ""
	if s.drafter != "none" {
		d, err := w.drafter(&audit.Request{Strategy: s.drafter})
		require.NoError(t, err)
		drafters[s.drafter], name = d, s.drafter
	}
	s.engine.MaxTokens, s.engine.Vocab = context_, w.entry.Vocab()
	s.engine.MaxDraft = max(1, s.k)
	if s.engine.MaxSequences == 0 {
		s.engine.MaxSequences = 4
	}
	e, err := engine.New(w.m, s.engine, drafters, rule, engine.RecorderFunc(func(r *engine.Record) error {
		out.records = append(out.records, r)
		return nil
	}), engine.Listener{Finished: func(q *engine.Sequence) {
		r := out.Requests[q.Request().ID]
		r.Received, r.Finish, r.Ended = slices.Clone(q.Output()), q.Finish(), true
	}})
	require.NoError(t, err)
	for i := range s.requests {
		p := s.params
		p.Seed += uint64(i) * 7919
		q := engine.Request{
			ID: fmt.Sprintf("q%d", i), Prompt: w.prompts[i%len(w.prompts)], MaxNew: s.maxNew, Params: p,
			Drafter: name, K: s.k, Stop: w.entry.Source.Config().EOS, IgnoreStop: s.endless,
		}
		out.Requests[q.ID] = &audit.Request{
			ID: q.ID, Prompt: q.Prompt, MaxNew: q.MaxNew, Params: p, Strategy: s.drafter, Drafter: s.drafter, K: s.k, Full: true, Rule: s.rule, Stop: q.Stop,
			Simulation: s.simulate, IgnoreStop: s.endless,
		}
		_, err := e.Submit(q)
		require.NoError(t, err)
	}
	require.NoError(t, e.Run(nil))
	require.NoError(t, e.Close())
	out.stream()
	return out
}

// stream makes the case stream the records as they are then.
func (c *running) stream() {
	c.Records = func() iter.Seq2[*engine.Record, error] {
		return func(yield func(*engine.Record, error) bool) {
			for _, r := range c.records {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// audits are the three audits by name.
var audits = map[string]func(context.Context, *audit.Case, func(string)) (*audit.Report, error){
	"tokens": audit.Tokens, "counts": audit.Counts, "work": audit.Work,
}

// passes requires that all three pass.
func (c *running) passes(t testing.TB) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(audits)) {
		r, err := audits[name](t.Context(), c.Case, nil)
		require.NoError(t, err)
		require.Equal(t, audit.Pass, r.Verdict, "%s: %s\n%+v", name, r.Why, r.Findings)
	}
}
