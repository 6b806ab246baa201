package ref

import (
	"fmt"
	"math"

	"exacta.dev/exacta/kernels"
)

// Activate applies a function to each element.
func (r *recorder) Activate(dst, x kernels.Buf, a kernels.Activation) {
	r.add("activate", func() (func() error, error) {
		o := operands{be: r.be, err: a.Check()}
		d := o.real(dst, "dst", 0, -1)
		s := o.kind(x, "x", kernels.F32, d.rows, d.cols)
		return func() error {
			for i := range d.rows {
				for j, v := range s.floats(i) {
					d.floats(i)[j] = float64(a.Out) * activate(a.Act, float64(a.In)*v)
				}
			}
			return nil
		}, o.err
	})
}

// real resolves an operand of BF16 or F32.
func (o *operands) real(b kernels.Buf, what string, rows, cols int) view {
	v := o.view(b, what)
	o.shape(v, what, rows, cols)
	if o.err == nil && v.kind == kernels.I32 {
		o.fail("%s is i32; it must be bf16 or f32", what)
	}
	return v
}

// streams resolves n streams as wide as one of cols columns.
func (o *operands) streams(b kernels.Buf, what string, rows, cols int) (view, int) {
	v := o.kind(b, what, kernels.BF16, rows, -1)
	if o.err == nil && (cols == 0 || v.cols == 0 || v.cols%cols != 0) {
		o.fail("%s has %d columns; they must be streams of %d", what, v.cols, cols)
	}
	if o.err != nil {
		return v, 0
	}
	return v, v.cols / cols
}

// Collapse brings the streams of a row together.
func (r *recorder) Collapse(dst, x, weights kernels.Buf, scale float32) {
	r.add("collapse", func() (func() error, error) {
		o := operands{be: r.be}
		d := o.kind(dst, "dst", kernels.BF16, 0, -1)
		s, n := o.streams(x, "x", d.rows, d.cols)
		var w view
		if !weights.None() {
			w = o.kind(weights, "weights", kernels.F32, d.rows, -1)
			if o.err == nil && w.cols != n && w.cols != n*d.cols {
				o.fail("weights have %d columns; they must have %d or %d", w.cols, n, n*d.cols)
			}
		}
		return func() error {
			for i := range d.rows {
				out, in := d.floats(i), s.floats(i)
				clear(out)
				for j, v := range in {
					switch {
					case w.none():
					case w.cols == n:
						v *= w.floats(i)[j/d.cols]
					default:
						v *= w.floats(i)[j]
					}
					out[j%d.cols] += v
				}
				for j := range out {
					out[j] *= float64(scale)
				}
			}
			return nil
		}, o.err
	})
}

// Spread gives the output of a sub-layer to the streams.
func (r *recorder) Spread(x, y, inject, mix kernels.Buf) {
	r.add("spread", func() (func() error, error) {
		o := operands{be: r.be}
		in := o.kind(y, "y", kernels.BF16, int(x.Rows), -1)
		s, n := o.streams(x, "x", 0, in.cols)
		w := o.kind(inject, "inject", kernels.F32, s.rows, n)
		var m view
		if !mix.None() {
			m = o.kind(mix, "mix", kernels.F32, s.rows, n*n)
		}
		return func() error {
			h := in.cols
			for i := range s.rows {
				old := append([]float64(nil), s.floats(i)...)
				for c, out := 0, s.floats(i); c < len(out); c++ {
					k := c / h
					if !m.none() {
						out[c] = 0
						for j := range n {
							out[c] += m.floats(i)[j*n+k] * old[j*h+c%h]
						}
					}
					out[c] += w.floats(i)[k] * in.floats(i)[c%h]
				}
			}
			return nil
		}, o.err
	})
}

