package acceptance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"exacta.dev/exacta/engine"

	"github.com/stretchr/testify/require"
)

// The outputs that the authors' program gives for seed 1234567.
func TestSplitMix64(t *testing.T) {
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		require.Equal(t, want, SplitMix64(1234567, uint64(i)))
	}
}

// sideOf makes a side of prompts, each a list of accepted drafts of 3 each.
func sideOf(point string, prompts ...[]int) *Side {
	s := NewSide(point)
	for q, accepted := range prompts {
		for step, a := range accepted {
			s.Add(verification(fmt.Sprintf("%s.r0/q%02d", point, q), int64(step), 3, a, a+1))
		}
	}
	return s
}

func figureOf(t *testing.T, c *Comparison, name string, position int) Difference {
	t.Helper()
	i := slices.IndexFunc(c.Figures, func(d Difference) bool { return d.Figure == name && d.Position == position })
	require.GreaterOrEqual(t, i, 0, "%s[%d]", name, position)
	return c.Figures[i]
}

// Three prompts have 27 equally likely resamples: the percentiles of many draws
// are those of the 27.
func TestBootstrapAgainstExhaustive(t *testing.T) {
	a := sideOf("a", []int{3, 2, 3}, []int{0, 1}, []int{1, 1, 2, 0, 3})
	b := sideOf("b", []int{1, 2}, []int{0, 0, 1}, []int{1})
	var exact []float64
	for i := range 27 {
		var la, va, lb, vb int64
		for _, j := range []int{i % 3, i / 3 % 3, i / 9} {
			id := fmt.Sprintf("q%02d", j)
			la, va = la+int64(a.Prompts[id].AcceptLengths), va+a.Prompts[id].Verifications
			lb, vb = lb+int64(b.Prompts[id].AcceptLengths), vb+b.Prompts[id].Verifications
		}
		exact = append(exact, float64(la)/float64(va)-float64(lb)/float64(vb))
	}
	slices.Sort(exact)
	for _, confidence := range []float64{0.5, 0.72, 0.9} {
		c, err := PairedBootstrap(a, b, Resamples{Number: 200_000, Seed: 3, Confidence: confidence})
		require.NoError(t, err)
		d := figureOf(t, c, "accept_length", -1)
		tail := (1 - confidence) / 2 * 27
		require.Greater(t, math.Abs(tail-math.Round(tail)), 0.1, "a percentile at a jump says nothing")
		require.Equal(t, exact[int(tail)], d.Low, "confidence %v", confidence)
		require.Equal(t, exact[26-int(tail)], d.High, "confidence %v", confidence)
		require.Equal(t, []float64{26. / 10, 11. / 6}, []float64{d.A, d.B})
		require.InDelta(t, 26./10-11./6, d.Difference, 1e-15)
	}
}

// pairedRuns makes two sides' records over the same prompts: 3 rounds of two points.
func pairedRuns(r *rand.Rand, prompts int) []*engine.Record {
	var out []*engine.Record
	step := int64(0)
	for _, point := range []string{"0-mtp.k4.greedy.c2", "1-ngram.k4.greedy.c2"} {
		for round := range 3 {
			for q := range prompts {
				for range r.IntN(6) {
					k := r.IntN(5)
					rec := verification(fmt.Sprintf("%s.r%d/q%d", point, round, q), step, k, r.IntN(k+1), 0)
					rec.EmittedIDs = make([]int32, rec.Accepted.Length())
					rec.Batch, rec.TotalNs = 1+r.Int32N(3), 1000+r.Int64N(1_000_000)
					rec.PrefillTokens = r.Int32N(5) / 4
					step++
					out = append(out, rec)
				}
				rec := verification(fmt.Sprintf("%s.r%d/q%d", point, round, q), step, 0, 0, 1)
				rec.Phase, rec.PrefillTokens = engine.Prefill, 1
				out = append(out, rec)
			}
		}
	}
	return out
}

