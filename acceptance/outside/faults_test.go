package outside_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/acceptance/outside/fakeserver"
)

// everywhere runs a fault on every dialect.
func everywhere(t *testing.T, toy *fakeserver.Toy, f fakeserver.Fault, opt outside.Options, look func(t *testing.T, d outside.Dialect, res *outside.Result)) {
	for _, d := range dialects {
		t.Run(string(d), func(t *testing.T) {
			s := serve(d, toy, f)
			s.PerRequest = d == outside.VLLM
			p := plan(toy)
			if f == fakeserver.AfterStop { // enough to see texts end
				p.Prompts, p.Requests, p.Concurrency = toy.Prompts(64, 12), 64, []int{4}
			}
			look(t, d, check(t, s, toy, p, opt))
		})
	}
}

func TestWrongToken(t *testing.T) {
	everywhere(t, honest(), fakeserver.WrongToken, outside.Options{}, func(t *testing.T, _ outside.Dialect, res *outside.Result) {
		caught(t, res, res.Tokens, "first choice or near tie", "below the first choice", "units of BF16 rounding")
		require.Equal(t, audit.Pass, res.Counts.Verdict, show(res))
	})
}

func TestThresholdAcceptance(t *testing.T) {
	toy := &fakeserver.Toy{K: 3, Hit: 0.5, Threshold: 30}
	everywhere(t, toy, "", outside.Options{}, func(t *testing.T, _ outside.Dialect, res *outside.Result) {
		caught(t, res, res.Tokens, "first choice or near tie")
		require.Equal(t, audit.Pass, res.Counts.Verdict, show(res))
	})
}

func TestNearTieThresholdAcceptance(t *testing.T) {
	// A threshold that stays within near ties shows in how often they fall
	// the other way.
	toy := &fakeserver.Toy{K: 3, Hit: 0.02, Threshold: 4}
	p := plan(toy)
	p.Requests = 200
	p.Prompts = toy.Prompts(200, 12)
	p.Concurrency = []int{4}
	s := serve(outside.VLLM, toy, "")
	res := check(t, s, toy, p, outside.Options{})
	caught(t, res, res.Tokens, "near ties fall either way", "only close")
}

func TestAfterStop(t *testing.T) {
	everywhere(t, honest(), fakeserver.AfterStop, outside.Options{}, func(t *testing.T, _ outside.Dialect, res *outside.Result) {
		caught(t, res, res.Tokens, "nothing after a stop")
	})
}

func TestInflatedCounters(t *testing.T) {
	everywhere(t, &fakeserver.Toy{K: 3, Hit: 0.8, NoStop: true}, fakeserver.Inflated, outside.Options{}, func(t *testing.T, _ outside.Dialect, res *outside.Result) {
		caught(t, res, res.Counts, "tokens = requests + steps + accepted", "as accepted, but")
		require.Equal(t, audit.Pass, res.Tokens.Verdict, show(res))
	})
}

func TestStreamAgainstCounters(t *testing.T) {
	everywhere(t, &fakeserver.Toy{K: 3, Hit: 0.8, NoStop: true}, fakeserver.FewerSteps, outside.Options{}, func(t *testing.T, d outside.Dialect, res *outside.Result) {
		if d == outside.LlamaCpp {
			caught(t, res, res.Work, "bursts are steps", "tokens at a time")
			return
		}
		caught(t, res, res.Counts, "pieces of the stream")
	})
}

func TestDraftsCountedByCap(t *testing.T) {
	toy := &fakeserver.Toy{K: 4, Lookup: true}
	s := serve(outside.VLLM, toy, fakeserver.ByCap)
	res := check(t, s, toy, plan(toy), outside.Options{Lookup: true})
	caught(t, res, res.Counts, "drafts were offered", "the cap k = 4")
}

func TestBonusCountedAsAccepted(t *testing.T) {
	everywhere(t, &fakeserver.Toy{K: 4, Hit: 0.6, NoStop: true}, fakeserver.BonusAccepted, outside.Options{}, func(t *testing.T, _ outside.Dialect, res *outside.Result) {
		caught(t, res, res.Counts, "tokens = requests + steps + accepted", "bonus tokens")
	})
}

func TestHistogramOffByOne(t *testing.T) {
	toy := honest()
	s := serve(outside.SGLang, toy, fakeserver.OffByOne)
	res := check(t, s, toy, plan(toy), outside.Options{})
	caught(t, res, res.Counts, "I5 histogram counts accepted drafts", "off by one")
	for _, d := range []outside.Dialect{outside.VLLM, outside.LlamaCpp} {
		res = check(t, serve(d, toy, fakeserver.OffByOne), toy, plan(toy), outside.Options{})
		caught(t, res, res.Counts, "positions add up")
	}
}

func TestCountersThatDoNotMove(t *testing.T) {
	everywhere(t, honest(), fakeserver.Stuck, outside.Options{}, func(t *testing.T, _ outside.Dialect, res *outside.Result) {
		caught(t, res, res.Counts, "tokens", "moved by 0")
	})
}

