package experiments

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/verify"
)

// simulatedSession is the embedded model with a few short prompts.
func simulatedSession(t *testing.T, maxNew int) *session {
	t.Helper()
	cfg := Default()
	cfg.MaxNew, cfg.IgnoreEOS = maxNew, true
	cfg.Prompts = Prompts{Classes: []string{"code"}, Limit: 3, MaxTokens: 24}
	cfg.Strategies = []Strategy{{Drafter: "mtp", K: []int{3}}, {Drafter: "ngram", K: []int{3}, Config: map[string]any{"min_match": 1}}}
	s, err := open(cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return s
}

// records runs all prompts at a point, each request as change leaves it.
func (s *session) records(t *testing.T, p Point, change ...func(i int, r *engine.Request)) (records []*engine.Record, traces map[string]*acceptance.Trace) {
	t.Helper()
	var c acceptance.Collector
	e, err := s.engine(p, engine.RecorderFunc(func(r *engine.Record) error {
		kept := *r
		records = append(records, &kept)
		return c.Add(r)
	}))
	require.NoError(t, err)
	defer e.Close()
	seqs := make([]*engine.Sequence, len(s.prompts))
	for i, prompt := range s.prompts {
		r := s.request(p, i, prompt.ID)
		for _, f := range change {
			f(i, &r)
		}
		seqs[i], err = e.Submit(r)
		require.NoError(t, err)
	}
	require.NoError(t, e.Run(nil))
	for _, q := range seqs {
		require.NoError(t, q.Err())
	}
	return records, c.Traces
}

// With accept length 1 and real drafts the output, logits and all, is that of
// plain greedy decoding, alone or in a batch; the drafts were real, and the
// rule's own decisions are kept.
func TestSimulatedLengthOneIsPlain(t *testing.T) {
	s := simulatedSession(t, 24)
	_, plain := s.records(t, Point{Strategy: -1, Drafter: "none", Rule: "greedy", Concurrency: 1})
	for i, name := range []string{"mtp", "ngram"} {
		for _, concurrency := range []int{1, 3} {
			p := Point{Strategy: i, Drafter: name, K: 3, Rule: "greedy", Concurrency: concurrency, Simulation: "length=1"}
			records, traces := s.records(t, p)
			for id, trace := range traces {
				require.Equal(t, plain[id].Tokens, trace.Tokens, name)
				require.Equal(t, plain[id].Hashes, trace.Hashes, name)
			}
			var proposed, real int
			for _, r := range records {
				require.True(t, r.Simulated)
				require.Equal(t, "length=1", r.Simulation)
				require.Zero(t, r.Accepted)
				require.Zero(t, r.ForcedAccepted)
				proposed += int(r.KExecuted)
				real += int(r.RealAccepted)
			}
			require.Greater(t, proposed, 30, name)
			require.Greater(t, real, 10, name) // there was something to throw away
		}
	}
}

// Under a fractional length every record can be checked from itself, the rule
// runs as without simulation, sequences draw apart, and a second run draws the
// same.
func TestSimulatedRecords(t *testing.T) {
	s := simulatedSession(t, 60)
	spec := verify.Simulation{Length: 2.6}
	p := Point{Strategy: 0, Drafter: "mtp", K: 3, Rule: "greedy", Concurrency: 3}
	honest, _ := s.records(t, p)
	p.Simulation = spec.String()
	records, traces := s.records(t, p)
	draws := map[string][]engine.Accepted{}
	decodes := 0
	for _, r := range records {
		require.True(t, r.Simulated)
		require.Equal(t, r.Accepted, r.ForcedAccepted)
		if r.Phase == engine.Prefill {
			continue
		}
		decodes++
		i := slices.IndexFunc(s.prompts, func(q Prompt) bool { return q.ID == r.Request })
		want, bounded := verify.SimulatedAccepted(spec, s.cfg.Sampling.Params(i), int(r.Position), int(r.KExecuted))
		require.Equal(t, want, r.ForcedAccepted)
		require.False(t, bounded && r.KExecuted >= 3)
		if r.KExecuted == 3 {
			require.Contains(t, []engine.Accepted{1, 2}, r.ForcedAccepted)
			draws[r.Request] = append(draws[r.Request], r.ForcedAccepted)
		}
	}
	require.Greater(t, decodes, 40)
	require.Len(t, draws, 3)
	require.NotEqual(t, draws[s.prompts[0].ID], draws[s.prompts[1].ID])
	require.NotEqual(t, draws[s.prompts[1].ID], draws[s.prompts[2].ID])

	// The first decode step sees what it sees without simulation.
	first := func(records []*engine.Record) *engine.Record {
		return records[slices.IndexFunc(records, func(r *engine.Record) bool { return r.Phase == engine.Decode })]
	}
	a, b := first(honest), first(records)
	require.Equal(t, a.Request, b.Request)
	require.Equal(t, a.Accepted, b.RealAccepted)
	require.Equal(t, a.NextID, b.RealNextID)
	require.Equal(t, a.ProposedIDs, b.ProposedIDs)
	require.Equal(t, a.Hashes, b.Hashes)
	require.Equal(t, a.Rows, b.Rows)

	_, again := s.records(t, p)
	for id := range traces {
		require.Equal(t, traces[id].Tokens, again[id].Tokens)
	}
}

// A run with a simulated point says so everywhere, and calls nothing exact.
func TestSimulatedRun(t *testing.T) {
	cfg := Default()
	cfg.MaxNew, cfg.Repeats = 10, 1
	cfg.Prompts = Prompts{Classes: []string{"code"}, Limit: 2, MaxTokens: 16}
	length := 2.5
	cfg.Strategies = []Strategy{{Drafter: "mtp", K: []int{2, 3}, Simulate: &Simulate{Length: &length}}, {Drafter: "ngram", K: []int{2}}}
	dir := filepath.Join(t.TempDir(), "run")
	sum, err := Run(t.Context(), cfg, RunOptions{Dir: dir})
	require.NoError(t, err)
	require.True(t, sum.Simulated)
	require.True(t, sum.AllExact())
	for _, r := range sum.Runs {
		require.Nil(t, r.Exact)
		require.Equal(t, r.Drafter == "mtp", r.Simulated)
		require.Equal(t, map[bool]string{true: "length=2.5"}[r.Simulated], r.Simulation)
		require.Equal(t, r.Simulated, r.RealAcceptLength != nil)
	}
	var out strings.Builder
	require.NoError(t, sum.Table(&out))
	require.NotRegexp(t, `(?i)\b(exact|lossless)\b`, out.String())
	require.Contains(t, out.String(), "mtp (simulated)")
	require.Contains(t, out.String(), "real accept length\n")
	require.Contains(t, out.String(), "\nsimulated: ")

	// Its config.yaml is a configuration of the same run.
	back, err := LoadConfig(filepath.Join(dir, "config.yaml"))
	require.NoError(t, err)
	require.Equal(t, cfg.points(), back.points())
}

// A point that is not simulated, and is false, is told in a simulated run too.
func TestSimulatedRunTellsFalse(t *testing.T) {
	no := false
	sum := Summary{Simulated: true, Runs: []PointResult{
		{Point: Point{Drafter: "mtp", K: 2, Rule: "greedy", Concurrency: 1}, Exact: &no, FirstDiff: "request x: output 3"},
	}}
	require.False(t, sum.AllExact())
	var out strings.Builder
	require.NoError(t, sum.Table(&out))
	require.Contains(t, out.String(), "0-mtp.k2.greedy.c1: request x: output 3\n")
	require.NotRegexp(t, `(?i)\b(exact|lossless)\b`, out.String())
}