// twinFigures computes the figures of a draw from the records of its prompts.
func twinFigures(records []*engine.Record, point string, ids []string) map[string]float64 {
	of := func(id string) []*engine.Record {
		return filter(records, func(r *engine.Record) bool {
			return strings.HasPrefix(r.Request, point+".r") && strings.HasSuffix(r.Request, "/"+id)
		})
	}
	decode := func(r *engine.Record) bool { return r.Phase == engine.Decode }
	length := func(r *engine.Record) int { return int(r.Accepted) + 1 }
	var drawn []*engine.Record
	means, n := 0.0, 0
	for _, id := range ids {
		own := of(id)
		drawn = append(drawn, own...)
		if v := filter(own, decode); len(v) > 0 {
			means += per(sum(v, length), len(v))
			n++
		}
	}
	pure := filter(drawn, func(r *engine.Record) bool { return r.PrefillTokens == 0 })
	drawn = filter(drawn, decode)
	out := map[string]float64{}
	put := func(name string, a, b int) {
		if b != 0 {
			out[name] = float64(a) / float64(b)
		}
	}
	put("accept_length -1", sum(drawn, length), len(drawn))
	put("draft_accept_rate -1", sum(drawn, length)-len(drawn), sum(drawn, func(r *engine.Record) int { return int(r.KExecuted) }))
	if n > 0 {
		out["accept_length_macro -1"] = means / float64(n)
	}
	if ns := sum(pure, func(r *engine.Record) int { return int(r.TotalNs) / int(r.Batch) }); ns > 0 {
		out["decode_tok_s -1"] = 1e9 * (float64(sum(pure, func(r *engine.Record) int { return len(r.EmittedIDs) })) / float64(ns))
	}
	for i := range 4 {
		reached := filter(drawn, func(r *engine.Record) bool { return int(r.KExecuted) > i })
		tried := len(filter(reached, func(r *engine.Record) bool { return int(r.Accepted) >= i }))
		all := len(filter(reached, func(r *engine.Record) bool { return int(r.Accepted) > i }))
		put(fmt.Sprintf("acceptance_by_position %d", i), all, len(reached))
		put(fmt.Sprintf("acceptance_conditional %d", i), all, tried)
	}
	return out
}

// The bootstrap over sums is that over records, to the last bit.
func TestBootstrapAgainstTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	undefined := false
	for trial := range 12 {
		prompts := 1 + r.IntN(5)
		records := pairedRuns(r, prompts)
		a, b := NewSide("0-mtp.k4.greedy.c2"), NewSide("1-ngram.k4.greedy.c2")
		for _, rec := range records {
			a.Add(rec)
			b.Add(rec)
		}
		const resamples, confidence = 40, 0.8
		seed := r.Uint64()
		got, err := PairedBootstrap(a, b, Resamples{Number: resamples, Seed: seed, Confidence: confidence})
		require.NoError(t, err)
		require.Equal(t, prompts, got.Prompts)

		values := map[string][]float64{}
		for n := range resamples {
			var ids []string
			for j := range prompts {
				x := SplitMix64(seed, uint64(n*prompts+j)) >> 32
				ids = append(ids, fmt.Sprintf("q%d", x*uint64(prompts)>>32))
			}
			of, against := twinFigures(records, a.Point, ids), twinFigures(records, b.Point, ids)
			for name, v := range of {
				if w, ok := against[name]; ok {
					values[name] = append(values[name], v-w)
					if name == "decode_tok_s -1" {
						values["decode_tok_s_ratio -1"] = append(values["decode_tok_s_ratio -1"], v/w)
					}
				}
			}
		}
		for _, d := range got.Figures {
			v := values[fmt.Sprintf("%s %d", d.Figure, d.Position)]
			slices.Sort(v)
			m := int(float64(len(v))*(1-confidence)/2 + 1e-9)
			require.Equal(t, len(v), d.Defined, "trial %d, %s", trial, d.Figure)
			require.Equal(t, []float64{v[m], v[len(v)-1-m]}, []float64{d.Low, d.High}, "trial %d, %s[%d]", trial, d.Figure, d.Position)
			undefined = undefined || d.Defined < resamples
		}
	}
	require.True(t, undefined, "no resample was without a figure")
}

// The digits of one comparison, so that no change of order or generator goes
// unseen.
func TestBootstrapDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 0))
	a, b := NewSide("0-mtp.k4.greedy.c2"), NewSide("1-ngram.k4.greedy.c2.r1")
	for _, rec := range pairedRuns(r, 12) {
		a.Add(rec)
		b.Add(rec)
	}
	c, err := PairedBootstrap(a, b, Resamples{Number: 1000, Seed: 1, Confidence: 0.95})
	require.NoError(t, err)
	require.Empty(t, c.Note)
	var got []string
	for _, name := range []string{"accept_length", "accept_length_macro", "decode_tok_s_ratio"} {
		d := figureOf(t, c, name, -1)
		got = append(got, fmt.Sprint(d.Difference, d.Low, d.High))
	}
	require.Equal(t, []string{
		"-0.4340206185567008 -1.043969102792632 0.13297872340425543",
		"-0.3077741702741701 -1.006385281385282 0.28048340548340533",
		"0.8751450838813024 0.38642945675805757 1.6276144079107557",
	}, got)
}

