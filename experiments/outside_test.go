package experiments

import (
	"context"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/acceptance/outside/fakeserver"
	"exacta.dev/exacta/engine"
)

// recordedScript decodes the session's prompts with MTP, perhaps simulated, and
// plainly, for a fake server to play.
func recordedScript(t *testing.T, s *session, simulation string) *fakeserver.Recorded {
	t.Helper()
	script := fakeserver.NewRecorded(func(ids []int32) string { return s.entry.Tokenizer.Decode(ids, true) })
	prompts := map[string][]int32{}
	for _, p := range s.prompts {
		prompts[p.ID] = p.IDs
	}
	for _, p := range []Point{
		{Strategy: 0, Drafter: "mtp", K: 3, Rule: "greedy", Concurrency: 4, Simulation: simulation},
		{Strategy: -1, Drafter: "none", Rule: "greedy", Concurrency: 4},
	} {
		e, err := s.engine(p, script.Recorder(prompts, s.entry.Source.Config().EOS, p.Drafter == "none"))
		require.NoError(t, err)
		var seqs []*engine.Sequence
		for i := range s.prompts {
			q, err := e.Submit(s.request(p, i, s.prompts[i].ID))
			require.NoError(t, err)
			seqs = append(seqs, q)
		}
		require.NoError(t, e.Run(nil))
		for _, q := range seqs {
			require.NoError(t, q.Err())
		}
		require.NoError(t, e.Close())
	}
	return script
}

