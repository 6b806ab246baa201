package outside_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/acceptance/outside/fakeserver"
)

var dialects = []outside.Dialect{outside.VLLM, outside.SGLang, outside.LlamaCpp}

func TestHonestServersPass(t *testing.T) {
	for _, d := range dialects {
		for _, toy := range []*fakeserver.Toy{
			honest(), {K: 1, Hit: 0.8}, {K: 5, Hit: 0.6, Noise: 0.5}, {K: 4, Lookup: true}, {K: 3, Hit: 0.85, NoStop: true},
		} {
			t.Run(fmt.Sprintf("%s/%+v", d, *toy), func(t *testing.T) {
				s := serve(d, toy, "")
				s.PerRequest = true
				res := check(t, s, toy, plan(toy), outside.Options{Lookup: toy.Lookup})
				require.Equal(t, d, res.Server.Dialect)
				for _, r := range res.Reports() {
					require.Equal(t, audit.Pass, r.Verdict, show(res))
					require.NotEmpty(t, r.Blind)
				}
				require.Zero(t, res.Judged.Wrong)
				require.Greater(t, res.Judged.Judged, int64(1000))
			})
		}
	}
}

func TestFigures(t *testing.T) {
	toy := honest()
	res := check(t, serve(outside.VLLM, toy, ""), toy, plan(toy), outside.Options{})
	f := res.Figures[0]
	require.Equal(t, 3, f.K)
	require.Equal(t, 16, f.Requests)
	require.Len(t, f.ByPosition, 3)
	require.InDelta(t, *f.AcceptLength-1, f.ByPosition[0]+f.ByPosition[1]+f.ByPosition[2], 1e-9, "the rates by position add up to the accept length without the bonus")
	require.InDelta(t, f.ByPosition[1], f.Conditional[0]*f.Conditional[1], 1e-9, "a conditional rate is the ratio of two unconditional ones")
	total := 0.0
	for _, n := range f.Histogram {
		total += n
	}
	require.InDelta(t, *f.Steps, total, 1e-9)
	require.Contains(t, show(res), "differ by more than chance")
}

func TestBareServer(t *testing.T) {
	toy := honest()
	s := serve(outside.Unknown, toy, "")
	s.TextOnly, s.NoMetrics = true, true
	res := check(t, s, toy, plan(toy), outside.Options{})
	require.Equal(t, outside.Unknown, res.Server.Dialect)
	require.Equal(t, audit.Pass, res.Tokens.Verdict, show(res))
	require.Contains(t, fmt.Sprint(res.Tokens.Blind), "tokenised again")
	require.Equal(t, audit.NotCheckable, res.Counts.Verdict, show(res))
	require.Contains(t, res.Counts.Why, "no /metrics")
}

func TestPlainServerIsCompared(t *testing.T) {
	toy := honest()
	res := check(t, serve(outside.LlamaCpp, toy, ""), toy, plan(toy), outside.Options{})
	checked := map[string]int64{}
	for _, c := range res.Work.Checks {
		checked[c.Name] = c.Checked
	}
	require.NotZero(t, checked["a round takes at least a plain step"], "llama-server can switch speculation off by request: %s", show(res))
	require.NotZero(t, checked["step time does not depend on the accept length"])
	require.NotZero(t, checked["bursts are steps"])
}
