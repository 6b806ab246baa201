package draft

import (
	"fmt"

	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/fakedev"
	"exacta.dev/exacta/kernels/ref"
	"exacta.dev/exacta/verify"
)

// backends makes one of each kind that lives in the process.
func backends(t *testing.T) map[string]kernels.Backend {
	t.Helper()
	all := map[string]kernels.Backend{"ref": ref.New()}
	for _, name := range []string{"cpu", "fakedev"} {
		be, err := cpu.New(cpu.Options{Threads: 1})
		require.NoError(t, err)
		if all[name] = be; name == "fakedev" {
			all[name] = fakedev.New(be)
		}
	}
	t.Cleanup(func() {
		for _, be := range all {
			require.NoError(t, be.Close())
		}
	})
	return all
}

// small is a model of random weights of some layers: a hybrid, or one of attention
// alone. Models of fewer layers have the weights of the first ones.
func small(t *testing.T, be kernels.Backend, hybrid bool, layers int) *model.Model {
	t.Helper()
	c := checkpoint.Config{
		ModelType: "qwen3_5_text", Family: checkpoint.Qwen3_5,
		HiddenSize: 32, IntermediateSize: 48, NumLayers: layers, NumHeads: 2, NumKVHeads: 1, HeadDim: 16,
		VocabSize: 37, MaxPositions: 256, RMSEps: 1e-6, TieEmbeddings: true, AttnOutputGate: true, BOS: -1,
		Rope: checkpoint.Rope{Type: checkpoint.RopeDefault, Theta: 1e4, PartialFactor: 0.5},
		GDN:  checkpoint.GDN{NumKHeads: 1, NumVHeads: 2, KDim: 16, VDim: 16, ConvKernel: 4, OutputGate: checkpoint.SiLU},
	}
	for i := range layers {
		kind := checkpoint.LinearAttention
		if i%2 == 1 || !hybrid {
			kind = checkpoint.FullAttention
		}
		c.LayerTypes = append(c.LayerTypes, kind)
	}
	m, err := model.Load(be, model.Random{ShapeName: fmt.Sprint("small", layers), Seed: 5, Shape: c}, model.Options{MaxTokens: 192})
	require.NoError(t, err)
	return m
}

// aroundBorders are requests around window borders, of which the last shares the prompt of
// the one before it.
func aroundBorders(k int, p sample.Params) []engine.Request {
	var out []engine.Request
	for i, n := range []int{63, 5, 70, 130, 140} {
		prompt := make([]int32, n)
		for j := range prompt {
			prompt[j] = int32((j*j + 3*j*i) % 37)
		}
		if i == 4 {
			copy(prompt, out[3].Prompt)
		}
		out = append(out, engine.Request{ID: fmt.Sprint("r", i), Prompt: prompt, MaxNew: min(100, 185-n), K: k, Params: p, IgnoreStop: true})
	}
	return out
}

// only are the drafters of an engine that has one, for requests that name none.
func only(d engine.Drafter) map[string]engine.Drafter { return map[string]engine.Drafter{"": d} }

// records plays requests, plainly without drafters, and returns their records by
// request.
func records(t *testing.T, m *model.Model, cfg engine.Config, rule string, drafters map[string]engine.Drafter, reqs []engine.Request) map[string][]*engine.Record {
	t.Helper()
	r, err := verify.New(rule)
	require.NoError(t, err)
	out := map[string][]*engine.Record{}
	if d := drafters[""]; d != nil {
		drafters = map[string]engine.Drafter{"d": d}
	}
	cfg.MaxTokens = 192
	e, err := engine.New(m, cfg, drafters, r, engine.RecorderFunc(func(r *engine.Record) error {
		out[r.Request] = append(out[r.Request], r)
		return nil
	}), engine.Listener{})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	for _, q := range reqs {
		switch {
		case drafters == nil:
			q.Drafter, q.K = "", 0
		case q.Drafter == "":
			q.Drafter = "d"
		}
		_, err := e.Submit(q)
		require.NoError(t, err)
	}
	require.NoError(t, e.Run(nil))
	return out
}

// emitted are the tokens and hashes of a request's records.
func emitted(of []*engine.Record) (tokens []int32, hashes []uint64) {
	for _, r := range of {
		tokens, hashes = append(tokens, r.EmittedIDs...), append(hashes, r.Hashes[:len(r.EmittedIDs)]...)
	}
	return tokens, hashes
}

