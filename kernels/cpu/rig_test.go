package cpu

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// rig is a backend with helpers that fail the test.
type rig struct {
	t testing.TB
	b *Backend
	q kernels.Queue
}

func newRig(t testing.TB, threads int, set string) *rig {
	b, err := New(Options{Threads: threads, Kernels: set})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &rig{t: t, b: b, q: b.Queue()}
}

// sets are the names of the kernel sets of this machine.
func sets() (names []string) {
	for _, s := range vec.Sets() {
		names = append(names, s.Name)
	}
	return names
}

// random returns n BF16 numbers of about unit size times scale.
func random(seed uint64, n int, scale float64) []uint16 {
	r := rand.New(rand.NewPCG(seed, 7))
	x := make([]uint16, n)
	for i := range x {
		x[i] = vec.BF16(float32(r.NormFloat64() * scale))
	}
	return x
}

func wide(x []uint16) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(vec.F32(v))
	}
	return y
}

func raw16(x []uint16) []byte {
	b := make([]byte, 2*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint16(b[2*i:], v)
	}
	return b
}

func raw32(x []float32) []byte {
	b := make([]byte, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return b
}

func rawI32(x []int32) []byte {
	b := make([]byte, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(v))
	}
	return b
}

// part is one source of BF16 rows.
func part(name string, rows, cols int, x []uint16) kernels.Source {
	return kernels.Source{Name: name, Rows: rows, Cols: cols, DType: kernels.DTypeBF16, Data: bytes.NewReader(raw16(x))}
}

func (r *rig) load(use kernels.Use, paired bool, parts ...kernels.Source) kernels.Weight {
	w, err := r.b.Load(kernels.Tensor{Name: parts[0].Name, Use: use, Paired: paired, Parts: parts})
	require.NoError(r.t, err)
	return w
}

func (r *rig) matrix(seed uint64, rows, cols int) (kernels.Weight, []uint16) {
	x := random(seed, rows*cols, 1/math.Sqrt(float64(cols)))
	return r.load(kernels.Matrix, false, part("w", rows, cols, x)), x
}

func (r *rig) vector(seed uint64, n int, scale float64) (kernels.Weight, []uint16) {
	x := random(seed, n, scale)
	return r.load(kernels.Vector, false, part("v", 1, n, x)), x
}

func (r *rig) alloc(k kernels.Kind, rows, cols int) kernels.Buf {
	b, err := r.b.Alloc(kernels.Activations, k, rows, cols)
	require.NoError(r.t, err)
	return b
}

func (r *rig) put16(rows, cols int, x []uint16) kernels.Buf {
	b := r.alloc(kernels.BF16, rows, cols)
	r.q.Write(b, raw16(x))
	return b
}

func (r *rig) putI32(x ...int32) kernels.Buf {
	b := r.alloc(kernels.I32, len(x), 1)
	r.q.Write(b, rawI32(x))
	return b
}

func (r *rig) bytes(b kernels.Buf) []byte {
	x := make([]byte, b.Bytes())
	require.NoError(r.t, r.q.Read(x, b).Wait())
	return x
}

func (r *rig) get16(b kernels.Buf) []uint16 {
	raw := r.bytes(b)
	x := make([]uint16, len(raw)/2)
	for i := range x {
		x[i] = binary.LittleEndian.Uint16(raw[2*i:])
	}
	return x
}

func (r *rig) getF32(b kernels.Buf) []float32 {
	raw := r.bytes(b)
	x := make([]float32, len(raw)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return x
}

func (r *rig) getI32(b kernels.Buf) []int32 {
	raw := r.bytes(b)
	x := make([]int32, len(raw)/4)
	for i := range x {
		x[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return x
}

// piece is a span of a test's batch.
type piece struct{ slot, start, n int }

// batch allocates tables for at most spans spans and rows rows.
func (r *rig) batch(spans, rows, logits int) kernels.Batch {
	b, err := kernels.NewBatch(r.b, spans, rows, logits)
	require.NoError(r.t, err)
	return b
}

// lay writes the tables of a batch of chains, cut to what is used.
func (r *rig) lay(full kernels.Batch, chunks ...piece) kernels.Batch {
	var seq, start, length, off, token, pos, parent, span []int32
	for s, c := range chunks {
		seq, start, length = append(seq, int32(c.slot)), append(start, int32(c.start)), append(length, int32(c.n))
		off = append(off, int32(len(token)))
		for i := range c.n {
			token, pos = append(token, 0), append(pos, int32(c.start+i))
			parent, span = append(parent, int32(i-1)), append(span, int32(s))
		}
	}
	b := full.Prefix(len(chunks), len(token), full.LogitRows)
	for _, w := range []struct {
		dst kernels.Buf
		x   []int32
	}{{b.Seq, seq}, {b.Start, start}, {b.Len, length}, {b.RowOff, off}, {b.Token, token}, {b.Pos, pos}, {b.Parent, parent}, {b.Span, span}} {
		r.q.Write(w.dst, rawI32(w.x))
	}
	return b
}

// near requires |got - want| within tol of the largest |want|.
func near(t testing.TB, want []float64, got []float32, tol float64, msg string) {
	t.Helper()
	require.Len(t, got, len(want), msg)
	most := 0.0
	for _, v := range want {
		most = max(most, math.Abs(v))
	}
	for i, v := range want {
		if d := math.Abs(float64(got[i]) - v); !(d <= tol*most) {
			require.Failf(t, "too far", "%s: element %d is %g, want %g (off by %.3g of the largest)", msg, i, got[i], v, d/most)
		}
	}
}

func widened(x []uint16) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = vec.F32(v)
	}
	return y
}
