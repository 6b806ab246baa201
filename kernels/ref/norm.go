package ref

import (
	"math"

	"exacta.dev/exacta/kernels"
)

// norm is a resolved kernels.Norm.
type norm struct {
	w     []float64 // nil is no norm
	eps   float64
	group int
	plus  float64 // 1 if Centered
}

// norm resolves a norm over rows of cols columns.
func (o *operands) norm(n kernels.Norm, cols int, what string) norm {
	if n.W.None() || o.err != nil {
		return norm{}
	}
	group := n.Group
	if group == 0 {
		group = cols
	}
	if group < 0 || cols%group != 0 {
		o.fail("%s has groups of %d for %d columns", what, n.Group, cols)
		return norm{}
	}
	r := norm{w: o.vector(n.W, group, what), eps: float64(n.Eps), group: group}
	if n.Centered {
		r.plus = 1
	}
	return r
}

// apply normalises src into dst, which may be src.
func (n norm) apply(dst, src []float64) {
	if n.w == nil {
		copy(dst, src)
		return
	}
	for at := 0; at < len(src); at += n.group {
		var sum float64
		for _, x := range src[at : at+n.group] {
			sum += x * x
		}
		inv := 1 / math.Sqrt(sum/float64(n.group)+n.eps)
		for j, w := range n.w {
			dst[at+j] = src[at+j] * inv * (n.plus + w)
		}
	}
}
