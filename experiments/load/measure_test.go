package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// row makes an answered request: times in milliseconds, one token a chunk.
func row(id string, lane int, sent, first, step int64, n int) Row {
	r := Row{Request: id, Session: id, Lane: lane, Phase: Measured, Sched: sent * msec, Sent: sent * msec, First: first * msec, Prompt: 10, Output: n, Cached: -1, Drafted: -1, Accepted: -1}
	r.Tokens = []int{1}
	for range n - 1 {
		r.Gaps, r.Tokens = append(r.Gaps, step*msec), append(r.Tokens, 1)
	}
	r.Last = r.First + int64(n-1)*step*msec
	r.End = r.Last
	return r
}

// Percentiles are those of numpy.percentile with its default.
func TestQuantiles(t *testing.T) {
	var v values
	for _, x := range []float64{15, 20, 35, 40, 50} {
		v.add(x, 1)
	}
	d := v.dist()
	require.InDeltaSlice(t, []float64{35, 40, 46, 48, 49.6}, []float64{d.P50, d.P75, d.P90, d.P95, d.P99}, 1e-9)
	require.InDelta(t, 12.884098726725126, d.SD, 1e-12)
	require.Equal(t, Dist{N: 1, Mean: 3, Min: 3, P50: 3, P75: 3, P90: 3, P95: 3, P99: 3, Max: 3}, func() Dist { var v values; v.add(3, 1); return v.dist() }())
	require.Equal(t, Dist{}, new(values).dist())
}

// A sketch is within its accuracy of the values, and the sum of two is that of all.
func TestSketch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var a, b, all Sketch
	var exact []float64
	for i := range 20_000 {
		x := math.Exp(3 * r.NormFloat64())
		if i%100 == 0 {
			x = 0
		}
		exact = append(exact, x)
		all.Add(x, 1)
		if i%3 == 0 {
			a.Add(x, 1)
		} else {
			b.Add(x, 1)
		}
	}
	a.Merge(&b)
	shares := []float64{0, 0.005, 0.1, 0.5, 0.9, 0.99, 0.999, 1}
	require.Equal(t, all.Quantiles(shares), a.Quantiles(shares))
	slices.Sort(exact)
	for i, q := range a.Quantiles(shares) {
		want := exact[int(shares[i]*float64(len(exact)-1))]
		require.InDelta(t, want, q, want*accuracy*1.0001+1e-12, "share %v", shares[i])
	}
	// A distribution of many values goes over to a sketch, and says so.
	var v values
	for i := range 2 * mostExact {
		v.add(float64(i), 1)
	}
	d := v.dist()
	require.True(t, d.Sketched)
	require.InEpsilon(t, 0.99*2*mostExact, d.P99, 0.01)
	require.Equal(t, float64(2*mostExact-1), d.Max)
}

// In an interval count: tokens that arrive in it, latencies of requests that lie in
// it, requests at work by time.
func TestIntervals(t *testing.T) {
	rows := []Row{
		row("a", 0, 0, 100, 100, 11),    // 0..1100
		row("b", 0, 1100, 1150, 50, 11), // 1100..1650
		row("c", 0, 1700, 1900, 100, 6), // 1700..2400
	}
	warm := row("w", 1, 0, 50, 1, 500)
	warm.Phase = Warmup
	failed := row("f", 1, 1200, 1300, 1, 2)
	failed.Error, failed.End = "no", 1400*msec
	rows = append(rows, warm, failed)
	f := Measure(&SLO{TPOT: 60}, Span{rows, 1000 * msec, 2000 * msec})
	require.Equal(t, 1.0, f.Seconds)
	require.Equal(t, 3, f.Admitted)
	require.Equal(t, 2, f.Finished)
	require.Equal(t, 1, f.Failed)
	require.Equal(t, int64(2+11+2), f.OutputTokens)
	require.Equal(t, 15.0, f.OutTokS)
	require.Equal(t, int64(20), f.PromptTokens)
	require.Equal(t, int64(1), f.TTFT.N)
	require.Equal(t, 50.0, f.TTFT.P50)
	require.Equal(t, 50.0, f.TPOT.Mean)
	require.InDelta(t, 0.1+0.55+0.3, f.InFlight, 1e-12)
	require.InDelta(t, 0.1+0.5+0.1, f.Decoding, 1e-12)
	require.Equal(t, 2+10+1.0, f.DecodeTokens)
	require.InDelta(t, f.DecodeTokens/f.Seconds, f.Decoding*f.DecodeTokS, 1e-9)
	require.Equal(t, 0.5, f.Goodput.Share, "one of two that ended")
	require.Equal(t, 1.0, f.Goodput.ReqS)
	require.Equal(t, -1.0, f.CacheHit)
	two := Measure(nil, Span{rows, 1000 * msec, 2000 * msec}, Span{rows, 1000 * msec, 2000 * msec})
	require.Equal(t, 2.0, two.Seconds)
	require.Equal(t, f.OutTokS, two.OutTokS)
	require.Equal(t, f.DecodeTokS, two.DecodeTokS)
}

