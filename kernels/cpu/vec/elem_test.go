package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// floatKinds make float32 data of one character each.
var floatKinds = []struct {
	name string
	next func(r *rand.Rand) float32
}{
	{"normal", func(r *rand.Rand) float32 { return float32(r.NormFloat64()) }},
	{"cancelling", func(r *rand.Rand) float32 { return float32(1-2*r.IntN(2)) * (1 + float32(r.IntN(3))*0x1p-23) }},
	{"exp range", func(r *rand.Rand) float32 { return float32(r.Float64()*220 - 110) }},
	{"wide", func(r *rand.Rand) float32 {
		return math.Float32frombits(uint32(r.IntN(0x7f800000)) | uint32(r.IntN(2))<<31)
	}},
	{"subnormal", func(r *rand.Rand) float32 {
		return math.Float32frombits(uint32(r.IntN(0x01800000)) | uint32(r.IntN(2))<<31)
	}},
	{"overflow", func(r *rand.Rand) float32 {
		return math.Float32frombits(0x7e800000 + uint32(r.IntN(0x01000000)) | uint32(r.IntN(2))<<31)
	}},
	{"bits", func(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32()) }},
	{"zeros", func(r *rand.Rand) float32 { return float32(math.Copysign(0, float64(1-2*r.IntN(2)))) }},
	{"edges", func(r *rand.Rand) float32 {
		edges := []float32{0, 1, expCut, expMax, -expMax, float32(math.Inf(1)), math.MaxFloat32, 0x1p-126, 0x1p-149, float32(math.NaN())}
		x := edges[r.IntN(len(edges))]
		return math.Float32frombits(math.Float32bits(x) + uint32(r.IntN(3)) - 1 ^ uint32(r.IntN(2))<<31)
	}},
}

// arena hands out slices with guard elements behind them.
type arena struct {
	r      *rand.Rand
	next   func(*rand.Rand) float32
	floats [][]float32
	halves [][]uint16
}

const guard = 0x1234

// f returns n random float32, at an odd alignment.
func (a *arena) f(n int) []float32 {
	x := make([]float32, n+40)
	for i := range x {
		if x[i] = math.Float32frombits(guard); i >= 1 && i <= n {
			x[i] = a.next(a.r)
		}
	}
	a.floats = append(a.floats, x)
	return x[1 : n+1 : n+1]
}

// h returns n random BF16.
func (a *arena) h(n int) []uint16 {
	x := make([]uint16, n+80)
	for i := range x {
		if x[i] = guard; i >= 1 && i <= n {
			x[i] = uint16(math.Float32bits(a.next(a.r)) >> 16)
		}
	}
	a.halves = append(a.halves, x)
	return x[1 : n+1 : n+1]
}

func (a *arena) scalar() float32 { return a.next(a.r) }

