package vec

import (
	"encoding/binary"
	"math"
)

// lanes are the 16 virtual accumulators of a Tree16 sum.
type lanes [16]float32

// sum adds the lanes pairwise: i and i+8, then i+4, i+2, i+1. It is written out,
// since every row's norms wait for it.
func (l *lanes) sum() float32 {
	a0, a1, a2, a3 := l[0]+l[8], l[1]+l[9], l[2]+l[10], l[3]+l[11]
	a4, a5, a6, a7 := l[4]+l[12], l[5]+l[13], l[6]+l[14], l[7]+l[15]
	b0, b1, b2, b3 := a0+a4, a1+a5, a2+a6, a3+a7
	return (b0 + b2) + (b1 + b3)
}

// squares adds the squares of x, whose first element goes to lane 0.
func (l *lanes) squares(x []float32) {
	for i, v := range x {
		l[i&15] += float32(v * v)
	}
}

// squaresBF16 is squares of BF16 numbers.
func (l *lanes) squaresBF16(x []uint16) {
	for i, b := range x {
		v := F32(b)
		l[i&15] += float32(v * v)
	}
}

// expSub sets dst to exp(x - s) and adds it.
func (l *lanes) expSub(dst, x []float32, s float32) {
	for i := range dst {
		dst[i] = Exp32(x[i] - s)
		l[i&15] += dst[i]
	}
}

func goSumSquares(x []float32) float32 {
	var l lanes
	l.squares(x)
	return l.sum()
}

func goSumSquaresBF16(x []uint16) float32 {
	var l lanes
	l.squaresBF16(x)
	return l.sum()
}

func goExpSub(dst, x []float32, s float32) float32 {
	var l lanes
	l.expSub(dst, x, s)
	return l.sum()
}

func goMax(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m + 0 // a zero is +0
}

// top2 is the running state of Top2.
type top2 struct {
	i1, i2 int
	v1, v2 float32
	nans   int
}

// newTop2 returns the state before the first element.
func newTop2() top2 {
	inf := float32(math.Inf(-1))
	return top2{i1: -1, i2: -1, v1: inf, v2: inf}
}

// scan takes the elements of x, whose first has the index base.
func (t *top2) scan(x []float32, base int) {
	for i, v := range x {
		switch {
		case v != v:
			t.nans++
		case t.i1 < 0 || v > t.v1:
			t.i2, t.v2 = t.i1, t.v1
			t.i1, t.v1 = base+i, v
		case t.i2 < 0 || v > t.v2:
			t.i2, t.v2 = base+i, v
		}
	}
}

func goTop2(x []float32) (i1, i2 int, v1, v2 float32, nans int) {
	t := newTop2()
	t.scan(x, 0)
	return t.i1, t.i2, t.v1, t.v2, t.nans
}

func goReadAll(x []byte) uint64 {
	var h uint64
	for ; len(x) >= 8; x = x[8:] {
		h ^= binary.LittleEndian.Uint64(x)
	}
	for i, b := range x {
		h ^= uint64(b) << (8 * i)
	}
	return h
}

// noMax are the lanes of a maximum before the first element.
var noMax = func() (l lanes) {
	for i := range l {
		l[i] = float32(math.Inf(-1))
	}
	return l
}()