// A slow beginning is cut off; a load that gets slower is not steady.
func TestWindows(t *testing.T) {
	load := func(step func(at int64) int64) []Row {
		var rows []Row
		for lane := range 4 {
			at := int64(lane)
			for i := range 60 {
				r := row(fmt.Sprintf("%d-%d", lane, i), lane, at, at+5, step(at), 20)
				rows = append(rows, r)
				at = r.Last / msec
			}
		}
		return rows
	}
	even := FindWindow(load(func(int64) int64 { return 10 }), 4)
	require.True(t, even.Steady, even.Why)
	require.Equal(t, 3*msec, even.From-even.Dropped)
	require.Equal(t, int64(60*195)*msec, even.To)
	require.Less(t, even.Dropped, (even.To-even.From)/10)
	cold := FindWindow(load(func(at int64) int64 {
		if at < 2000 {
			return 30
		}
		return 10
	}), 4)
	require.InDelta(t, 2100, float64(cold.Dropped/msec), 400, "what is cut off")
	slower := FindWindow(load(func(at int64) int64 { return 10 + at/1000 }), 4)
	require.False(t, slower.Steady)
	few := FindWindow(load(func(int64) int64 { return 10 })[:5], 1)
	require.False(t, few.Steady)
	require.Contains(t, few.Why, "too few")
	var burst []Row
	for i := range 30 {
		burst = append(burst, row(fmt.Sprint(i), 0, 0, 10, 1, 100))
	}
	w := FindWindow(burst, 0)
	require.Equal(t, []int64{0, 109 * msec}, []int64{w.From, w.To}, "a burst counts as a whole")
	require.False(t, FindWindow(nil, 1).Steady)
}

func repeats(target string, factor float64, n int) []Repeat {
	var out []Repeat
	r := rand.New(rand.NewPCG(uint64(len(target)), 5))
	for i := range n {
		var rows []Row
		for j := range 40 {
			noise := 1 + 0.05*r.NormFloat64()
			rows = append(rows, row(fmt.Sprint(j), 0, int64(j*1000), int64(float64(j*1000)+100*factor*noise), int64(math.Round(20*factor)), 11))
		}
		rep := Repeat{Cell: Cell{Target: target, Point: "p", Repeat: i, Window: Window{To: int64(40 * time.Second), Steady: true}}, Rows: rows}
		rep.Cell.InWindow = Measure(nil, rep.span())
		out = append(out, rep)
	}
	return out
}

// What is really faster wins, what is the same ties, in repeats and by resampling.
func TestCompare(t *testing.T) {
	for _, n := range []int{1, 5} {
		base := repeats("baseline", 1, n)
		for name, want := range map[string]struct {
			factor  float64
			outcome string
		}{"faster": {0.5, Win}, "same": {1, Tie}, "slower": {1.5, Loss}} {
			target := repeats(name, want.factor, n)
			c := Compare(NewLine(nil, target), NewLine(nil, base), target, base)
			at := slices.IndexFunc(c.Metrics, func(v Versus) bool { return v.Metric == "ttft_mean" })
			v := c.Metrics[at]
			require.Equal(t, want.outcome, v.Outcome, "%s: %+v", name, v)
			require.InEpsilon(t, want.factor, v.Ratio, 0.05)
			require.True(t, v.Low <= v.Ratio && v.Ratio <= v.High)
			require.InDelta(t, c.SpeedUp, c.RequestSpeed*c.Decoding, 1e-12)
			require.InEpsilon(t, 1/want.factor, c.RequestSpeed, 0.01)
			if n == 1 {
				require.Equal(t, Unbounded, c.Metrics[0].Outcome, "throughput of one repeat has no bound")
			}
			require.LessOrEqual(t, c.Wins+c.Ties+c.Losses, len(c.Metrics))
		}
	}
	require.Equal(t, Interval{Repeats: 1, Mean: 4, Low: 4, High: 4}, NewInterval([]float64{4}))
	i := NewInterval([]float64{1, 2, 3})
	require.InDelta(t, 1, i.SD, 1e-12)
	require.InDelta(t, 2-4.303/math.Sqrt(3), i.Low, 1e-9)
}

