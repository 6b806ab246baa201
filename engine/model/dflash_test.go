package model

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Medusa's heads give silu layers with residuals and a matrix each, over the mapped
// vocabulary, from either layout of the file.
func TestMedusaTwin(t *testing.T) {
	for _, original := range []bool{false, true} {
		f := newHeadWriter(t)
		for i := range 2 {
			for j := range 3 {
				name := fmt.Sprintf("blocks.%d.layers.%d.weight", i, j)
				as := name
				if original {
					as = fmt.Sprintf("%d.%d.linear.weight", i, j)
				}
				f.add(name, as, 0, 0.5, twinHidden, twinHidden)
			}
			name := fmt.Sprintf("lm_heads.%d.weight", i)
			as := name
			if original {
				as = fmt.Sprintf("%d.3.weight", i)
			}
			f.add(name, as, 0, 0.5, twinDraft, twinHidden)
		}
		f.ids("token_map", 3)
		files := f.done(`{"model_type":"medusa","hidden_size":16,"vocab_size":40,"truncated_vocab_size":10,"num_heads":2,"num_hidden_layers":3}`)
		m := twinModel(t)
		heads, err := m.LoadMedusa(files.dir)
		require.NoError(t, err)
		require.Equal(t, 2, heads.Heads())
		require.Equal(t, []int32{0, 3, 6, 9, 12, 15, 18, 21, 24, 27}, heads.Tokens())
		net, err := heads.New(2)
		require.NoError(t, err)
		hidden, rows := randomRows(t, m, 2, twinHidden)
		for i := range 2 {
			logits := net.Logits(m.be.Queue(), i, hidden)
			for r, x := range rows {
				for j := range 3 {
					y := files.times(fmt.Sprintf("blocks.%d.layers.%d", i, j), x)
					for k, v := range y {
						y[k] = silu(v) + x[k]
					}
					x = y
				}
				requireRow(t, m, files.times(fmt.Sprintf("lm_heads.%d", i), x), logits.Slice(r, r+1))
			}
		}
		net.Close()
	}
}

const dflashTwin = `{"architectures":["DFlashDraftModel"],"model_type":"qwen3","hidden_size":16,"intermediate_size":24,"num_hidden_layers":2,
	"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"vocab_size":40,"max_position_embeddings":64,"rms_norm_eps":1e-6,"rope_theta":1e4,
	"block_size":4,"dflash_config":{"mask_token_id":39,"target_layer_ids":[0,3],"causal":true}}`

// A block over the features of five positions, of which two came in a second pass,
// gives what the formulas of DFlash give, with causal attention in the block.
func TestDFlashTwin(t *testing.T) {
	f := newHeadWriter(t)
	const h, q, kv = twinHidden, twinHeads * twinDim, twinKV * twinDim
	f.add("fc.weight", "fc.weight", 0, 0.3, h, 2*h)
	for _, n := range []string{"hidden_norm", "norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm", "layers.1.input_layernorm", "layers.1.post_attention_layernorm"} {
		f.add(n+".weight", n+".weight", 1, 0.3, h)
	}
	for i := range 2 {
		p := fmt.Sprintf("layers.%d.", i)
		for _, s := range []struct {
			name       string
			rows, cols int
		}{
			{"self_attn.q_proj", q, h}, {"self_attn.k_proj", kv, h}, {"self_attn.v_proj", kv, h}, {"self_attn.o_proj", h, q},
			{"mlp.gate_proj", twinInter, h}, {"mlp.up_proj", twinInter, h}, {"mlp.down_proj", h, twinInter},
		} {
			f.add(p+s.name+".weight", p+s.name+".weight", 0, 0.4, s.rows, s.cols)
		}
		f.add(p+"self_attn.q_norm.weight", p+"self_attn.q_norm.weight", 1, 0.3, twinDim)
		f.add(p+"self_attn.k_norm.weight", p+"self_attn.k_norm.weight", 1, 0.3, twinDim)
	}
	files := f.done(dflashTwin)
	m := twinModel(t)
	head, err := m.LoadDFlash(files.dir)
	require.NoError(t, err)
	require.Equal(t, []int{1, 4}, head.Taps())
	require.Equal(t, 3, head.Most())
	net, err := head.New(4, 4)
	require.NoError(t, err)
	defer net.Close()
	caches, queue := twinCaches(t, m, head.Layers()...), m.be.Queue()
	taps, rows := randomRows(t, m, 5, 2*twinHidden)
	for _, part := range [][2]int{{0, 3}, {3, 5}} {
		b := chainOf(t, m, caches, part[0], make([]int32, part[1]-part[0])...)
		net.Context(queue, &b, caches.Layer, taps.Slice(part[0], part[1]))
	}
	block := []int32{11, head.Mask(), head.Mask()}
	b := chainOf(t, m, caches, 5, block...)
	got := net.Forward(queue, &b, caches.Layer)

	embed := targetEmbedding(t, m)
	for i, w := range dflashRows(files, embed, rows, block) {
		var logits []float64
		for id := range twinVocab {
			sum := 0.0
			for j, v := range w {
				sum += v * embed[id*h+j]
			}
			logits = append(logits, sum)
		}
		requireRow(t, m, logits, net.Logits(queue, got.Slice(i, i+1)))
	}
}

// targetEmbedding is the embedding of twinModel, which is its LM head too.
func targetEmbedding(t *testing.T, m *Model) []float64 {
	t.Helper()
	src, err := m.heads.(Random).Matrix("model.embed_tokens.weight", twinVocab, twinHidden)
	require.NoError(t, err)
	raw := make([]byte, 2*twinVocab*twinHidden)
	_, err = src.Data.ReadAt(raw, 0)
	require.NoError(t, err)
	out := make([]float64, twinVocab*twinHidden)
	for i := range out {
		out[i] = float64(math.Float32frombits(uint32(raw[2*i])<<16 | uint32(raw[2*i+1])<<24))
	}
	return out
}

// dflashRows gives the normed hidden states of the block that follows the taps.
func dflashRows(f twinFiles, embed []float64, taps [][]float64, block []int32) [][]float64 {
	var context, x [][]float64
	for _, row := range taps {
		context = append(context, f.norm("hidden_norm", f.times("fc", row)))
	}
	for _, id := range block {
		x = append(x, embed[int(id)*twinHidden:][:twinHidden])
	}
	for i := range 2 {
		p := fmt.Sprintf("layers.%d.", i)
		at := p + "self_attn."
		var keys, values [][]float64
		add := func(row []float64) {
			keys = append(keys, rotated(f.norm(at+"k_norm", f.times(at+"k_proj", row)), len(keys)))
			values = append(values, f.times(at+"v_proj", row))
		}
		for _, c := range context {
			add(c)
		}
		for r, row := range x {
			y := f.norm(p+"input_layernorm", row)
			add(y)
			q := rotated(f.norm(at+"q_norm", f.times(at+"q_proj", y)), len(context)+r)
			z := sum(row, f.times(at+"o_proj", attention(q, keys, values)))
			x[r] = sum(z, f.mlp(p+"mlp.", f.norm(p+"post_attention_layernorm", z)))
		}
	}
	for r := range x {
		x[r] = f.norm("norm", x[r])
	}
	return x
}
