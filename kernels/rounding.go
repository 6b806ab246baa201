package kernels

import "math"

// Rounding is a coarser grid that values are rounded to while they stay BF16: the
// models that are trained with keys of few bits (DeepSeek-V4.1) are run with them.
type Rounding uint8

// Roundings. Each block of channels has a scale; a width that is no multiple of the
// block is left as it is. Halves go to the even code.
const (
	RoundNone Rounding = iota
	// RoundFP8 is E4M3 in blocks of 32, by the least power of two that is not
	// below the largest magnitude (at least 1e-4) / 448.
	RoundFP8
	// RoundFP4 is E2M1 in blocks of 32, by the least power of two that is not
	// below the largest magnitude (at least 6 * 2^-126) / 6.
	RoundFP4
	// RoundFP4Fine is E2M1 in blocks of 16, by E4M3 of the largest magnitude (at
	// least 6 * 2^-9) / 6.
	RoundFP4Fine
)

// Block returns the channels that share a scale; 0 for RoundNone.
func (r Rounding) Block() int {
	switch r {
	case RoundFP8, RoundFP4:
		return 32
	case RoundFP4Fine:
		return 16
	}
	return 0
}

// Round rounds x in place, the channels of one head. Scales and quotients are exact in
// float64, so it is one function of the values in whatever type they come.
func Round[T float32 | float64](r Rounding, x []T) {
	block := r.Block()
	if block == 0 || len(x)%block != 0 {
		return
	}
	for ; len(x) > 0; x = x[block:] {
		top := 0.0
		for _, v := range x[:block] {
			top = max(top, math.Abs(float64(v)))
		}
		scale, grid := r.scale(top)
		for i, v := range x[:block] {
			q := min(max(float64(v)/scale, -grid.most), grid.most)
			x[i] = T(grid.nearest(q) * scale)
		}
	}
}

// floats describes the numbers of a small format: the largest, the exponent below
// which steps stay equal, and the bits of the fraction.
type floats struct {
	most   float64
	least  int
	digits int
}

var (
	e4m3 = floats{448, -6, 3}
	e2m1 = floats{6, 0, 1}
)

// nearest returns the number of the format nearest to v, which is in its range.
func (f floats) nearest(v float64) float64 {
	if v == 0 || v != v {
		return v
	}
	_, exp := math.Frexp(v) // v is in [2^(exp-1), 2^exp)
	step := math.Ldexp(1, max(exp-1, f.least)-f.digits)
	return math.RoundToEven(v/step) * step
}

// scale returns the scale of a block whose largest magnitude is top, and the format.
func (r Rounding) scale(top float64) (float64, floats) {
	switch r {
	case RoundFP8:
		return powerAbove(max(top, 1e-4) / e4m3.most), e4m3
	case RoundFP4:
		return powerAbove(max(top, 6*0x1p-126) / e2m1.most), e2m1
	}
	return e4m3.nearest(min(max(top, 6*0x1p-9)/e2m1.most, e4m3.most)), e2m1
}

// powerAbove returns the least power of two that is not below v.
func powerAbove(v float64) float64 {
	frac, exp := math.Frexp(v)
	if frac == 0.5 {
		exp--
	}
	return math.Ldexp(1, exp)
}
