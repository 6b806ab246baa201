package ref

import (
	"math"

	"exacta.dev/exacta/kernels"
)

// Hyper computes the coefficients of streams.
func (r *recorder) Hyper(dst, x kernels.Buf, s *kernels.HyperSpec) {
	spec := *s
	r.add("hyper", func() (func() error, error) {
		o := operands{be: r.be}
		d := o.kind(dst, "dst", kernels.F32, 0, spec.Cols())
		src := o.kind(x, "x", kernels.BF16, d.rows, -1)
		if o.err == nil {
			o.err = spec.Check(src.cols)
		}
		if o.err != nil {
			return nil, o.err
		}
		h := &hyper{s: spec, fn: o.weight(spec.Fn, kernels.Table, "fn")}
		h.base, h.scale = o.vector(spec.Base, spec.Cols(), "base"), o.vector(spec.Scale, spec.Scales(), "scale")
		if o.err == nil && (h.fn.rows != spec.Cols() || h.fn.cols != src.cols) {
			o.fail("fn is [%d, %d]; it must be [%d, %d]", h.fn.rows, h.fn.cols, spec.Cols(), src.cols)
		}
		return func() error {
			parallel(d.rows, func(i int) { h.row(d.floats(i), src.floats(i)) })
			return nil
		}, o.err
	})
}

// hyper is a resolved Hyper.
type hyper struct {
	s           kernels.HyperSpec
	fn          *weight
	base, scale []float64
}

func (h *hyper) row(dst, x []float64) {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	rms, n, eps := 1/math.Sqrt(sum/float64(len(x))+float64(h.s.NormEps)), h.s.Streams, float64(h.s.Eps)
	for i := range dst {
		part := min(i/n, 2)
		dst[i] = dot(x, h.fn.row(i))*rms*h.scale[part] + h.base[i]
		switch part {
		case 0:
			dst[i] = sigmoid(dst[i]) + eps
		case 1:
			dst[i] = 2 * sigmoid(dst[i])
		}
	}
	if h.s.Iters == 0 {
		return
	}
	comb := dst[2*n:]
	for j := range n {
		row := comb[j*n:][:n]
		softmax(row)
		for k := range row {
			row[k] += eps
		}
	}
	for it := range h.s.Iters {
		if it > 0 {
			balance(comb, n, n, 1, eps)
		}
		balance(comb, n, 1, n, eps)
	}
}

// balance divides each of n lines, whose starts and elements are so far apart, by its
// sum + eps.
func balance(x []float64, n, lines, elements int, eps float64) {
	for i := range n {
		var sum float64
		for j := range n {
			sum += x[i*lines+j*elements]
		}
		for j := range n {
			x[i*lines+j*elements] /= sum + eps
		}
	}
}

// GateUp is a SwiGLU with a limit.
func (r *recorder) GateUp(dst, x kernels.Buf, limit float32) {
	r.add("gate up", func() (func() error, error) {
		o := operands{be: r.be}
		d := o.kind(dst, "dst", kernels.BF16, 0, -1)
		s := o.kind(x, "x", kernels.F32, d.rows, 2*d.cols)
		top := math.Inf(1)
		if limit > 0 {
			top = float64(limit)
		}
		return func() error {
			for i := range d.rows {
				out, in := d.floats(i), s.floats(i)
				for c := range out {
					out[c] = silu(min(in[c], top)) * min(max(in[len(out)+c], -top), top)
				}
			}
			return nil
		}, o.err
	})
}
