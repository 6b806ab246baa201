package model

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ref"
)

// The twins of heads: the formulas of the papers, in float64 and a row at a time,
// over the same files.
const (
	twinHidden, twinInter, twinHeads, twinKV, twinDim, twinVocab, twinDraft = 16, 24, 4, 2, 8, 40, 10
	twinTheta, twinEps                                                      = 1e4, 1e-6
)

// twinModel is a target of four layers on ref.
func twinModel(t *testing.T) *Model {
	t.Helper()
	c := hybrid(twinHidden, 24, 4, 2, 1, 8, checkpoint.GDN{NumKHeads: 1, NumVHeads: 2, KDim: 8, VDim: 8, ConvKernel: 4, OutputGate: checkpoint.SiLU}, twinVocab, 1e4)
	m, err := Load(ref.New(), Random{ShapeName: "twin", Shape: c, Seed: 3}, Options{MaxTokens: 64})
	require.NoError(t, err)
	return m
}

// headWriter makes up a head's tensors and writes them.
type headWriter struct {
	twinFiles
	t    *testing.T
	rand *rand.Rand
	data []checkpoint.Data
}

// twinFiles are a head's tensors in float64, and where its files are.
type twinFiles struct {
	dir string
	w   map[string][]float64
}

func newHeadWriter(t *testing.T) *headWriter {
	t.Helper()
	return &headWriter{twinFiles: twinFiles{t.TempDir(), map[string][]float64{}}, t: t, rand: rand.New(rand.NewPCG(1, 2))}
}

// add makes up a tensor, called name, and in the file as.
func (h *headWriter) add(name, as string, mean, spread float64, shape ...int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	bits := make([]uint16, n)
	for i := range bits {
		bits[i], h.w[name] = bf16Of(mean+spread*(2*h.rand.Float64()-1), h.w[name])
	}
	h.data = append(h.data, checkpoint.Uint16Data(as, checkpoint.BF16, shape, bits))
}

// ids adds an integer tensor of values step*i.
func (h *headWriter) ids(name string, step int) {
	raw := make([]byte, 8*twinDraft)
	for i := range twinDraft {
		binary.LittleEndian.PutUint64(raw[8*i:], uint64(step*i))
	}
	h.data = append(h.data, checkpoint.Data{Name: name, DType: checkpoint.I64, Shape: []int{twinDraft}, Bytes: raw})
}

// done writes the files.
func (h *headWriter) done(config string) twinFiles {
	file, err := os.Create(filepath.Join(h.dir, "model.safetensors"))
	require.NoError(h.t, err)
	require.NoError(h.t, checkpoint.WriteSafetensors(file, h.data, nil))
	require.NoError(h.t, file.Close())
	require.NoError(h.t, os.WriteFile(filepath.Join(h.dir, "config.json"), []byte(config), 0o600))
	return h.twinFiles
}

// bf16Of rounds a value down to BF16 and appends what is left of it to list.
func bf16Of(v float64, list []float64) (uint16, []float64) {
	bits := uint16(math.Float32bits(float32(v)) >> 16)
	return bits, append(list, float64(math.Float32frombits(uint32(bits)<<16)))
}

// randomRows writes n rows of cols values to a new buffer and returns both.
func randomRows(t *testing.T, m *Model, n, cols int) (kernels.Buf, [][]float64) {
	t.Helper()
	r, raw, rows := rand.New(rand.NewPCG(3, 4)), []byte{}, make([][]float64, n)
	for i := range rows {
		for range cols {
			var bits uint16
			bits, rows[i] = bf16Of(2*r.Float64()-1, rows[i])
			raw = binary.LittleEndian.AppendUint16(raw, bits)
		}
	}
	b, err := m.be.Alloc(kernels.Activations, kernels.BF16, n, cols)
	require.NoError(t, err)
	m.be.Queue().Write(b, raw)
	return b, rows
}

// twinCaches has one slot of one page.
func twinCaches(t *testing.T, m *Model, layers ...kernels.LayerSpec) kernels.Caches {
	t.Helper()
	c, err := m.be.Caches(kernels.CacheSpec{Layers: layers, Slots: 1, Pages: 1, SlotPages: 1, MaxDraft: 8})
	require.NoError(t, err)
	m.be.Queue().Reset(c, 0)
	m.be.Queue().SetPages(c, 0, 0, []int32{0})
	return c
}

// chainOf lays out the tokens from position ahead on.
func chainOf(t *testing.T, m *Model, c kernels.Caches, ahead int, ids ...int32) kernels.Batch {
	t.Helper()
	n, q := len(ids), m.be.Queue()
	b, err := kernels.NewBatch(m.be, 1, n, n)
	require.NoError(t, err)
	b.MaxLen = n
	list, err := m.be.Alloc(kernels.Tables, kernels.I32, 1, n)
	require.NoError(t, err)
	q.Write(list, ints(ids))
	q.Write(b.Seq, ints([]int32{0}))
	rest := kernels.Buf{}
	if n > 1 {
		rest = list.Columns(1, n)
	}
	q.Chain(&b, c, ahead, list.Columns(0, 1), rest)
	return b
}

// requireRow compares a row of logits.
func requireRow(t *testing.T, m *Model, want []float64, got kernels.Buf) {
	t.Helper()
	raw := make([]byte, 4*len(want))
	require.NoError(t, m.be.Queue().Read(raw, got).Wait())
	for j, w := range want {
		require.InDelta(t, w, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:]))), 1e-5, "column %d", j)
	}
}

func ints(s []int32) []byte {
	var out []byte
	for _, v := range s {
		out = binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	return out
}

func (f twinFiles) times(name string, x []float64) []float64 {
	w := f.w[name+".weight"]
	y := make([]float64, len(w)/len(x))
	for i := range y {
		for j, v := range x {
			y[i] += w[i*len(x)+j] * v
		}
	}
	return y
}

// norm normalises x, in groups as wide as the weight.
func (f twinFiles) norm(name string, x []float64) []float64 {
	w, y := f.w[name+".weight"], []float64{}
	for at := 0; at < len(x); at += len(w) {
		sum := 0.0
		for _, v := range x[at : at+len(w)] {
			sum += v * v
		}
		for i, v := range x[at : at+len(w)] {
			y = append(y, v/math.Sqrt(sum/float64(len(w))+twinEps)*w[i])
		}
	}
	return y
}

// mlp is down(silu(gate) * up).
func (f twinFiles) mlp(prefix string, x []float64) []float64 {
	gate, up := f.times(prefix+"gate_proj", x), f.times(prefix+"up_proj", x)
	for i, v := range gate {
		gate[i] = silu(v) * up[i]
	}
	return f.times(prefix+"down_proj", gate)
}

func silu(v float64) float64 { return v / (1 + math.Exp(-v)) }

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

// attention mixes values by the queries of a row.
func attention(q []float64, keys, values [][]float64) (mixed []float64) {
	for h := range twinHeads {
		kv := h / (twinHeads / twinKV) * twinDim
		weights, total := make([]float64, len(keys)), 0.0
		for i, k := range keys {
			for d := range twinDim {
				weights[i] += q[h*twinDim+d] * k[kv+d]
			}
			weights[i] = math.Exp(weights[i] / math.Sqrt(twinDim))
			total += weights[i]
		}
		out := make([]float64, twinDim)
		for i, v := range values {
			for d := range out {
				out[d] += weights[i] / total * v[kv+d]
			}
		}
		mixed = append(mixed, out...)
	}
	return mixed
}

func sum(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}
