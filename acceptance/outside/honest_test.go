package outside_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

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
				s.PerRequest, s.FirstFree = true, toy.NoStop
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

// Honest servers of many models, draft lengths and rates are never flagged.
func TestNoFalseAlarms(t *testing.T) {
	for i := range 72 {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		toy := &fakeserver.Toy{Seed: uint64(i + 1), K: 1 + r.IntN(6), Hit: r.Float64(), Noise: r.Float64(), Lookup: r.IntN(4) == 0, NoStop: r.IntN(3) == 0}
		if i%8 == 7 {
			toy.Hit = 1.2 // never wrong
		}
		s := serve(dialects[i%3], toy, "")
		s.PerRequest, s.NoSwitch = r.IntN(2) == 0, r.IntN(2) == 0
		p := plan(toy)
		p.Requests, p.MaxTokens = 10, 1+r.IntN(120)
		opt := outside.Options{Lookup: toy.Lookup}
		res := check(t, s, toy, p, opt)
		for _, rep := range res.Reports() {
			require.NotEqual(t, audit.Fail, rep.Verdict, "%s %+v: %s", s.Dialect, *toy, show(res))
		}
		require.Equal(t, audit.Pass, res.Tokens.Verdict, show(res))
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

// A server that takes a request's switch without heeding it has no plain decoding
// to compare with, and is not at fault.
func TestSwitchThatIsNotHeeded(t *testing.T) {
	toy := honest()
	s := serve(outside.LlamaCpp, toy, "")
	s.NoSwitch = true
	res := check(t, s, toy, plan(toy), outside.Options{})
	for _, r := range res.Reports() {
		require.Equal(t, audit.Pass, r.Verdict, show(res))
	}
	require.Len(t, res.Figures, 2, "no levels without speculation")
	require.Contains(t, show(res), "give a second one with --plain")
}

// A second server without speculation gives the plain steps.
func TestSecondServer(t *testing.T) {
	toy := honest()
	plain := &fakeserver.Toy{K: 0, NoStop: false}
	for _, c := range []struct {
		step time.Duration
		want audit.Outcome
	}{{9 * time.Millisecond, audit.Pass}, {14 * time.Millisecond, audit.Fail}} {
		spec, other := serve(outside.VLLM, toy, ""), serve(outside.VLLM, plain, "")
		other.StepTime = c.step
		p := plan(toy)
		var ev *outside.Evidence
		synctest.Test(t, func(t *testing.T) {
			h1, stop1 := fakeserver.Pipe(spec.Handler())
			defer stop1()
			h2, stop2 := fakeserver.Pipe(other.Handler())
			defer stop2()
			c1, err := outside.NewClient("http://server")
			require.NoError(t, err)
			c2, err := outside.NewClient("http://plain")
			require.NoError(t, err)
			c1.HTTP, c2.HTTP, p.Plain = h1, h2, c2
			ev, err = outside.Collect(t.Context(), c1, p)
			require.NoError(t, err)
		})
		res, err := outside.Audit(t.Context(), ev, toy, toy, outside.Options{})
		require.NoError(t, err)
		require.Equal(t, c.want, res.Work.Verdict, show(res))
		require.Equal(t, audit.Pass, res.Tokens.Verdict, show(res))
		if c.want == audit.Fail {
			caught(t, res, res.Work, "a round takes at least a plain step", "can't have done the plain step's work")
		}
	}
}