// primitives run one member of a set on fresh data of length n and return its
// scalar results; everything written stays in the arena.
var primitives = []struct {
	name string
	run  func(s *Set, a *arena, n int) []float32
}{
	{"ToBF16", func(s *Set, a *arena, n int) []float32 { s.ToBF16(a.h(n), a.f(n)); return nil }},
	{"FromBF16", func(s *Set, a *arena, n int) []float32 { s.FromBF16(a.f(n), a.h(n)); return nil }},
	{"SumSquaresBF16", func(s *Set, a *arena, n int) []float32 { return []float32{s.SumSquaresBF16(a.h(n))} }},
	{"SumSquares", func(s *Set, a *arena, n int) []float32 { return []float32{s.SumSquares(a.f(n))} }},
	{"ScaleWeightBF16", func(s *Set, a *arena, n int) []float32 {
		s.ScaleWeightBF16(a.h(n), a.h(n), a.scalar(), a.f(n))
		return nil
	}},
	{"ScaleWeight", func(s *Set, a *arena, n int) []float32 {
		s.ScaleWeight(a.f(n), a.f(n), a.scalar(), a.f(n))
		return nil
	}},
	{"Scale", func(s *Set, a *arena, n int) []float32 { s.Scale(a.f(n), a.f(n), a.scalar()); return nil }},
	{"Add", func(s *Set, a *arena, n int) []float32 { s.Add(a.f(n), a.f(n)); return nil }},
	{"Axpy", func(s *Set, a *arena, n int) []float32 { s.Axpy(a.f(n), a.f(n), a.scalar()); return nil }},
	{"Mul", func(s *Set, a *arena, n int) []float32 { s.Mul(a.f(n), a.f(n), a.f(n)); return nil }},
	{"DeltaRow", func(s *Set, a *arena, n int) []float32 {
		s.DeltaRow(a.f(n), a.f(n), a.f(n), a.f(n), a.f(n), a.f(n), a.f(n), a.scalar(), a.scalar(), a.scalar())
		return nil
	}},
	{"Max", func(s *Set, a *arena, n int) []float32 { return []float32{s.Max(a.f(n))} }},
	{"ExpSub", func(s *Set, a *arena, n int) []float32 {
		return []float32{s.ExpSub(a.f(n), a.f(n), float32(a.r.IntN(2))*a.scalar())}
	}},
	{"ExpSub in place", func(s *Set, a *arena, n int) []float32 {
		x := a.f(n)
		return []float32{s.ExpSub(x, x, goMax(x))}
	}},
	{"SiLU", func(s *Set, a *arena, n int) []float32 { s.SiLU(a.f(n), a.f(n)); return nil }},
	{"Sigmoid", func(s *Set, a *arena, n int) []float32 { s.Sigmoid(a.f(n), a.f(n)); return nil }},
	{"SwiGLUBF16", func(s *Set, a *arena, n int) []float32 { s.SwiGLUBF16(a.h(n), a.f(n), a.f(n)); return nil }},
	{"AddBF16", func(s *Set, a *arena, n int) []float32 { s.AddBF16(a.h(n), a.h(n), a.f(n)); return nil }},
	{"AddBF16 in place", func(s *Set, a *arena, n int) []float32 {
		x := a.h(n)
		s.AddBF16(x, x, a.f(n))
		return nil
	}},
	{"MulSigmoidBF16", func(s *Set, a *arena, n int) []float32 { s.MulSigmoidBF16(a.h(n), a.f(n), a.h(n)); return nil }},
	{"NormGateBF16", func(s *Set, a *arena, n int) []float32 {
		s.NormGateBF16(a.h(n), a.f(n), a.scalar(), a.f(n), a.h(n), a.r.IntN(2) == 0)
		return nil
	}},
	{"MatVec", func(s *Set, a *arena, n int) []float32 {
		rows, stride := a.r.IntN(40), n+a.r.IntN(3)
		s.MatVec(a.f(n), a.f(rows*stride), stride, a.f(rows))
		return nil
	}},
	{"MatVec2", func(s *Set, a *arena, n int) []float32 {
		rows, stride := a.r.IntN(40), n+a.r.IntN(3)
		s.MatVec2(a.f(n), a.f(n), a.f(rows*stride), stride, a.f(rows), a.f(rows))
		return nil
	}},
	{"MatVecAdd2", func(s *Set, a *arena, n int) []float32 {
		rows, stride := a.r.IntN(20), n+a.r.IntN(3)
		s.MatVecAdd2(a.f(n), a.f(n), a.f(rows*stride), stride, a.f(rows), a.f(rows))
		return nil
	}},
	{"RotateHalf", func(s *Set, a *arena, n int) []float32 { s.RotateHalf(a.f(2*n), a.f(n), a.f(n)); return nil }},
	{"Conv4BF16", func(s *Set, a *arena, n int) []float32 {
		in := [4][]uint16{a.h(n), a.h(n), a.h(n), a.h(n)}
		for j := range a.r.IntN(5) {
			in[j] = nil
		}
		s.Conv4BF16(a.h(n), a.f(4*n), &in)
		return nil
	}},
	{"Top2", func(s *Set, a *arena, n int) []float32 {
		i1, i2, v1, v2, nans := s.Top2(a.f(n))
		return []float32{float32(i1), float32(i2), v1, v2, float32(nans)}
	}},
	{"HashSegment", func(s *Set, a *arena, n int) []float32 {
		h := s.HashSegment(a.f(n))
		return []float32{math.Float32frombits(uint32(h) &^ 0x40000000), math.Float32frombits(uint32(h>>32) &^ 0x40000000)}
	}},
	{"ReadAll", func(s *Set, a *arena, n int) []float32 {
		x := make([]byte, 37*n)
		for i := range x {
			x[i] = byte(a.r.Uint32())
		}
		h := s.ReadAll(x)
		return []float32{math.Float32frombits(uint32(h) &^ 0x40000000), math.Float32frombits(uint32(h>>32) &^ 0x40000000)}
	}},
}

