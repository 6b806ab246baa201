package draft

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/verify"
)

// four is a model of four tokens: all texts of a few tokens can be counted.
func four(t *testing.T) *model.Model {
	t.Helper()
	be, err := cpu.New(cpu.Options{Threads: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	m, err := model.Load(be, model.Random{ShapeName: "four", Seed: 11, Shape: checkpoint.Config{
		ModelType: "qwen3_5_text", Family: checkpoint.Qwen3_5,
		HiddenSize: 16, IntermediateSize: 16, NumLayers: 2, NumHeads: 2, NumKVHeads: 1, HeadDim: 8,
		VocabSize: 4, MaxPositions: 64, RMSEps: 1e-6, TieEmbeddings: true, AttnOutputGate: true, MTPLayers: 1, BOS: -1,
		Rope:       checkpoint.Rope{Type: checkpoint.RopeDefault, Theta: 1e4, PartialFactor: 0.5},
		LayerTypes: []checkpoint.LayerKind{checkpoint.LinearAttention, checkpoint.FullAttention},
		GDN:        checkpoint.GDN{NumKHeads: 1, NumVHeads: 2, KDim: 8, VDim: 8, ConvKernel: 4, OutputGate: checkpoint.SiLU},
	}}, model.Options{MaxTokens: 32, MTP: true})
	require.NoError(t, err)
	return m
}

// run puts requests through an engine with a sampled drafter and a rule, or
// plainly with a drafter of nil.
func run(t *testing.T, m *model.Model, rule engine.Verifier, d engine.Drafter, batch int, rec engine.Recorder, requests func(submit func(engine.Request))) {
	t.Helper()
	drafters := map[string]engine.Drafter{}
	if d != nil {
		drafters[d.Name()] = d
	}
	e, err := engine.New(m, engine.Config{MaxTokens: 32, MaxSequences: batch, MaxDraft: 7}, drafters, rule, rec, engine.Listener{})
	require.NoError(t, err)
	defer e.Close()
	var seqs []*engine.Sequence
	requests(func(r engine.Request) {
		if d != nil {
			r.Drafter = d.Name()
		}
		r.IgnoreStop = true
		s, err := e.Submit(r)
		require.NoError(t, err)
		seqs = append(seqs, s)
	})
	require.NoError(t, e.Run(nil))
	for _, s := range seqs {
		require.NoError(t, s.Err())
	}
}

// looker is a rule that keeps what the target's distribution is.
type looker struct {
	engine.Verifier
	seen map[string][]float64
}

func (l *looker) Verify(v *engine.Verification) (engine.Verdict, error) {
	p, err := v.Sampler.Process(v.Logits(0), nil)
	if err != nil {
		return engine.Verdict{}, err
	}
	row, sum := make([]float64, len(p)), 0.0
	for _, x := range p {
		sum += float64(x)
	}
	for i, x := range p {
		row[i] = float64(x) / sum
	}
	l.seen[v.Seq.Request().ID] = row
	return l.Verifier.Verify(v)
}

var chiPrompt = []int32{1, 3, 0, 2, 2}

const chiTokens = 4

// chiParams flatten the distribution, so that no text is rare.
var chiParams = sample.Params{Temperature: 1.3, TopP: 0.97, PresencePenalty: 0.3}

// expected returns the probability of every text of chiTokens tokens under plain
// sampling: the target's own rows, multiplied.
func expected(t *testing.T, m *model.Model) []float64 {
	t.Helper()
	inner, err := verify.New("coupled")
	require.NoError(t, err)
	l := &looker{inner, map[string][]float64{}}
	// Penalties see the text as output, so it is forced as output, token by
	// token.
	list := []float64{1}
	for n := range chiTokens {
		var next []float64
		for i, w := range list {
			row := rowAfter(t, m, l, texts(i, n))
			for _, p := range row {
				next = append(next, w*p)
			}
		}
		list = next
	}
	return list
}

// texts writes index i as a text of n tokens.
func texts(i, n int) []int32 {
	out := make([]int32, n)
	for j := n - 1; j >= 0; j-- {
		out[j], i = int32(i%4), i/4
	}
	return out
}

// rowAfter is the target's distribution after an output.
func rowAfter(t *testing.T, m *model.Model, l *looker, output []int32) []float64 {
	t.Helper()
	id := fmt.Sprint(output)
	run(t, m, forced{l, output}, nil, 1, nil, func(submit func(engine.Request)) {
		submit(engine.Request{ID: id, Prompt: chiPrompt, MaxNew: len(output) + 1, Params: chiParams})
	})
	return l.seen[id]
}

// forced makes plain decoding say an output.
type forced struct {
	*looker
	output []int32
}

func (f forced) Verify(v *engine.Verification) (engine.Verdict, error) {
	d, err := f.looker.Verify(v)
	if n := len(v.Seq.Output()); n < len(f.output) {
		d.Next = f.output[n]
	}
	return d, err
}

// chiSquare generates n texts with sampled drafts of 1 to most tokens under a rule,
// in batches, and compares their counts with plain sampling. It also returns how
// many drafts were accepted, and how many places of a draft were reached and not.
func chiSquare(t *testing.T, m *model.Model, s Strategy, most int, rule string, purpose sample.Purpose, n int) (stat float64, freedom, accepted, rejected int) {
	t.Helper()
	r, err := verify.New(rule)
	require.NoError(t, err)
	return chiSquareOf(t, m, s, most, r, purpose, n)
}

// chiSquareOf is chiSquare for any rule.
func chiSquareOf(t *testing.T, m *model.Model, s Strategy, most int, r engine.Verifier, purpose sample.Purpose, n int) (stat float64, freedom, accepted, rejected int) {
	t.Helper()
	want := expected(t, m)
	got := make([]float64, len(want))
	d, err := s.Provision(Env{Backend: m.Backend(), Model: m, Vocab: 4})
	require.NoError(t, err)
	if tree, ok := d.(*tree); ok {
		tree.sampler.purpose = purpose
	} else {
		d.(*chain).sampler.purpose = purpose
	}
	output := map[string]int{}
	length := map[string]int{}
	rec := engine.RecorderFunc(func(r *engine.Record) error {
		for _, id := range r.EmittedIDs {
			if length[r.Request]++; length[r.Request] > chiTokens {
				continue // requests are longer, so that drafts are whole
			}
			output[r.Request] = output[r.Request]*4 + int(id)
			if length[r.Request] == chiTokens {
				got[output[r.Request]]++
			}
		}
		accepted += int(r.Accepted)
		rejected += int(r.KExecuted) - int(r.Accepted)
		return nil
	})
	const together = 10_000 // requests that wait in one engine
	for from := 0; from < n; from += together {
		run(t, m, r, d, 32, rec, func(submit func(engine.Request)) {
			for i := from; i < min(n, from+together); i++ {
				p := chiParams
				p.Seed = uint64(i)
				submit(engine.Request{ID: fmt.Sprint(i), Prompt: chiPrompt, MaxNew: chiTokens + max(0, most-3), Params: p, K: 1 + i%most})
			}
		})
		clear(length)
		clear(output)
	}
	rare := [2]float64{}
	cell := func(want, got float64) {
		stat += (got - want) * (got - want) / want
		freedom++
	}
	for i, p := range want {
		if x := p * float64(n); x >= 8 {
			cell(x, got[i])
		} else {
			rare[0] += x
			rare[1] += got[i]
		}
	}
	if rare[0] > 0 {
		cell(rare[0], rare[1])
	}
	return stat, freedom - 1, accepted, rejected
}

// quantile is the 1 - 1e-4 quantile of chi-square (Wilson and Hilferty 1931).
func quantile(freedom int) float64 {
	k := float64(freedom)
	h := 2 / (9 * k)
	return k * math.Pow(1-h+3.719*math.Sqrt(h), 3)
}

// manyTexts is how many texts a test generates: n, or in a soak a million.
func manyTexts(n int) int {
	if os.Getenv("EXACTA_SOAK") == "1" {
		return 1_000_000
	}
	return n
}

// Texts of several steps, drafted by the real drafter with its real noise and
// verified with the real noise of the rule, are distributed as plain sampling; if
// the drafter draws with the noise that decides about acceptance, or about
// recovery, they are not, and this sees it.
func TestSampledMTPChiSquare(t *testing.T) {
	n := manyTexts(12_000)
	m := four(t)
	for _, rule := range []string{"rejection", "block"} {
		stat, freedom, accepted, rejected := chiSquare(t, m, &MTP{Sample: true}, 3, rule, sample.Draft, n)
		t.Logf("%s: chi-square %.1f at %d degrees of freedom, bound %.1f; %d drafts accepted, %d not", rule, stat, freedom, quantile(freedom), accepted, rejected)
		require.Less(t, stat, quantile(freedom))
		require.Greater(t, accepted, n/4)
		require.Greater(t, rejected, n/4)
	}
	for name, purpose := range map[string]sample.Purpose{"acceptance": sample.Verify, "recovery": sample.Recovery} {
		stat, freedom, _, _ := chiSquare(t, m, &MTP{Sample: true}, 3, "rejection", purpose, 12_000)
		t.Logf("noise of %s: chi-square %.1f, bound %.1f", name, stat, quantile(freedom))
		require.Greater(t, stat, quantile(freedom), name)
	}
}

// The same with drafts from half of the vocabulary: the other half comes from the
// recovery alone.
func TestSampledEagle3ChiSquare(t *testing.T) {
	n := manyTexts(12_000)
	stat, freedom, accepted, rejected := chiSquare(t, four(t), &Eagle3{Sample: true}, 3, "rejection", sample.Draft, n)
	t.Logf("chi-square %.1f at %d degrees of freedom, bound %.1f; %d drafts accepted, %d not", stat, freedom, quantile(freedom), accepted, rejected)
	require.Less(t, stat, quantile(freedom))
	require.Greater(t, accepted, n/8)
	require.Greater(t, rejected, n/4)
}
