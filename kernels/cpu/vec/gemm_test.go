package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// sameBits compares as bits, every NaN being equal.
func sameBits(t *testing.T, want, got []float32, format string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		a, b := want[i], got[i]
		if math.Float32bits(a) != math.Float32bits(b) && (a == a || b == b) {
			require.Failf(t, "bits differ", "element %d: want %x (%v), got %x (%v): "+format,
				append([]any{i, math.Float32bits(a), a, math.Float32bits(b), b}, args...)...)
		}
	}
}

// bf16Kinds make BF16 data of one character each.
var bf16Kinds = []struct {
	name string
	next func(r *rand.Rand) uint16
}{
	{"normal", func(r *rand.Rand) uint16 { return BF16(float32(r.NormFloat64())) }},
	{"cancelling", func(r *rand.Rand) uint16 { return uint16(0x3f80+r.IntN(3)) | uint16(r.IntN(2))<<15 }},
	{"wide", func(r *rand.Rand) uint16 { return uint16(r.IntN(0x7f80)) | uint16(r.IntN(2))<<15 }},
	// Products around 2^-126, with subnormal inputs now and then.
	{"subnormal", func(r *rand.Rand) uint16 {
		e := 55 + r.IntN(16)
		if r.IntN(8) == 0 {
			e = 0
		}
		return uint16(e<<7|r.IntN(128)) | uint16(r.IntN(2))<<15
	}},
	{"overflow", func(r *rand.Rand) uint16 { return uint16((185+r.IntN(8))<<7|r.IntN(128)) | uint16(r.IntN(2))<<15 }},
	{"bits", func(r *rand.Rand) uint16 { return uint16(r.Uint32()) }},
}

func randomBF16(r *rand.Rand, n int, next func(*rand.Rand) uint16) []uint16 {
	x := make([]uint16, n)
	for i := range x {
		x[i] = next(r)
	}
	return x
}

// gemmCase is one product; panel has the four groups.
type gemmCase struct {
	panel, x                []uint16
	m, k2, xStride, oStride int
}

func newGemmCase(r *rand.Rand, next func(*rand.Rand) uint16, m, k2 int) gemmCase {
	c := gemmCase{m: m, k2: k2, xStride: 2*k2 + r.IntN(5), oStride: PanelRows + r.IntN(9)}
	c.panel = randomBF16(r, k2*2*PanelRows, next)
	c.x = randomBF16(r, m*c.xStride+1, next)[:m*c.xStride]
	return c
}

// run computes rows [row, row+m) with set s, the output starting as init.
func (c gemmCase) run(s *Set, vecs, row, m, k0, k1 int, load bool, out []float32) {
	s.Gemm(&out[0], c.oStride, &c.panel[k0*2*PanelRows], vecs, &c.x[row*c.xStride+2*k0], c.xStride, m, k1-k0, load)
}

// testSets are the sets to compare: those of the machine and, where the choice
// between instructions hides one, its kernels by themselves.
func testSets() []*Set { return slices.Concat(hiddenSets(), Sets()) }

func TestGemmMatchesGo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	k2s := []int{1, 2, 3, 7, 15, 16, 17, 31, 33, 48, 100, 256}
	for _, kind := range bf16Kinds {
		for m := 1; m <= 17; m++ {
			for _, k2 := range k2s {
				if k2 > 33 && m%5 != 2 {
					continue
				}
				c := newGemmCase(r, kind.next, m, k2)
				init := make([]float32, m*c.oStride)
				for i := range init {
					init[i] = F32(kind.next(r))
				}
				for _, vecs := range []int{2, 4} {
					for _, load := range []bool{false, true} {
						want := append([]float32(nil), init...)
						c.run(&goSet, vecs, 0, m, 0, k2, load, want)
						for _, s := range testSets() {
							got := append([]float32(nil), init...)
							c.run(s, vecs, 0, m, 0, k2, load, got)
							sameBits(t, want, got, "%s %s m=%d k2=%d vecs=%d load=%v", s.Name, kind.name, m, k2, vecs, load)
						}
					}
				}
			}
		}
	}
}