func TestMetricsTable(t *testing.T) {
	var names []string
	for _, m := range Metrics() {
		require.NotContains(t, names, m.Name)
		names = append(names, m.Name)
	}
	require.Equal(t, "out_tok_s ttft_mean ttft_p50 ttft_p90 ttft_p99 tpot_mean tpot_p50 tpot_p90 tpot_p99 e2e_mean e2e_p50 e2e_p90 e2e_p99", strings.Join(names[:Thirteen], " "))
}

func TestFairness(t *testing.T) {
	a := &TargetInfo{Name: "a", Claims: map[string]string{"weights": "m", "dtype": "BF16", "draft": "none", "kv_bytes": "1000", "context": "9"}}
	b := &TargetInfo{Name: "b", Claims: map[string]string{"weights": "M", "dtype": "torch.bfloat16", "draft": "mtp k=3", "kv_bytes": "1040", "max_sequences": "8", "context": "10"}, Untuned: true}
	unfair, unknown := Fairness(a, b, nil)
	require.Equal(t, []string{"draft: a has none, b has mtp k=3", "context: a has 9, b has 10"}, unfair)
	require.Equal(t, []string{"max_sequences: a does not say", "b is untuned: its memory share, sequences and prefill chunk are as they were given"}, unknown)
	b.Claims["kv_bytes"] = "1100"
	unfair, _ = Fairness(a, b, []string{"draft", "context"})
	require.Equal(t, []string{"kv_bytes: a has 1000, b has 1100"}, unfair)
}

func FuzzReadRows(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, WriteRows(&b, []Row{row("a", 0, 0, 100, 100, 11), {Request: "x", Session: "y", Phase: Warmup, Error: "no"}}))
	f.Add(b.Bytes())
	f.Add([]byte(`{"request":"a","session":"b","phase":"measured","sent_ns":1,"first_ns":2,"last_ns":9223372036854775807,"end_ns":9223372036854775807,"output_tokens":2,"gaps_ns":[9223372036854775805]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, err := ReadRows("r", bytes.NewReader(text))
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "r:"), err)
			return
		}
		w := FindWindow(rows, 2)
		_, err = json.Marshal(Measure(&SLO{TTFT: 1}, Span{rows, w.From, w.To}, Whole(rows)))
		require.NoError(t, err, "no figure is infinite or not a number")
	})
}

func TestBadRows(t *testing.T) {
	good := row("a", 0, 0, 100, 100, 3)
	for want, change := range map[string]func(*Row){
		"request or session is empty":               func(r *Row) { r.Request = "" },
		"phase is \"odd\"":                          func(r *Row) { r.Phase = "odd" },
		"times are not in order":                    func(r *Row) { r.First = r.Last + 1 },
		"10 prompt and 0 output tokens":             func(r *Row) { r.Output = 0 },
		"tokens of 2 chunks with 2 gaps":            func(r *Row) { r.Tokens = r.Tokens[:2] },
		"a gap of -1 ns":                            func(r *Row) { r.Gaps[0] = -1 },
		"chunks have more tokens than the output's": func(r *Row) { r.Tokens[0] = 9 },
		"gaps end at":                               func(r *Row) { r.Gaps[1]-- },
	} {
		r := good
		r.Gaps, r.Tokens = slices.Clone(good.Gaps), slices.Clone(good.Tokens)
		change(&r)
		text, err := json.Marshal(&r)
		require.NoError(t, err)
		_, err = ReadRows("f", bytes.NewReader(text))
		require.ErrorContains(t, err, "f:1: "+want)
	}
}