func outsideSession(t *testing.T, promptTokens int) *session {
	t.Helper()
	cfg := Default()
	cfg.MaxNew = 96
	cfg.Prompts = Prompts{Limit: 8, MaxTokens: promptTokens}
	cfg.Strategies = []Strategy{{Drafter: "mtp", K: []int{3}}}
	s, err := open(cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return s
}

// auditRecorded collects from a fake server in a time of its own and judges by
// the session's model.
func auditRecorded(t *testing.T, s *session, srv *fakeserver.Server) *outside.Result {
	t.Helper()
	plan := outside.Plan{Requests: len(s.prompts), Concurrency: []int{1, 4}, MaxTokens: s.cfg.MaxNew, Tokenizer: s.entry.Tokenizer}
	for _, p := range s.prompts {
		plan.Prompts = append(plan.Prompts, p.IDs)
	}
	srv.K, srv.Vocab, srv.StepTime, srv.PrefillTime = 3, s.entry.Source.Config().VocabSize, 8*time.Millisecond, 20*time.Millisecond
	var ev *outside.Evidence
	synctest.Test(t, func(t *testing.T) {
		client, stop := fakeserver.Pipe(srv.Handler())
		defer stop()
		c, err := outside.NewClient("http://server")
		require.NoError(t, err)
		c.HTTP = client
		ev, err = outside.Collect(t.Context(), c, plan)
		require.NoError(t, err)
	})
	j, err := NewJudge(s.m, s.entry.Source.Config().EOS, s.cfg.Context)
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	res, err := outside.Audit(context.Background(), ev, j, s.entry.Tokenizer, outside.Options{})
	require.NoError(t, err)
	return res
}

// What the real engine decoded passes in each dialect, every token the judge's
// first choice; what a fault made of it doesn't.
func TestOutsideAuditOfRealDecoding(t *testing.T) {
	s := outsideSession(t, 48)
	script := recordedScript(t, s, "")
	for _, d := range []outside.Dialect{outside.VLLM, outside.SGLang, outside.LlamaCpp} {
		res := auditRecorded(t, s, &fakeserver.Server{Dialect: d, Script: script})
		for _, r := range res.Reports() {
			require.Equal(t, audit.Pass, r.Verdict, "%s: %s %+v", d, r.Why, r.Findings)
		}
		require.Equal(t, res.Judged.Judged, res.Judged.First, "the engine's tokens are its own first choices")
		require.Greater(t, *res.Figures[0].AcceptLength, 1.5)

		wrong := auditRecorded(t, s, &fakeserver.Server{Dialect: d, Script: script, Fault: fakeserver.WrongToken})
		require.Equal(t, audit.Fail, wrong.Tokens.Verdict)
		bonus := auditRecorded(t, s, &fakeserver.Server{Dialect: d, Script: script, Fault: fakeserver.BonusAccepted})
		require.Equal(t, audit.Fail, bonus.Counts.Verdict)
	}
}

// A simulated run of the real engine shows in its tokens.
func TestOutsideAuditSeesSimulation(t *testing.T) {
	s := outsideSession(t, 48)
	res := auditRecorded(t, s, &fakeserver.Server{Dialect: outside.VLLM, Script: recordedScript(t, s, "length=2.6")})
	require.Equal(t, audit.Fail, res.Tokens.Verdict)
	checks := map[string]bool{}
	for _, f := range append(res.Tokens.Findings, res.Counts.Findings...) {
		checks[f.Check] = true
	}
	require.True(t, checks["first choice or near tie"])
	require.True(t, checks["accept lengths vary"], "%+v", res.Counts)
}

func TestAuditEndpoint(t *testing.T) {
	s := outsideSession(t, longestPrompt)
	script := recordedScript(t, s, "")
	srv := httptest.NewServer((&fakeserver.Server{Dialect: outside.VLLM, Script: script, K: 3, StepTime: time.Millisecond}).Handler())
	defer srv.Close()
	o := EndpointOptions{Endpoint: srv.URL, Model: "embedded", Backend: "cpu", Requests: 4, MaxTokens: s.cfg.MaxNew, Concurrency: []int{2}}
	res, err := AuditEndpoint(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, audit.Pass, res.Tokens.Verdict, "%+v", res.Tokens)
	require.Equal(t, audit.Pass, res.Counts.Verdict, "%+v", res.Counts)

	for want, change := range map[string]func(o *EndpointOptions){
		"is not an address":         func(o *EndpointOptions) { o.Endpoint = "here" },
		"no such file or directory": func(o *EndpointOptions) { o.Model = "nowhere" },
		"--max-tokens 1000000":      func(o *EndpointOptions) { o.MaxTokens = 1000000 },
		"prompts.file":              func(o *EndpointOptions) { o.Prompts = "none.jsonl" },
		"is not an address like":    func(o *EndpointOptions) { o.Plain = "ftp://x" },
		"status 404":                func(o *EndpointOptions) { o.Endpoint += "/elsewhere" },
		"at least 1 each":           func(o *EndpointOptions) { o.Concurrency = nil },
	} {
		bad := o
		change(&bad)
		_, err := AuditEndpoint(t.Context(), bad)
		require.ErrorContains(t, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = AuditEndpoint(ctx, o)
	require.ErrorIs(t, err, ErrInterrupted)
}

// A real server, where there is one: EXACTA_ENDPOINT is its address,
// EXACTA_ENDPOINT_MODEL the folder of the same weights.
func TestRealServer(t *testing.T) {
	address, folder := os.Getenv("EXACTA_ENDPOINT"), os.Getenv("EXACTA_ENDPOINT_MODEL")
	if address == "" || folder == "" {
		t.Skip("EXACTA_ENDPOINT and EXACTA_ENDPOINT_MODEL name no server and model")
	}
	res, err := AuditEndpoint(t.Context(), EndpointOptions{
		Endpoint: address, Plain: os.Getenv("EXACTA_ENDPOINT_PLAIN"), Model: folder, Backend: "cpu",
		Prompts: os.Getenv("EXACTA_ENDPOINT_PROMPTS"), Requests: 8, MaxTokens: 128, Concurrency: []int{1, 4},
	})
	require.NoError(t, err)
	require.Equal(t, audit.Pass, res.Tokens.Verdict, "%+v", res.Tokens)
	for _, r := range res.Reports() {
		require.NotEqual(t, audit.Fail, r.Verdict, "%+v", r)
		t.Log(r.Audit, r.Verdict, r.Why, r.Notes)
	}
}
