package model

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ref"
)

// eagleFiles are a head's tensors in float64, and their files.
type eagleFiles struct {
	dir string
	w   map[string][]float64
}

const (
	twinHidden, twinInter, twinHeads, twinKV, twinDim, twinVocab, twinDraft = 16, 24, 4, 2, 8, 40, 10
	twinTheta, twinEps                                                      = 1e4, 1e-6
)

// newEagleFiles writes a random head by its published names.
func newEagleFiles(t *testing.T, config string) eagleFiles {
	t.Helper()
	f := eagleFiles{t.TempDir(), map[string][]float64{}}
	r := rand.New(rand.NewPCG(1, 2))
	var data []checkpoint.Data
	add := func(name string, mean, spread float64, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		bits := make([]uint16, n)
		for i := range bits {
			bits[i] = uint16(math.Float32bits(float32(mean+spread*(2*r.Float64()-1))) >> 16)
			f.w[name] = append(f.w[name], float64(math.Float32frombits(uint32(bits[i])<<16)))
		}
		data = append(data, checkpoint.Uint16Data(name, checkpoint.BF16, shape, bits))
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
	add("lm_head.weight", 0, 0.5, twinDraft, h)
	add("embed_tokens.weight", 0, 1, twinVocab, h)
	d2t := make([]byte, 8*twinDraft)
	for i := range twinDraft {
		binary.LittleEndian.PutUint64(d2t[8*i:], uint64(3*i)) // row i is token 4i
	}
	data = append(data, checkpoint.Data{Name: "d2t", DType: checkpoint.I64, Shape: []int{twinDraft}, Bytes: d2t})
	file, err := os.Create(filepath.Join(f.dir, "model.safetensors"))
	require.NoError(t, err)
	require.NoError(t, checkpoint.WriteSafetensors(file, data, nil))
	require.NoError(t, file.Close())
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "config.json"), []byte(config), 0o600))
	return f
}

func (f eagleFiles) times(name string, x []float64) []float64 {
	w := f.w[name+".weight"]
	y := make([]float64, len(w)/len(x))
	for i := range y {
		for j, v := range x {
			y[i] += w[i*len(x)+j] * v
		}
	}
	return y
}

func (f eagleFiles) norm(name string, x []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(sum/float64(len(x))+twinEps) * f.w[name+".weight"][i]
	}
	return y
}

// rotated turns the pairs (i, i+dim/2) of each head.
func rotated(x []float64, pos int) []float64 {
	y := make([]float64, len(x))
	for at := 0; at < len(x); at += twinDim {
		for i := range twinDim / 2 {
			sin, cos := math.Sincos(float64(pos) * math.Pow(twinTheta, -2*float64(i)/twinDim))
			a, b := x[at+i], x[at+twinDim/2+i]
			y[at+i], y[at+twinDim/2+i] = a*cos-b*sin, b*cos+a*sin
		}
	}
	return y
}

func sum(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}

// eagleTwin is the head of the paper's reference code, a row at a time.
type eagleTwin struct {
	eagleFiles
	keys, values [][]float64
}

// step gives r for the row with features g and the token, at a position.
func (e *eagleTwin) step(g []float64, token, pos int) []float64 {
	emb := e.w["embed_tokens.weight"][token*twinHidden:][:twinHidden]
	in := append(e.norm("midlayer.input_layernorm", emb), e.norm("midlayer.hidden_norm", g)...)
	q := rotated(e.times("midlayer.self_attn.q_proj", in), pos)
	e.keys = append(e.keys, rotated(e.times("midlayer.self_attn.k_proj", in), pos))
	e.values = append(e.values, e.times("midlayer.self_attn.v_proj", in))
	var mixed []float64
	for h := range twinHeads {
		kv := h / (twinHeads / twinKV) * twinDim
		weights, total := make([]float64, len(e.keys)), 0.0
		for i, k := range e.keys {
			for d := range twinDim {
				weights[i] += q[h*twinDim+d] * k[kv+d]
			}
			weights[i] = math.Exp(weights[i] / math.Sqrt(twinDim))
			total += weights[i]
		}
		out := make([]float64, twinDim)
		for i, v := range e.values {
			for d := range out {
				out[d] += weights[i] / total * v[kv+d]
			}
		}
		mixed = append(mixed, out...)
	}
	x := sum(g, e.times("midlayer.self_attn.o_proj", mixed))
	y := e.norm("midlayer.post_attention_layernorm", x)
	gate, up := e.times("midlayer.mlp.gate_proj", y), e.times("midlayer.mlp.up_proj", y)
	for i, v := range gate {
		gate[i] = v / (1 + math.Exp(-v)) * up[i]
	}
	return sum(x, e.times("midlayer.mlp.down_proj", gate))
}

