package model

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ref"
)

// headGolden is a head of testdata/heads with what make_head_goldens.py found, and its
// target.
type headGolden struct {
	t      *testing.T
	m      *Model
	dir    string
	floats map[string][]float32
	ints   map[string][]int32
}

func openGolden(t *testing.T, name string) *headGolden {
	t.Helper()
	ck, err := checkpoint.Open(filepath.Join("testdata", "qwen3_5"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ck.Close()) })
	be := ref.New()
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	m, err := Load(be, Checkpoint{Checkpoint: ck}, Options{MaxTokens: 64})
	require.NoError(t, err)
	g := &headGolden{t: t, m: m, dir: filepath.Join("testdata", "heads", name), floats: map[string][]float32{}, ints: map[string][]int32{}}
	raw, err := os.ReadFile(filepath.Join(g.dir, "golden.safetensors"))
	require.NoError(t, err)
	tensors, err := checkpoint.ReadSafetensors(raw)
	require.NoError(t, err)
	for _, x := range tensors {
		if x.DType == checkpoint.F32 {
			g.floats[x.Name], err = x.Float32s()
			require.NoError(t, err)
			continue
		}
		for b := x.Bytes(); len(b) > 0; b = b[4:] {
			g.ints[x.Name] = append(g.ints[x.Name], int32(binary.LittleEndian.Uint32(b)))
		}
	}
	return g
}

// rows puts a tensor of cols columns, whose values BF16 has, into the backend.
func (g *headGolden) rows(name string, cols int) kernels.Buf {
	x := g.floats[name]
	require.NotEmpty(g.t, x)
	buf, err := g.m.be.Alloc(kernels.Activations, kernels.BF16, len(x)/cols, cols)
	require.NoError(g.t, err)
	var raw []byte
	for _, v := range x {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(v)>>16))
	}
	g.m.be.Queue().Write(buf, raw)
	return buf
}

// column puts ids into the backend.
func (g *headGolden) column(ids ...int32) kernels.Buf {
	buf, err := g.m.be.Alloc(kernels.Tables, kernels.I32, len(ids), 1)
	require.NoError(g.t, err)
	g.m.be.Queue().Write(buf, ints(ids))
	return buf
}

// read returns the values of F32 rows.
func (g *headGolden) read(b kernels.Buf) []float32 {
	raw := make([]byte, b.Bytes())
	require.NoError(g.t, g.m.be.Queue().Read(raw, b).Wait())
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// row compares row i of the golden logits, within 1e-4 of its largest.
func (g *headGolden) row(i int, have []float32) {
	want := g.floats["logits"][i*len(have):][:len(have)]
	top, diff := 0.0, 0.0
	for j, v := range want {
		top, diff = max(top, math.Abs(float64(v))), max(diff, math.Abs(float64(v)-float64(have[j])))
	}
	require.Less(g.t, diff/top, 1e-4, "row %d", i)
}

// A block of a DSpark head and its chain of Markov steps are torch's, in both layouts.
func TestDSparkGolden(t *testing.T) {
	for name, c := range map[string]struct {
		lead, most, drafted int
	}{"dspark": {0, 5, 144}, "dspark_fill": {1, 4, 40}} {
		t.Run(name, func(t *testing.T) {
			g := openGolden(t, name)
			head, err := g.m.LoadDSpark(g.dir)
			require.NoError(t, err)
			require.Equal(t, []int{1, 3}, head.Taps())
			require.Equal(t, []int{c.lead, c.most}, []int{head.Lead(), head.Most()})
			require.True(t, head.Confident())
			net, err := head.New(8, 1)
			require.NoError(t, err)
			defer net.Close()
			require.Equal(t, c.drafted, net.Drafted())
			caches, q := twinCaches(t, g.m, head.Layers()...), g.m.be.Queue()
			b := chainOf(t, g.m, caches, 0, make([]int32, 7)...)
			net.Context(q, &b, caches.Layer, g.rows("taps", 2*g.m.Config.HiddenSize))
			block := append([]int32(nil), g.ints["last"]...)
			for len(block) < c.most+c.lead {
				block = append(block, head.Mask())
			}
			b = chainOf(t, g.m, caches, 7, block...)
			hidden := net.Forward(q, &b, caches.Layer)
			before := g.ints["last"][0]
			for i, want := range g.ints["drafts"] {
				logits, confidence := net.Step(q, hidden.Slice(c.lead+i, c.lead+i+1), g.column(before))
				row := g.read(logits)
				g.row(i, row)
				require.InDelta(t, g.floats["sure"][i], head.Sure(g.read(confidence)[0]), 1e-4)
				best := 0
				for j, v := range row {
					if v > row[best] {
						best = j
					}
				}
				if before = int32(best); head.Tokens() != nil {
					before = head.Tokens()[best]
				}
				require.Equal(t, want, before)
			}
		})
	}
}

// A pass of an EAGLE head over five rows of the target's hidden states and two rows that
// feed on the head's own output are torch's.
func TestEagleGolden(t *testing.T) {
	g := openGolden(t, "eagle")
	head, err := g.m.LoadEagle(g.dir)
	require.NoError(t, err)
	net, err := head.New(5, 5)
	require.NoError(t, err)
	defer net.Close()
	require.Equal(t, []int{48, 144}, []int{net.Width(), net.Drafted()})
	caches, q := twinCaches(t, g.m, head.Layer()), g.m.be.Queue()
	tokens := g.ints["tokens"]
	b := chainOf(t, g.m, caches, 1, tokens[:5]...)
	hidden := net.Forward(q, &b, caches.Layer(0), net.Features(q, g.rows("features", 48), kernels.Buf{}))
	for i := range 5 {
		g.row(i, g.read(net.Logits(q, hidden.Slice(i, i+1))))
	}
	own := g.rows("features", 48).Top(1)
	q.Copy(own, hidden.Slice(4, 5))
	for i := 5; i < len(tokens); i++ {
		b := chainOf(t, g.m, caches, 1+i, tokens[i])
		q.Copy(own, net.Forward(q, &b, caches.Layer(0), own))
		g.row(i, g.read(net.Logits(q, own)))
	}
}
