package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

const twinConfig = `{"architectures":["LlamaForCausalLMEagle3"],"model_type":"llama","hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,
	"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"vocab_size":40,"draft_vocab_size":10,"max_position_embeddings":64,
	"rms_norm_eps":1e-6,"eagle_aux_hidden_state_layer_ids":[1,3]}`

// newEagleFiles writes a random head by the names of the reference code, or of the
// speculators library.
func newEagleFiles(t *testing.T, config string, speculators bool) twinFiles {
	t.Helper()
	f := newHeadWriter(t)
	add := func(name string, mean, spread float64, shape ...int) {
		as := name
		if rest, ok := strings.CutPrefix(name, "midlayer."); ok && speculators {
			as = "layers.0." + rest
		}
		f.add(name, as, mean, spread, shape...)
	}
	const h, q, kv = twinHidden, twinHeads * twinDim, twinKV * twinDim
	add("fc.weight", 0, 0.3, h, 2*h)
	add("midlayer.self_attn.q_proj.weight", 0, 0.5, q, 2*h)
	add("midlayer.self_attn.k_proj.weight", 0, 0.5, kv, 2*h)
	add("midlayer.self_attn.v_proj.weight", 0, 0.5, kv, 2*h)
	add("midlayer.self_attn.o_proj.weight", 0, 0.3, h, q)
	add("midlayer.mlp.gate_proj.weight", 0, 0.4, twinInter, h)
	add("midlayer.mlp.up_proj.weight", 0, 0.4, twinInter, h)
	add("midlayer.mlp.down_proj.weight", 0, 0.4, h, twinInter)
	for _, n := range []string{"midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm"} {
		add(n+".weight", 1, 0.3, h)
	}
	add("input_norm.weight", 1, 0.3, 2*h)
	add("lm_head.weight", 0, 0.5, twinDraft, h)
	add("embed_tokens.weight", 0, 1, twinVocab, h)
	f.ids("d2t", 3) // row i is token 4i
	return f.done(config)
}

// eagleTwin is the head of the paper's reference code, a row at a time, with the
// variants that published heads have.
type eagleTwin struct {
	twinFiles
	beforeFC, beforeResidual, output bool
	keys, values                     [][]float64
}

// step gives r for the row with features g and the token, at a position.
func (e *eagleTwin) step(g []float64, token, pos int) []float64 {
	emb := e.w["embed_tokens.weight"][token*twinHidden:][:twinHidden]
	residual, normed := g, e.norm("midlayer.hidden_norm", g)
	if e.beforeResidual {
		residual = normed
	}
	in := append(e.norm("midlayer.input_layernorm", emb), normed...)
	q := rotated(e.times("midlayer.self_attn.q_proj", in), pos)
	e.keys = append(e.keys, rotated(e.times("midlayer.self_attn.k_proj", in), pos))
	e.values = append(e.values, e.times("midlayer.self_attn.v_proj", in))
	x := sum(residual, e.times("midlayer.self_attn.o_proj", attention(q, e.keys, e.values)))
	r := sum(x, e.mlp("midlayer.mlp.", e.norm("midlayer.post_attention_layernorm", x)))
	if e.output {
		return e.norm("norm", r)
	}
	return r
}

// features gives g for the taps of a row.
func (e *eagleTwin) features(taps []float64) []float64 {
	if e.beforeFC {
		taps = e.norm("input_norm", taps)
	}
	return e.times("fc", taps)
}

// logits gives those of the row whose r is given.
func (e *eagleTwin) logits(r []float64) []float64 {
	if !e.output {
		r = e.norm("norm", r)
	}
	return e.times("lm_head", r)
}