// TestPrimitivesMatchGo runs every primitive of every set on the data of the Go
// set and compares all memory and results as bits.
func TestPrimitivesMatchGo(t *testing.T) {
	var lengths []int
	for n := range 71 {
		lengths = append(lengths, n)
	}
	lengths = append(lengths, 127, 128, 129, 256, 1000, 4099)
	for _, p := range primitives {
		t.Run(p.name, func(t *testing.T) {
			for k, kind := range floatKinds {
				for _, n := range lengths {
					do := func(s *Set) *arena {
						a := &arena{r: rand.New(rand.NewPCG(uint64(n), uint64(k))), next: kind.next}
						a.floats = append(a.floats, p.run(s, a, n))
						return a
					}
					want := do(&goSet)
					for _, s := range Sets() {
						compare(t, want, do(s), fmt.Sprintf("%s %s n=%d", s.Name, kind.name, n))
					}
				}
			}
		})
	}
}

// compare requires equal memory, every NaN being equal.
func compare(t *testing.T, want, got *arena, where string) {
	t.Helper()
	for i := range want.floats {
		sameBits(t, want.floats[i], got.floats[i], "%s: slice %d", where, i)
	}
	nan := func(b uint16) bool { return b&0x7fff > 0x7f80 }
	for i, w := range want.halves {
		for j := range w {
			if a, b := w[j], got.halves[i][j]; a != b && !(nan(a) && nan(b)) {
				require.Failf(t, "bits differ", "slice %d element %d: want %x, got %x: %s", i, j, a, b, where)
			}
		}
	}
}

// TestExpVectors holds the vector forms of exp and the gates to the Go functions
// over a dense sample of all float32.
func TestExpVectors(t *testing.T) {
	const chunk = 1 << 12
	step := uint32(1021)
	x, want, got := make([]float32, chunk), make([]float32, chunk), make([]float32, chunk)
	for b, last := uint32(0), false; !last; {
		for i := range x {
			x[i] = math.Float32frombits(b)
			last = last || b+step < b
			b += step
		}
		goExpSub(want, x, 0)
		for _, s := range Sets() {
			s.ExpSub(got, x, 0)
			sameBits(t, want, got, "exp %s", s.Name)
		}
	}
}

// TestSumsByDefinition checks the tree of the sums with a plain rendering of its
// definition.
func TestSumsByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for n := range 100 {
		x := make([]float32, n)
		var lane [16]float32
		for i := range x {
			x[i] = float32(r.NormFloat64())
			lane[i%16] += float32(x[i] * x[i])
		}
		var eight [8]float32
		for i := range eight {
			eight[i] = lane[i] + lane[i+8]
		}
		four := [4]float32{eight[0] + eight[4], eight[1] + eight[5], eight[2] + eight[6], eight[3] + eight[7]}
		want := four[0] + four[2] + (four[1] + four[3])
		for _, s := range Sets() {
			require.Equal(t, math.Float32bits(want), math.Float32bits(s.SumSquares(x)), "%s n=%d", s.Name, n)
		}
	}
}