// TestGemmLong compares long chains, the rows of a batch with each row alone,
// and a chain cut in two calls with the whole.
func TestGemmLong(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, kind := range bf16Kinds {
		for _, m := range []int{1, 3, 4, 6, 7, 8, 12, 14} {
			const k2 = 2048
			c := newGemmCase(r, kind.next, m, k2)
			want := make([]float32, m*c.oStride)
			for i := range m {
				c.run(&goSet, 4, i, 1, 0, k2, false, want[i*c.oStride:])
			}
			for _, s := range testSets() {
				if s == &goSet {
					continue
				}
				for _, vecs := range []int{2, 4} {
					got, cut := make([]float32, m*c.oStride), make([]float32, m*c.oStride)
					c.run(s, vecs, 0, m, 0, k2, false, got)
					at := 1 + r.IntN(k2-1)
					c.run(s, vecs, 0, m, 0, at, false, cut)
					c.run(s, vecs, 0, m, at, k2, true, cut)
					for i := range m {
						lo, hi := i*c.oStride, i*c.oStride+16*vecs
						sameBits(t, want[lo:hi], got[lo:hi], "%s %s m=%d row %d vecs=%d", s.Name, kind.name, m, i, vecs)
						sameBits(t, want[lo:hi], cut[lo:hi], "%s %s m=%d row %d vecs=%d cut at %d", s.Name, kind.name, m, i, vecs, at)
					}
				}
			}
		}
	}
}

// TestGemmSecondHalf computes the upper two groups of a panel.
func TestGemmSecondHalf(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	c := newGemmCase(r, bf16Kinds[0].next, 9, 40)
	want := make([]float32, 9*c.oStride)
	c.run(&goSet, 4, 0, 9, 0, 40, false, want)
	for _, s := range testSets() {
		got := make([]float32, 9*c.oStride)
		s.Gemm(&got[0], c.oStride, &c.panel[0], 2, &c.x[0], c.xStride, 9, 40, false)
		s.Gemm(&got[32], c.oStride, &c.panel[64], 2, &c.x[0], c.xStride, 9, 40, false)
		sameBits(t, want, got, s.Name)
	}
}

// TestChain holds every set to the chain of VDPBF16PS where the plausible
// alternatives differ.
func TestChain(t *testing.T) {
	one := func(pairs ...[4]uint16) gemmCase { // w even, w odd, x even, x odd
		c := gemmCase{m: 1, k2: len(pairs), xStride: 2 * len(pairs), oStride: PanelRows}
		for _, p := range pairs {
			for range PanelRows {
				c.panel = append(c.panel, p[0], p[1])
			}
			c.x = append(c.x, p[2], p[3])
		}
		return c
	}
	for _, tc := range []struct {
		name string
		c    gemmCase
		init float32
		want uint32
	}{
		// 2^24 + 1 (odd) is lost, then -2^24 (even): odd first gives 0 for
		// the pair after 2^24, even first would give 1.
		{"odd first", one([4]uint16{0xcb80, 0x3f80, 0x3f80, 0x3f80}), 0x1p24, 0},
		{"not the pair's sum", one([4]uint16{0x3f80, 0x3f80, 0x3f80, 0x3f80}), 0x1p24, math.Float32bits(0x1p24)},
		{"subnormal input is zero", one([4]uint16{0, 0x007f, 0, 0x7f00}), 0, 0},
		{"negative subnormal input", one([4]uint16{0x807f, 0x807f, 0x7f00, 0x7f00}), float32(math.Copysign(0, -1)), 0x80000000},
		{"subnormal sum is flushed", one([4]uint16{0, 0x2000, 0, 0x1f00}), 0, 0},
		{"negative subnormal sum", one([4]uint16{0x8000, 0xa000, 0x3f80, 0x1f00}), 0, 0x80000000},
		// 2^-126 - 2^-150 would round up to 2^-126 among subnormals; with 24
		// bits it is below 2^-126 and flushed.
		{"tiny is judged at 24 bits", one([4]uint16{0x8000, 0x9a00, 0x3f80, 0x1a00}), 0x1p-126, 0},
		{"half of that survives", one([4]uint16{0x8000, 0x9980, 0x3f80, 0x1a00}), 0x1p-126, 0x00800000},
		{"subnormal load is zero", one([4]uint16{0, 0x0080, 0x3f80, 0x3f80}), 0x1p-127, 0x00800000},
		{"overflow", one([4]uint16{0, 0x7f00, 0, 0x4000}), 0, 0x7f800000},
	} {
		for _, s := range testSets() {
			out := make([]float32, PanelRows)
			for i := range out {
				out[i] = tc.init
			}
			tc.c.run(s, 4, 0, 1, 0, tc.c.k2, true, out)
			for i := range out {
				require.Equal(t, tc.want, math.Float32bits(out[i]), "%s: %s", tc.name, s.Name)
			}
		}
	}
}