// A pass over three rows of features and two rows that feed on the head's own
// output give what the formulas of EAGLE-3 give.
func TestEagle3Twin(t *testing.T) {
	with := func(more string) string {
		return strings.Replace(twinConfig, `"draft_vocab_size":10`, `"draft_vocab_size":10,`+more, 1)
	}
	t.Run("reference", func(t *testing.T) { eagle3Twin(t, &eagleTwin{twinFiles: newEagleFiles(t, twinConfig, false)}) })
	t.Run("normed residual", func(t *testing.T) {
		eagle3Twin(t, &eagleTwin{twinFiles: newEagleFiles(t, with(`"norm_before_residual":true`), false), beforeResidual: true})
	})
	t.Run("normed features", func(t *testing.T) {
		eagle3Twin(t, &eagleTwin{twinFiles: newEagleFiles(t, with(`"norm_before_fc":true`), false), beforeFC: true})
	})
	t.Run("normed output", func(t *testing.T) {
		eagle3Twin(t, &eagleTwin{twinFiles: newEagleFiles(t, with(`"norm_output":true`), false), output: true})
	})
	t.Run("speculators", func(t *testing.T) {
		config := `{"speculators_model_type":"eagle3","architectures":["Eagle3Speculator"],"draft_vocab_size":10,"norm_before_residual":true,
			"eagle_aux_hidden_state_layer_ids":[1,3],"transformer_layer_config":` + twinConfig + `}`
		eagle3Twin(t, &eagleTwin{twinFiles: newEagleFiles(t, config, true), beforeResidual: true})
	})
}

func eagle3Twin(t *testing.T, twin *eagleTwin) {
	t.Helper()
	m := twinModel(t)
	head, err := m.LoadEagle3(twin.dir)
	require.NoError(t, err)
	require.Equal(t, []int{1, 3}, head.Taps())
	require.Equal(t, []int32{0, 4, 8, 12, 16, 20, 24, 28, 32, 36}, head.Tokens())
	net, err := head.New(3, 3)
	require.NoError(t, err)
	defer net.Close()
	caches, q := twinCaches(t, m, head.Layer()), m.be.Queue()
	// Rows at positions 1, 2, 3, as a drafter lays them out, then 4 and 5.
	tokens := []int32{7, 39, 7, 11, 2}
	taps, rows := randomRows(t, m, 3, 2*twinHidden)
	b := chainOf(t, m, caches, 1, tokens[:3]...)
	hidden := net.Forward(q, &b, caches.Layer(0), net.Features(q, kernels.Buf{}, taps))
	var want []float64
	for i, x := range rows {
		want = twin.step(twin.features(x), int(tokens[i]), 1+i)
	}
	own, err := m.be.Alloc(kernels.Activations, kernels.BF16, 1, twinHidden)
	require.NoError(t, err)
	q.Copy(own, hidden.Slice(2, 3))
	for i := 3; ; i++ {
		requireRow(t, m, twin.logits(want), net.Logits(q, own))
		if i == len(tokens) {
			break
		}
		b := chainOf(t, m, caches, 1+i, tokens[i])
		q.Copy(own, net.Forward(q, &b, caches.Layer(0), own))
		want = twin.step(want, int(tokens[i]), 1+i)
	}
}

func TestHeadsRefused(t *testing.T) {
	f := newEagleFiles(t, twinConfig, false)
	m := twinModel(t)
	config := func(old, now string) {
		require.Contains(t, twinConfig, old)
		require.NoError(t, os.WriteFile(filepath.Join(f.dir, "config.json"), []byte(strings.Replace(twinConfig, old, now, 1)), 0o600))
	}
	_, err := m.LoadMedusa(f.dir)
	require.ErrorContains(t, err, "it is a head of kind eagle3; kind medusa was asked for")
	for _, c := range []struct{ old, now, want string }{
		{`"vocab_size":40`, `"vocab_size":41`, "vocab_size is 41; model random:twin has 40"},
		{`"hidden_size":16`, `"hidden_size":32`, "the target's hidden size is 32; model random:twin has 16"},
		{`[1,3]`, `[1,5]`, "it reads the target before layer 5; model random:twin has 4 layers"},
		{`[1,3]`, `[1,2,3]`, "tensor fc.weight has shape [16 32]; config.json asks for [16 48]"},
		{`"head_dim":8`, `"head_dim":16`, "tensor q_proj"},
		{`"vocab_size":40,"draft_vocab_size":10`, `"vocab_size":40,"draft_vocab_size":9`, "lm_head.weight"},
	} {
		config(c.old, c.now)
		_, err := m.LoadEagle3(f.dir)
		require.ErrorContains(t, err, f.dir)
		if c.want != "tensor q_proj" {
			require.ErrorContains(t, err, c.want)
		}
	}
	m.heads = nil
	_, err = m.LoadDFlash("")
	require.EqualError(t, err, `model random:twin comes with no dflash head; name the directory of one (head:), or "random"`)
}