// Gate compares q with k by stream.
func (r *recorder) Gate(dst, q, k kernels.Buf) {
	r.add("gate", func() (func() error, error) {
		o := operands{be: r.be}
		d := o.real(dst, "dst", 0, -1)
		a := o.kind(q, "q", kernels.BF16, d.rows, -1)
		b := o.kind(k, "k", kernels.BF16, d.rows, a.cols)
		if o.err == nil && (d.cols == 0 || a.cols%d.cols != 0) {
			o.fail("q has %d columns for %d gates", a.cols, d.cols)
		}
		return func() error {
			h := a.cols / d.cols
			for i := range d.rows {
				for j := range d.cols {
					x := dot(a.floats(i)[j*h:(j+1)*h], b.floats(i)[j*h:(j+1)*h]) / math.Sqrt(float64(h))
					d.floats(i)[j] = sigmoid(math.Copysign(math.Sqrt(max(math.Abs(x), 1e-6)), x))
				}
			}
			return nil
		}, o.err
	})
}

// blend is a resolved Blend.
type blend struct {
	x, src view
	c      *caches
	side   *sideStore
	t      *tables
	s      kernels.BlendSpec
	taps   *weight
	norm   norm
	n, h   int
}

// Blend adds gated values and their convolution over positions to the streams.
func (r *recorder) Blend(x, src kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.BlendSpec) {
	r.add("blend", func() (func() error, error) {
		o := operands{be: r.be}
		c, geo := o.anyLayer(l)
		if o.err != nil {
			return nil, o.err
		}
		a := &blend{c: c, side: c.side[l.Index], s: *s, t: o.batch(b, "batch")}
		a.src = o.kind(src, "src", kernels.BF16, b.Rows, geo.RowDim)
		a.h = s.Norm.Group
		a.n = geo.RowDim - a.h
		a.x = o.kind(x, "x", kernels.BF16, b.Rows, a.n*a.h)
		a.taps = o.weight(s.Taps, kernels.Taps, "taps")
		if o.err == nil {
			o.err = s.Check(geo)
		}
		if o.err != nil {
			return nil, o.err
		}
		if a.taps.rows != a.x.cols {
			o.fail("taps are [%d, %d] for %d columns", a.taps.rows, a.taps.cols, a.x.cols)
		}
		a.norm = o.norm(s.Norm, a.x.cols, "norm")
		return a.run, o.err
	})
}

func (a *blend) run() error {
	spans, err := a.t.active(a.c.spec.Slots)
	if err != nil {
		return err
	}
	for i := range spans {
		sp := &spans[i]
		for j := range sp.n {
			if err := a.row(sp, j); err != nil {
				return fmt.Errorf("span %d: %w", sp.index, err)
			}
		}
		for j := range sp.n {
			page, err := a.c.page(sp.slot, sp.start+j)
			if err != nil {
				return fmt.Errorf("span %d: %w", sp.index, err)
			}
			copy(a.side.row(page, sp.start+j), a.src.floats(sp.off+j))
		}
	}
	return nil
}

// values returns the gated values of all streams in a row of the cache.
func (a *blend) values(row []float64) []float64 {
	out := make([]float64, a.n*a.h)
	for i := range out {
		out[i] = row[a.h+i/a.h] * row[i%a.h]
	}
	return out
}

func (a *blend) row(sp *span, i int) error {
	path, k := sp.path(i), a.taps.cols
	x, sum := a.x.floats(sp.off+i), make([]float64, a.n*a.h)
	for j := range k {
		pos := sp.pos[i] - j*a.s.Dilation
		if pos < 0 {
			break
		}
		var row []float64
		if pos >= sp.start {
			row = a.src.floats(sp.off + path[pos-sp.start])
		} else {
			page, err := a.c.page(sp.slot, pos)
			if err != nil {
				return err
			}
			row = a.side.row(page, pos)
		}
		v := a.values(row)
		if j == 0 {
			for c := range x {
				x[c] += v[c]
			}
		}
		a.norm.apply(v, v)
		for c := range sum {
			sum[c] += a.taps.row(c)[k-1-j] * v[c]
		}
	}
	for c := range x {
		x[c] += silu(sum[c])
	}
	return nil
}
