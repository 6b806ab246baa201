package ref

import (
	"math"

	"exacta.dev/exacta/kernels"
)

// norm is a resolved kernels.Norm.
type norm struct {
	w     []float64 // of one group or of all; nil is no norm
	bias  []float64 // nil is none; else a layer norm
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
	if !n.Bias.None() && (group != cols || n.Centered) {
		o.fail("%s has a bias with groups of %d columns, centred %t; a layer norm has neither", what, n.Group, n.Centered)
		return norm{}
	}
	r := norm{w: o.groups(n.W, group, cols, what), eps: float64(n.Eps), group: group}
	if n.Centered {
		r.plus = 1
	}
	if !n.Bias.None() {
		r.bias = o.vector(n.Bias, group, what)
	}
	return r
}

// apply normalises src into dst, which may be src.
func (n norm) apply(dst, src []float64) {
	if n.w == nil {
		copy(dst, src)
		return
	}
	if n.bias != nil {
		n.layer(dst, src)
		return
	}
	for at := 0; at < len(src); at += n.group {
		var sum float64
		for _, x := range src[at : at+n.group] {
			sum += x * x
		}
		inv := 1 / math.Sqrt(sum/float64(n.group)+n.eps)
		for j, w := range n.w[at%len(n.w):][:n.group] {
			dst[at+j] = src[at+j] * inv * (n.plus + w)
		}
	}
}

// layer is a layer norm of src into dst.
func (n norm) layer(dst, src []float64) {
	var sum, squares float64
	for _, x := range src {
		sum += x
	}
	mean := sum / float64(len(src))
	for _, x := range src {
		squares += (x - mean) * (x - mean)
	}
	inv := 1 / math.Sqrt(squares/float64(len(src))+n.eps)
	for j, x := range src {
		dst[j] = (x-mean)*inv*n.w[j] + n.bias[j]
	}
}

// groups resolves the weight of a norm: that of one group, or of all of cols columns.
func (o *operands) groups(h kernels.Weight, group, cols int, what string) []float64 {
	w := o.weight(h, kernels.Vector, what)
	if o.err == nil && w.rows*w.cols == cols {
		return w.data
	}
	return o.vector(h, group, what)
}