// Where nothing differs but chance, the interval holds 0 about as often as it
// says.
func TestBootstrapCoverage(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 0))
	const trials, prompts = 300, 30
	held := 0
	for range trials {
		var x, y [][]int
		for range prompts {
			easy := r.IntN(3) // of a prompt, the same for both
			var p, q []int
			for range 4 + r.IntN(8) {
				p = append(p, min(3, easy+r.IntN(2)))
			}
			for range 4 + r.IntN(8) {
				q = append(q, min(3, easy+r.IntN(2)))
			}
			x, y = append(x, p), append(y, q)
		}
		c, err := PairedBootstrap(sideOf("a", x...), sideOf("b", y...), Resamples{Number: 300, Seed: r.Uint64(), Confidence: 0.9})
		require.NoError(t, err)
		if d := figureOf(t, c, "accept_length_macro", -1); d.Low <= 0 && d.High >= 0 {
			held++
		}
	}
	require.InDelta(t, 0.9, float64(held)/trials, 0.06)
}

func TestBootstrapRefuses(t *testing.T) {
	fine := Resamples{Number: 10, Seed: 1, Confidence: 0.9}
	two := func() (a, b *Side) { return sideOf("a", []int{1}, []int{2}), sideOf("b", []int{1}, []int{0}) }
	a, b := two()
	_, err := PairedBootstrap(a, b, fine)
	require.NoError(t, err)
	for _, o := range []Resamples{{0, 1, 0.9}, {MostResamples + 1, 1, 0.9}, {10, 1, 0}, {10, 1, 1}, {10, 1, math.NaN()}} {
		_, err := PairedBootstrap(a, b, o)
		require.Error(t, err, "%+v", o)
	}

	_, err = PairedBootstrap(a, NewSide("b"), fine)
	require.EqualError(t, err, "b has no records")

	delete(a.Prompts, "q00")
	delete(b.Prompts, "q01")
	_, err = PairedBootstrap(a, b, fine)
	require.EqualError(t, err, "prompts without a pair: b has no records of q01, which a has; a has no records of q00, which b has")

	many := make([][]int, 25)
	for i := range many {
		many[i] = []int{1}
	}
	_, err = PairedBootstrap(sideOf("a", many...), sideOf("b", []int{1}), fine)
	require.ErrorContains(t, err, "q19, q20 and 4 more, which a has")

	a, b = two()
	forced := verification("b.r0/q00", 9, 3, 1, 2)
	forced.Simulated, forced.Simulation = true, "length=2"
	b.Add(forced)
	_, err = PairedBootstrap(a, b, fine)
	require.ErrorContains(t, err, "b: acceptance was simulated in 1 of 3 verifications with drafts")
	b = NewSide("b")
	b.Add(forced)
	_, err = PairedBootstrap(a, b, fine)
	require.ErrorContains(t, err, "acceptance of a is real, of b simulated; they are not compared")
}

// One prompt, one verification: the figure is there, and the interval is as
// narrow as it is worthless, which the note says.
func TestBootstrapOfLittle(t *testing.T) {
	c, err := PairedBootstrap(sideOf("a", []int{2}), sideOf("b", []int{0}), Resamples{Number: 5, Seed: 1, Confidence: 0.95})
	require.NoError(t, err)
	d := figureOf(t, c, "accept_length", -1)
	require.Equal(t, []float64{3, 1, 2, 2, 2}, []float64{d.A, d.B, d.Difference, d.Low, d.High})
	require.Contains(t, c.Note, "1 prompts are too few")
}

// A point is taken with its round or with all; other points are passed over.
func TestSideTakesItsPoint(t *testing.T) {
	all, one := NewSide("p.k1.greedy.c1"), NewSide("p.k1.greedy.c1.r1")
	for _, request := range []string{"p.k1.greedy.c1.r0/q", "p.k1.greedy.c1.r1/q", "p.k1.greedy.c1.r11/q", "p.k1.greedy.c10.r1/q", "q"} {
		all.Add(verification(request, 0, 1, 1, 2))
		one.Add(verification(request, 0, 1, 1, 2))
	}
	require.Equal(t, int64(3), all.Prompts["q"].Verifications)
	require.Equal(t, int64(1), one.Prompts["q"].Verifications)
	require.Equal(t, []string{"p.k1.greedy.c1.r1/q"}, one.Unfinished(map[string]bool{"p.k1.greedy.c1.r0/q": true}))
	require.Empty(t, one.Unfinished(map[string]bool{"p.k1.greedy.c1.r1/q": true}))
}
