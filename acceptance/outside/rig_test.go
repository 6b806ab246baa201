package outside_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/acceptance/outside/fakeserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// honest is a toy model whose drafter is right in most positions.
func honest() *fakeserver.Toy { return &fakeserver.Toy{K: 3, Hit: 0.7, Noise: 0.4} }

// serve makes a server of a toy.
func serve(d outside.Dialect, toy *fakeserver.Toy, f fakeserver.Fault) *fakeserver.Server {
	return &fakeserver.Server{
		Dialect: d, Script: toy, Fault: f, K: toy.K, Vocab: toy.Vocab(), StepTime: 10 * time.Millisecond, PrefillTime: 20 * time.Millisecond,
		Encode: func(text string) []int32 { return toy.Encode(text, true) },
	}
}

// plan asks for 16 answers of 160 tokens at two levels.
func plan(toy *fakeserver.Toy) outside.Plan {
	return outside.Plan{Prompts: toy.Prompts(16, 12), Requests: 16, Concurrency: []int{1, 4}, MaxTokens: 160, Tokenizer: toy}
}

// collect runs a plan against a server, in a time of its own.
func collect(t *testing.T, s *fakeserver.Server, p outside.Plan) (ev *outside.Evidence, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client, stop := fakeserver.Pipe(s.Handler())
		defer stop()
		c, e := outside.NewClient("http://server")
		require.NoError(t, e)
		c.HTTP = client
		ev, err = outside.Collect(t.Context(), c, p)
	})
	return ev, err
}

// check audits a server.
func check(t *testing.T, s *fakeserver.Server, toy *fakeserver.Toy, p outside.Plan, opt outside.Options) *outside.Result {
	t.Helper()
	ev, err := collect(t, s, p)
	require.NoError(t, err)
	res, err := outside.Audit(context.Background(), ev, toy, toy, opt)
	require.NoError(t, err)
	return res
}

// show prints reports for a failing test.
func show(res *outside.Result) string {
	var b strings.Builder
	for _, r := range res.Reports() {
		fmt.Fprintf(&b, "\n%s: %s (%s)\n", r.Audit, r.Verdict, r.Why)
		for _, f := range r.Findings {
			fmt.Fprintf(&b, "  [%s] x%d %s: %s\n", f.Check, f.Times, f.Request, f.Why)
		}
		for _, c := range r.Checks {
			fmt.Fprintf(&b, "    %s: %d of %d failed %s\n", c.Name, c.Failed, c.Checked, c.Why)
		}
		for _, n := range r.Notes {
			fmt.Fprintf(&b, "    note %s\n", n)
		}
		for _, c := range r.Tests {
			fmt.Fprintf(&b, "    test %s: n %d, statistic %v, p %.2g, detects %s\n", c.Name, c.Samples, c.Statistic, c.P, c.Detects)
		}
	}
	return b.String()
}

// caught requires that a report failed by a check, with words in its finding.
func caught(t *testing.T, res *outside.Result, r audit.Report, name string, words ...string) {
	t.Helper()
	require.Equal(t, audit.Fail, r.Verdict, show(res))
	for _, f := range r.Findings {
		if f.Check == name {
			for _, w := range words {
				require.Contains(t, f.Why, w)
			}
			return
		}
	}
	t.Fatalf("%s is not among the findings: %s", name, show(res))
}