const twinConfig = `{"architectures":["LlamaForCausalLMEagle3"],"model_type":"llama","hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,
	"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"vocab_size":40,"draft_vocab_size":10,"max_position_embeddings":64,
	"rms_norm_eps":1e-6,"eagle_aux_hidden_state_layer_ids":[1,3]}`

func twinModel(t *testing.T) *Model {
	t.Helper()
	c := hybrid(twinHidden, 24, 4, 2, 1, 8, checkpoint.GDN{NumKHeads: 1, NumVHeads: 2, KDim: 8, VDim: 8, ConvKernel: 4, OutputGate: checkpoint.SiLU}, twinVocab, 1e4)
	m, err := Load(ref.New(), Random{ShapeName: "twin", Shape: c, Seed: 3}, Options{MaxTokens: 64})
	require.NoError(t, err)
	return m
}

// A pass over three rows of features and two rows that feed on the head's own
// output give what the formulas of EAGLE-3 give.
func TestEagle3Twin(t *testing.T) {
	f := newEagleFiles(t, twinConfig)
	m := twinModel(t)
	head, err := m.LoadEagle3(f.dir)
	require.NoError(t, err)
	require.Equal(t, []int{1, 3}, head.Taps())
	require.Equal(t, []int32{0, 4, 8, 12, 16, 20, 24, 28, 32, 36}, head.Tokens())
	net, err := head.New(3, 3)
	require.NoError(t, err)
	defer net.Close()
	be := m.Backend()
	caches, err := be.Caches(kernels.CacheSpec{Layers: []kernels.LayerSpec{head.Layer()}, Slots: 1, Pages: 1, SlotPages: 1, MaxDraft: 8})
	require.NoError(t, err)
	q := be.Queue()
	q.Reset(caches, 0)
	q.SetPages(caches, 0, 0, []int32{0})
	alloc := func(kind kernels.Kind, rows, cols int) kernels.Buf {
		b, err := be.Alloc(kernels.Activations, kind, rows, cols)
		require.NoError(t, err)
		return b
	}
	// Rows at positions 1, 2, 3, as a drafter lays them out, then 4 and 5.
	tokens := []int32{7, 39, 7, 11, 2}
	batch := func(n, ahead int, ids []int32) kernels.Batch {
		b, err := kernels.NewBatch(be, 1, n, n)
		require.NoError(t, err)
		b.MaxLen = n
		list := alloc(kernels.I32, 1, n)
		q.Write(list, ints(ids))
		q.Write(b.Seq, ints([]int32{0}))
		rest := kernels.Buf{}
		if n > 1 {
			rest = list.Columns(1, n)
		}
		q.Chain(&b, caches, ahead, list.Columns(0, 1), rest)
		return b
	}
	taps := alloc(kernels.BF16, 3, 2*twinHidden)
	r, bits, features := rand.New(rand.NewPCG(3, 4)), []byte{}, [3][]float64{}
	for i := range features {
		for range 2 * twinHidden {
			b := uint16(math.Float32bits(float32(2*r.Float64()-1)) >> 16)
			bits = binary.LittleEndian.AppendUint16(bits, b)
			features[i] = append(features[i], float64(math.Float32frombits(uint32(b)<<16)))
		}
	}
	q.Write(taps, bits)

	twin := &eagleTwin{eagleFiles: f}
	b := batch(3, 1, tokens[:3])
	hidden := net.Forward(q, &b, caches.Layer(0), net.Features(q, kernels.Buf{}, taps))
	var want []float64
	for i, x := range features {
		want = twin.step(f.times("fc", x), int(tokens[i]), 1+i)
	}
	own := alloc(kernels.BF16, 1, twinHidden)
	q.Copy(own, hidden.Slice(2, 3))
	for i := 3; ; i++ {
		logits := make([]byte, 4*twinDraft)
		require.NoError(t, q.Read(logits, net.Logits(q, own)).Wait())
		for j, w := range f.times("lm_head", f.norm("norm", want)) {
			require.InDelta(t, w, float64(math.Float32frombits(binary.LittleEndian.Uint32(logits[4*j:]))), 1e-5, "row %d, column %d", i, j)
		}
		if i == len(tokens) {
			break
		}
		b := batch(1, 1+i, tokens[i:i+1])
		q.Copy(own, net.Forward(q, &b, caches.Layer(0), own))
		want = twin.step(want, int(tokens[i]), 1+i)
	}
}

func ints(s []int32) []byte {
	var out []byte
	for _, v := range s {
		out = binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	return out
}

func TestHeadsRefused(t *testing.T) {
	f := newEagleFiles(t, twinConfig)
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