func TestPlaceholderSimulation(t *testing.T) {
	toy := &fakeserver.Toy{K: 3, Hit: 0.7, Simulate: 2.6, Placeholder: true, NoStop: true}
	everywhere(t, toy, "", outside.Options{Declared: 2.6}, func(t *testing.T, _ outside.Dialect, res *outside.Result) {
		caught(t, res, res.Tokens, "no placeholder token", "token 100")
		caught(t, res, res.Tokens, "agreement", "simulated")
		caught(t, res, res.Tokens, "readable text", "U+FFFD")
	})
}

func TestDraftSimulation(t *testing.T) {
	toy := &fakeserver.Toy{K: 3, Hit: 0.5, Simulate: 2.6, NoStop: true}
	everywhere(t, toy, "", outside.Options{Declared: 2.6}, func(t *testing.T, d outside.Dialect, res *outside.Result) {
		caught(t, res, res.Tokens, "agreement", "simulated")
		if d != outside.LlamaCpp {
			caught(t, res, res.Counts, "accept lengths vary", "schedule of a simulated acceptance")
		}
	})
}

func TestTokensDecodedOneByOne(t *testing.T) {
	everywhere(t, &fakeserver.Toy{K: 3, Hit: 0.6, NoStop: true}, fakeserver.OneByOne, outside.Options{}, func(t *testing.T, _ outside.Dialect, res *outside.Result) {
		caught(t, res, res.Work, "step time does not depend on the accept length", "one by one")
	})
}

func TestForeignTraffic(t *testing.T) {
	everywhere(t, honest(), fakeserver.Foreign, outside.Options{}, func(t *testing.T, _ outside.Dialect, res *outside.Result) {
		require.Equal(t, audit.NotCheckable, res.Counts.Verdict, show(res))
		require.Contains(t, res.Counts.Why, "other traffic")
		require.Equal(t, audit.Pass, res.Tokens.Verdict, show(res))
	})
}

// TestEightPercent runs the three forms of an acceptance that is 8 % too high, all
// with the text of plain decoding.
func TestEightPercent(t *testing.T) {
	real := &fakeserver.Toy{K: 3, Hit: 0.8, NoStop: true}
	p := plan(real)
	p.Requests, p.Concurrency = 24, []int{1}
	p.Prompts = real.Prompts(24, 12)

	// a: the counters are inflated.
	res := check(t, serve(outside.VLLM, real, fakeserver.Inflated), real, p, outside.Options{})
	require.Equal(t, audit.Pass, res.Tokens.Verdict, show(res))
	caught(t, res, res.Counts, "tokens = requests + steps + accepted")

	// b: a simulation declared as 2.6 realises 2.81. Only the declared length
	// tells.
	over := &fakeserver.Toy{K: 3, Hit: 0.7, Simulate: 2.81, Truthful: true, NoStop: true}
	res = check(t, serve(outside.VLLM, over, ""), over, p, outside.Options{Declared: 2.6})
	require.Equal(t, audit.Pass, res.Tokens.Verdict, show(res))
	caught(t, res, res.Counts, "declared accept length", "off the declared 2.600")
	res = check(t, serve(outside.VLLM, over, ""), over, p, outside.Options{})
	for _, f := range res.Counts.Findings {
		require.Equal(t, "accept lengths vary", f.Check, "without the declared length only the schedule shows: %s", show(res))
	}
	exact := &fakeserver.Toy{K: 3, Hit: 0.7, Simulate: 2.6, Truthful: true, NoStop: true}
	res = check(t, serve(outside.VLLM, exact, ""), exact, p, outside.Options{Declared: 2.6})
	for _, f := range res.Counts.Findings {
		require.Equal(t, "accept lengths vary", f.Check, show(res))
	}

	// c: steps do 8 % less work. Nothing outside tells.
	res = check(t, serve(outside.VLLM, real, fakeserver.LessWork), real, p, outside.Options{})
	for _, r := range res.Reports() {
		require.Equal(t, audit.Pass, r.Verdict, show(res))
	}
	require.Contains(t, res.Work.Blind[0], "work that is skipped")
	require.Equal(t, []string{"yes", "if", "no"}, []string{res.Visible[0].Visible, res.Visible[1].Visible, res.Visible[2].Visible})
}

// TestSeeds catches each fault in 20 models of 20.
func TestSeeds(t *testing.T) {
	if os.Getenv("EXACTA_SOAK") == "" {
		t.Skip("20 models of each fault and dialect run in make soak (EXACTA_SOAK=1); each has a test of its own above")
	}
	for _, f := range []fakeserver.Fault{
		fakeserver.WrongToken, fakeserver.Inflated, fakeserver.FewerSteps, fakeserver.ByCap, fakeserver.BonusAccepted,
		fakeserver.OffByOne, fakeserver.Stuck, fakeserver.OneByOne,
	} {
		for i := range 20 {
			for _, d := range dialects {
				if f == fakeserver.ByCap && d != outside.VLLM {
					continue // only vLLM's pieces and counters tell the steps that had no drafts
				}
				toy := &fakeserver.Toy{Seed: uint64(i + 100), K: 3, Hit: 0.75, Noise: 0.4, NoStop: true, Lookup: f == fakeserver.ByCap}
				res := check(t, serve(d, toy, f), toy, plan(toy), outside.Options{Lookup: toy.Lookup})
				require.True(t, slices.ContainsFunc(res.Reports(), func(r audit.Report) bool { return r.Verdict == audit.Fail }), "%s, %s, seed %d: %s", f, d, i, show(res))
			}
		}
	}
}
