package kerneltest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ref"
)

// rig is a backend under test with shorthands. Two rigs made with one seed draw
// the same numbers.
type rig struct {
	t   *testing.T
	be  kernels.Backend
	q   kernels.Queue
	o   Options
	rnd *rand.Rand
}

func (s suite) rig(t *testing.T, seed uint64) *rig {
	return newRig(t, s.open(t), s.o, seed)
}

func refRig(t *testing.T, seed uint64) *rig {
	return newRig(t, ref.New(), Options{Float64: true, Trees: true}, seed)
}

func newRig(t *testing.T, be kernels.Backend, o Options, seed uint64) *rig {
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	return &rig{t: t, be: be, q: be.Queue(), o: o, rnd: rand.New(rand.NewPCG(seed, 0x6b65726e))}
}

// normal returns n normal values times scale that BF16 holds.
func (r *rig) normal(n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = toBF16(float32(r.rnd.NormFloat64() * scale))
	}
	return x
}

// uniform returns n float32 values in [lo, hi) that BF16 does not hold in
// general.
func (r *rig) uniform(n int, lo, hi float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(lo + (hi-lo)*r.rnd.Float64())
	}
	return x
}

func toBF16(f float32) float32 {
	b := math.Float32bits(f)
	return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
}

// pack returns x as little-endian elements of a kind.
func pack(k kernels.Kind, x []float32) []byte {
	b := make([]byte, 0, len(x)*k.Size())
	for _, v := range x {
		if k == kernels.BF16 {
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(v)>>16))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

func packInts(x []int32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// unpack reads elements of a float kind.
func unpack(k kernels.Kind, b []byte) []float32 {
	var x []float32
	for ; len(b) > 0; b = b[k.Size():] {
		if k == kernels.BF16 {
			x = append(x, math.Float32frombits(uint32(binary.LittleEndian.Uint16(b))<<16))
		} else {
			x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	}
	return x
}

func unpackInts(b []byte) []int32 {
	var x []int32
	for ; len(b) > 0; b = b[4:] {
		x = append(x, int32(binary.LittleEndian.Uint32(b)))
	}
	return x
}

// alloc allocates a zeroed buffer.
func (r *rig) alloc(k kernels.Kind, rows, cols int) kernels.Buf {
	p := kernels.Activations
	if k == kernels.I32 {
		p = kernels.Tables
	}
	b, err := r.be.Alloc(p, k, rows, cols)
	require.NoError(r.t, err)
	return b
}

// put allocates a buffer with values.
func (r *rig) put(k kernels.Kind, rows, cols int, x []float32) kernels.Buf {
	b := r.alloc(k, rows, cols)
	r.q.Write(b, pack(k, x))
	return b
}

// putInts allocates an I32 buffer with values.
func (r *rig) putInts(rows, cols int, x ...int32) kernels.Buf {
	b := r.alloc(kernels.I32, rows, cols)
	r.q.Write(b, packInts(x))
	return b
}

// bytes runs everything and returns a view's bytes.
func (r *rig) bytes(b kernels.Buf) []byte {
	r.t.Helper()
	dst := make([]byte, b.Bytes())
	require.NoError(r.t, r.q.Read(dst, b).Wait())
	return dst
}

// rows runs everything and returns a view row by row.
func (r *rig) rows(b kernels.Buf) [][]byte {
	r.t.Helper()
	return cut(r.bytes(b), int(b.Rows))
}

func cut(b []byte, n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = b[i*len(b)/n : (i+1)*len(b)/n]
	}
	return out
}

func (r *rig) floats(b kernels.Buf) []float32 { r.t.Helper(); return unpack(b.Kind, r.bytes(b)) }

func (r *rig) ints(b kernels.Buf) []int32 { r.t.Helper(); return unpackInts(r.bytes(b)) }