// A model that drafts for itself is never wrong, at temperature 0 and, drawing with
// the target's noise, above it: its caches are in step with every commit, through
// chunks, preemption and prefix-cache hits.
func TestModelDraftsForItself(t *testing.T) {
	for name, be := range backends(t) {
		for _, hybrid := range []bool{true, false} {
			if name == "ref" && !hybrid {
				continue
			}
			m := small(t, be, hybrid, 2)
			warned := ""
			for rule, p := range map[string]sample.Params{"greedy": {}, "coupled": {Temperature: 0.9, Seed: 4}} {
				for _, cfg := range []engine.Config{{MaxSequences: 2, PrefixCache: true, Snapshots: 8}, {MaxSequences: 3, Pages: 4, ExpectedOutput: -1, Chunk: 31}} {
					d, err := (&Model{Sample: rule == "coupled"}).Provision(Env{Backend: be, Model: m, Vocab: 37, Warn: func(text string) { warned = text }})
					require.NoError(t, err)
					want := records(t, m, engine.Config{MaxSequences: 1}, rule, nil, aroundBorders(0, p))
					got := records(t, m, cfg, rule, only(d), aroundBorders(5, p))
					hit, preempted, proposed := false, false, 0
					for id, of := range got {
						tokens, hashes := emitted(of)
						plain, sums := emitted(want[id])
						require.Equal(t, plain, tokens)
						require.Equal(t, sums, hashes)
						for _, r := range of {
							require.EqualValues(t, r.KExecuted, r.Accepted, "%s on %s, request %s at %d", rule, name, id, r.Position)
							proposed += int(r.KExecuted)
							hit, preempted = hit || r.Cached > 0, preempted || r.Preemptions > 0
						}
					}
					require.Greater(t, proposed, 100)
					require.Equal(t, cfg.PrefixCache, hit)
					require.Equal(t, cfg.Pages > 0, preempted)
				}
			}
			require.Contains(t, warned, "can't be faster")
		}
	}
}

// Drafts that are drawn come with the distribution that they were drawn from: where it
// is the target's, rules that compare the two accept them all.
func TestModelKnowsItsDistributions(t *testing.T) {
	be := backends(t)["cpu"]
	m := small(t, be, true, 2)
	for _, rule := range []string{"rejection", "block"} {
		d, err := (&Model{Sample: true}).Provision(Env{Backend: be, Model: m, Vocab: 37})
		require.NoError(t, err)
		proposed := 0
		for id, of := range records(t, m, engine.Config{MaxSequences: 3}, rule, only(d), aroundBorders(4, sample.Params{Temperature: 1.1, TopP: 0.9, TopK: 9, Seed: 3})) {
			for _, r := range of {
				require.EqualValues(t, r.KExecuted, r.Accepted, "%s, request %s at %d", rule, id, r.Position)
				proposed += int(r.KExecuted)
			}
		}
		require.Greater(t, proposed, 100)
	}
}

// The target's first layers, in its caches, propose what a model of these layers
// alone proposes from caches of its own.
func TestLayerSkipIsASmallerModel(t *testing.T) {
	for name, be := range backends(t) {
		for _, hybrid := range []bool{true, false} {
			m, front := small(t, be, hybrid, 4), small(t, be, hybrid, 2)
			env := Env{Backend: be, Model: m, Vocab: 37}
			skip, err := (&LayerSkip{}).Provision(env)
			require.NoError(t, err)
			cfg := engine.Config{MaxSequences: 3, Pages: 6, ExpectedOutput: -1, Chunk: 50}
			reqs := aroundBorders(4, sample.Params{})
			got := records(t, m, cfg, "greedy", only(skip), reqs)
			own := newRecursive("model", trunk{m: front, layers: 2, own: true}, env, false)
			want := records(t, m, cfg, "greedy", only(own), reqs)
			plain := records(t, m, engine.Config{MaxSequences: 1}, "greedy", nil, reqs)
			accepted := 0
			for id, of := range got {
				require.Len(t, of, len(want[id]))
				for i, r := range of {
					require.Equal(t, want[id][i].ProposedIDs, r.ProposedIDs, "%s, request %s at %d", name, id, r.Position)
					accepted += int(r.Accepted)
				}
				a, x := emitted(of)
				b, y := emitted(plain[id])
				require.Equal(t, b, a)
				require.Equal(t, y, x)
			}
			require.Positive(t, accepted)
		}
	}
}

// Sequences of other drafters come and go in a draft model's batches and leave it
// alone.
func TestModelInCompany(t *testing.T) {
	for name, be := range backends(t) {
		m := small(t, be, true, 4)
		env := Env{Backend: be, Model: m, Vocab: 37}
		drafters := map[string]engine.Drafter{}
		for name, c := range map[string]Strategy{"a": &LayerSkip{}, "b": &Model{}, "c": &Model{Model: "random"}} {
			d, err := c.Provision(env)
			require.NoError(t, err)
			drafters[name] = d
		}
		reqs := aroundBorders(3, sample.Params{})
		for i := range reqs {
			reqs[i].Drafter, reqs[i].MaxNew = string("abcba"[i]), 20+10*i
		}
		want := records(t, m, engine.Config{MaxSequences: 1}, "greedy", nil, reqs)
		for id, of := range records(t, m, engine.Config{MaxSequences: 3, Chunk: 20}, "greedy", drafters, reqs) {
			tokens, hashes := emitted(of)
			plain, sums := emitted(want[id])
			require.Equal(t, plain, tokens)
			require.Equal(t, sums, hashes)
			for _, r := range of {
				require.True(t, id != "r1" && id != "r3" || int(r.Accepted) == int(r.KExecuted), "%s, request %s at %d", name, id, r.Position)
			}
		}
	}
}

func TestLayerSkipRefused(t *testing.T) {
	require.ErrorContains(t, (&LayerSkip{Layers: -1}).Validate(), "layers is -1; it must be at least 1, or 0 for half of the target's")
	m := small(t, backends(t)["cpu"], true, 4)
	_, err := (&LayerSkip{Layers: 4}).Provision(Env{Model: m, Vocab: 37})
	require.EqualError(t, err, "draft layerskip: layers is 4; model random:small4 has 4, and a draft takes fewer")
}
