package ref

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// rig is a backend with shorthands for tests.
type rig struct {
	t   testing.TB
	be  *Backend
	q   kernels.Queue
	rnd *rand.Rand
}

func newRig(t testing.TB) *rig {
	be := New()
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	return &rig{t: t, be: be, q: be.Queue(), rnd: rand.New(rand.NewPCG(1, 2))}
}

// random returns n normal values that float32 holds.
func (r *rig) random(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(float32(r.rnd.NormFloat64()))
	}
	return x
}

func f32Bytes(x []float64) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return b
}

func source(rows, cols int, x []float64) kernels.Source {
	return kernels.Source{Name: "part", Rows: rows, Cols: cols, DType: kernels.DTypeF32, Data: bytes.NewReader(f32Bytes(x))}
}

// load takes a parameter in.
func (r *rig) load(use kernels.Use, rows, cols int, x []float64) kernels.Weight {
	w, err := r.be.Load(kernels.Tensor{Name: "w", Use: use, Parts: []kernels.Source{source(rows, cols, x)}})
	require.NoError(r.t, err)
	return w
}

// floats allocates a buffer and sets its float64 values directly, unrounded.
func (r *rig) floats(k kernels.Kind, rows, cols int, x []float64) kernels.Buf {
	b, err := r.be.Alloc(kernels.Activations, k, rows, cols)
	require.NoError(r.t, err)
	if x != nil {
		copy(r.be.bufs[b.ID].f, x)
	}
	return b
}

// values runs everything and returns a buffer's float64 values.
func (r *rig) values(b kernels.Buf) []float64 {
	require.NoError(r.t, r.q.Err())
	return r.be.bufs[b.ID].f
}

// chain returns a batch of one span: n rows of slot 0 from start.
func (r *rig) chain(start, n int) *kernels.Batch {
	b, err := kernels.NewBatch(r.be, 1, n, n)
	require.NoError(r.t, err)
	parent := make([]int32, n)
	pos := make([]int32, n)
	for i := range n {
		parent[i], pos[i] = int32(i-1), int32(start+i)
	}
	r.set(b.Start, int32(start))
	r.set(b.Len, int32(n))
	r.set(b.Pos, pos...)
	r.set(b.Parent, parent...)
	return &b
}

func (r *rig) set(b kernels.Buf, x ...int32) {
	copy(r.be.bufs[b.ID].i, x)
}
