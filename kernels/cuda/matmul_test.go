//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// device opens a backend, or skips the test where there is no GPU.
func device(t testing.TB) *Backend {
	t.Helper()
	be, err := Open(Options{MemoryFraction: 0.5})
	if errors.Is(err, ErrNoDevice) {
		t.Skipf("not run on a device: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	return be
}

// kinds of numbers that products are tried on.
var numbers = map[string]func(r *rand.Rand, i int) float64{
	"gaussian": func(r *rand.Rand, _ int) float64 { return r.NormFloat64() },
	// Neighbours nearly cancel, so that what is left shows every rounding.
	"cancelling": func(r *rand.Rand, i int) float64 {
		return math.Copysign(100+r.Float64(), float64(1-2*(i&1)))
	},
	"wide": func(r *rand.Rand, _ int) float64 { return r.NormFloat64() * math.Exp2(float64(r.IntN(60)-30)) },
}

// bf16s draws n numbers as they lie in memory, and as they are.
func bf16s(r *rand.Rand, n int, draw func(*rand.Rand, int) float64) (raw []byte, f []float64) {
	for i := range n {
		b := bf16(float32(draw(r, i)))
		raw = binary.LittleEndian.AppendUint16(raw, b)
		f = append(f, float64(math.Float32frombits(uint32(b)<<16)))
	}
	return raw, f
}

// products holds one product in memory of a device.
type products struct {
	t      *testing.T
	be     *Backend
	q      *queue
	rows   int
	n, k   int // n: rows of the weight, of one expert or block
	x, dst kernels.Buf
	w      kernels.Weight
	fx, fw []float64
	run    func(q kernels.Queue, dst, x kernels.Buf)
}

func (p *products) bits() [][]byte {
	p.q.Write(p.dst, bytes.Repeat([]byte{0xa5}, p.dst.Bytes()))
	p.run(p.q, p.dst, p.x)
	got := make([]byte, p.dst.Bytes())
	require.NoError(p.t, p.q.Read(got, p.dst).Wait())
	out := make([][]byte, p.dst.Rows)
	for i := range out {
		out[i] = got[i*len(got)/len(out) : (i+1)*len(got)/len(out)]
	}
	return out
}

func newProducts(t *testing.T, be *Backend, use kernels.Use, paired bool, parts, rows, n, k int, draw func(*rand.Rand, int) float64) *products {
	p := &products{t: t, be: be, q: be.q, rows: rows, n: n, k: k}
	r := rand.New(rand.NewPCG(uint64(rows), uint64(n*k)))
	ten := kernels.Tensor{Name: "w", Use: use, Paired: paired}
	for i := range parts {
		raw, f := bf16s(r, n*k, func(r *rand.Rand, i int) float64 { return draw(r, 2*i) })
		p.fw = append(p.fw, f...)
		ten.Parts = append(ten.Parts, kernels.Source{Name: fmt.Sprint(i), Rows: n, Cols: k, DType: kernels.DTypeBF16, Data: bytes.NewReader(raw)})
	}
	var err error
	p.w, err = be.Load(ten)
	require.NoError(t, err)
	cols := k
	if use == kernels.Diagonal {
		cols *= parts
	}
	raw, f := bf16s(r, rows*cols, draw)
	p.fx = f
	p.x, err = be.Alloc(kernels.Activations, kernels.BF16, rows, cols)
	require.NoError(t, err)
	p.q.Write(p.x, raw)
	return p
}

// formShapes are shapes of products with their numbers of rows.
var formShapes = []struct{ rows, n, k int }{
	{256, 264, 192}, {77, 1000, 4096}, {200, 72, 1032}, {129, 4096, 512}, {5, 128, 17408},
}

// cuts calls f for every kernel that can do a product, with tiles cut and not.
func (p *products) cuts(f func(name string)) {
	defer func() { p.q.tune = nil }()
	for kernel, k := range hopperKernels {
		for _, split := range []bool{false, true} {
			p.q.tune = func(s hopperShape, planned hopperPlan) hopperPlan {
				c := s.cut(kernel)
				if math.IsInf(c.time, 1) {
					return planned
				}
				if down := ceil(s.rows, c.rows); split && s.chunk == 0 {
					across := ceil(s.n, k.width/(1+int(flag(s.paired)))) * s.blocks
					c.grid = down * max(1, min(s.sms/down, across))
				}
				c.split = split
				return c
			}
			f(fmt.Sprintf("%s, split %t", k.name, split))
		}
	}
}

// equal requires the same bits from every form and cut, and from rows alone.
func (p *products) equal(what string) [][]byte {
	p.q.plain = true
	want := p.bits()
	p.q.plain = false
	compare := func(name string) {
		got := p.bits()
		for i := range want {
			require.Equal(p.t, want[i], got[i], "%s, %s: row %d", what, name, i)
		}
	}
	compare("planned")
	if p.be.arch == hopper {
		p.cuts(compare)
	}
	return want
}

func f32s(raw []byte) []float64 {
	out := make([]float64, len(raw)/4)
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
	}
	return out
}

// near compares FP32 outputs with sums in float64, to within what cutting off each of the
// sums of 16 products may take; behind gives the row of the weight
// and the first column of x behind an output.
func (p *products) near(what string, got [][]byte, behind func(row, col int) (x, w int)) {
	for i, row := range got {
		for c, y := range f32s(row) {
			if (i*len(got)+c)%7 != 0 {
				continue // a seventh of them is enough
			}
			x, w := behind(i, c)
			var sum, size float64
			for j := range p.k {
				v := p.fx[x+j] * p.fw[w*p.k+j]
				sum += v
				size += math.Abs(v)
			}
			require.LessOrEqual(p.t, math.Abs(y-sum), size*0x1p-23*float64(p.k/16+4), "%s: row %d, column %d: %g, not %g", what, i, c, y, sum)
		}
	}
}

// TestProductForms holds every form and cut of the matrix product to the same bits, to
// those of rows alone, and to float64.
func TestProductForms(t *testing.T) {
	be := device(t)
	for kind, draw := range numbers {
		for _, s := range formShapes {
			p := newProducts(t, be, kernels.Matrix, false, 1, s.rows, s.n, s.k, draw)
			var err error
			p.dst, err = be.Alloc(kernels.Activations, kernels.F32, s.rows, s.n)
			require.NoError(t, err)
			p.run = func(q kernels.Queue, dst, x kernels.Buf) { q.MatMul(dst, p.w, x, kernels.Linear{}) }
			what := fmt.Sprintf("%s %dx%dx%d", kind, s.rows, s.n, s.k)
			all := p.equal(what)
			p.near(what, all, func(row, col int) (x, w int) { return row * s.k, col })
			for i := 0; i < s.rows; i += 1 + s.rows/9 {
				dst := p.dst.Slice(i, i+1)
				p.q.MatMul(dst, p.w, p.x.Slice(i, i+1), kernels.Linear{})
				got := make([]byte, dst.Bytes())
				require.NoError(t, p.q.Read(got, dst).Wait())
				require.Equal(t, all[i], got, "%s: row %d alone", what, i)
			}
			be.Free(p.x)
			be.Free(p.dst)
		}
	}
}

// TestPairedForms does so for gates with residual and rounding, among columns of wider
// buffers.
func TestPairedForms(t *testing.T) {
	be := device(t)
	for _, s := range []struct{ rows, n, k int }{{130, 200, 256}, {9, 1056, 2048}, {64, 36, 320}} {
		p := newProducts(t, be, kernels.Matrix, true, 2, s.rows, s.n, s.k, numbers["gaussian"])
		wide, err := be.Alloc(kernels.Activations, kernels.BF16, s.rows, s.n+32)
		require.NoError(t, err)
		p.dst, err = be.Alloc(kernels.Activations, kernels.BF16, s.rows, s.n)
		require.NoError(t, err)
		res, err := be.Alloc(kernels.Activations, kernels.F32, s.rows, s.n)
		require.NoError(t, err)
		p.run = func(q kernels.Queue, dst, x kernels.Buf) {
			out := wide.Columns(4, 4+s.n)
			q.MatMul(out, p.w, x, kernels.Linear{Act: kernels.SwiGLU, Residual: res})
			q.Copy(dst, out)
		}
		p.equal(fmt.Sprint("paired ", s))
	}
}

// TestBlockForms does so for block-diagonal matrices.
func TestBlockForms(t *testing.T) {
	be := device(t)
	for _, s := range []struct{ rows, blocks, n, k int }{{140, 5, 72, 192}, {8, 16, 512, 128}, {33, 3, 40, 80}} {
		p := newProducts(t, be, kernels.Diagonal, false, s.blocks, s.rows, s.n, s.k, numbers["gaussian"])
		var err error
		p.dst, err = be.Alloc(kernels.Activations, kernels.F32, s.rows, s.blocks*s.n)
		require.NoError(t, err)
		p.run = func(q kernels.Queue, dst, x kernels.Buf) { q.Blocks(dst, p.w, x) }
		got := p.equal(fmt.Sprint("blocks ", s))
		p.near("blocks", got, func(row, col int) (x, w int) { return row*s.blocks*s.k + col/s.n*s.k, col })
	}
}

// TestGroupedForms does so for experts and their sum.
func TestGroupedForms(t *testing.T) {
	be := device(t)
	for _, s := range []struct{ rows, experts, each, n, k int }{
		{1, 16, 8, 96, 256}, {40, 6, 2, 264, 192}, {300, 7, 3, 136, 320}, {700, 4, 2, 520, 64}, {64, 200, 8, 64, 128},
	} {
		what := fmt.Sprint("experts ", s)
		r := rand.New(rand.NewPCG(5, uint64(s.rows)))
		table := make([]byte, 0)
		ids := make([]int, 0)
		for range s.rows * s.each {
			ids = append(ids, min(r.IntN(s.experts), r.IntN(s.experts)))
			table = binary.LittleEndian.AppendUint32(table, uint32(ids[len(ids)-1]))
		}
		idb, err := be.Alloc(kernels.Tables, kernels.I32, s.rows, s.each)
		require.NoError(t, err)
		be.q.Write(idb, table)

		p := newProducts(t, be, kernels.Bank, false, s.experts, s.rows, s.n, s.k, numbers["gaussian"])
		p.dst, err = be.Alloc(kernels.Activations, kernels.F32, s.rows*s.each, s.n)
		require.NoError(t, err)
		p.run = func(q kernels.Queue, dst, x kernels.Buf) { q.Experts(dst, p.w, x, idb, kernels.Identity) }
		got := p.equal(what)
		p.near(what, got, func(row, col int) (x, w int) { return row / s.each * s.k, ids[row]*s.n + col })

		gate := newProducts(t, be, kernels.Bank, true, 2*s.experts, s.rows, s.n, s.k, numbers["cancelling"])
		gate.dst, err = be.Alloc(kernels.Activations, kernels.BF16, s.rows*s.each, s.n)
		require.NoError(t, err)
		gate.run = func(q kernels.Queue, dst, x kernels.Buf) { q.Experts(dst, gate.w, x, idb, kernels.SwiGLU) }
		gate.equal(what + " paired")

		mix := newProducts(t, be, kernels.Bank, false, s.experts, s.rows*s.each, s.n, s.k, numbers["gaussian"])
		by, err := be.Alloc(kernels.Activations, kernels.F32, s.rows, s.each)
		require.NoError(t, err)
		weights := make([]byte, 0)
		for range s.rows * s.each {
			weights = binary.LittleEndian.AppendUint32(weights, math.Float32bits(r.Float32()))
		}
		be.q.Write(by, weights)
		mix.dst, err = be.Alloc(kernels.Activations, kernels.F32, s.rows, s.n)
		require.NoError(t, err)
		mix.run = func(q kernels.Queue, dst, x kernels.Buf) { q.Mix(dst, mix.w, x, idb, by, kernels.Buf{}) }
		mix.equal(what + " mixed")
	}
}

// TestPlans checks cuts of the shapes of models: that they fit, and that a plan with
// few rows reads the weights with nearly all multiprocessors.
func TestPlans(t *testing.T) {
	for _, m := range benchShapes {
		for _, rows := range []int{1, 4, 8, 17, 32, 64, 100, 256, 1000, 8192} {
			s := hopperShape{rows: rows, n: m.n, k: m.k, paired: m.paired, blocks: 1, sms: 132, sharedPerBlock: 227 << 10}
			p := s.plan()
			require.GreaterOrEqual(t, p.stages, 3, "%v %d", m, rows)
			require.LessOrEqual(t, p.shared, s.sharedPerBlock)
			require.Zero(t, p.rows%8)
			if rows <= 8 && m.n >= 2048 {
				require.GreaterOrEqual(t, p.grid, 64, "%v %d: %+v", m, rows, p)
			}
		}
	}
}
