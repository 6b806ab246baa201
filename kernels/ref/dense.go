package ref

import (
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"exacta.dev/exacta/kernels"
)

// Embed gathers rows of a table.
func (r *recorder) Embed(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	r.add("embed", func() (func() error, error) {
		o := operands{be: r.be}
		w := o.weight(table, kernels.Matrix, "table")
		if o.err == nil && w.int4 {
			o.fail("%s is of 4 bits; embeddings are gathered from BF16 matrices", w.name)
		}
		if o.err != nil {
			return nil, o.err
		}
		d := o.kind(dst, "dst", kernels.BF16, 0, w.cols)
		id := o.table(ids, "ids", d.rows)
		return func() error {
			for i := range d.rows {
				n := id.int(i)
				if n < 0 || n >= w.rows {
					return fmt.Errorf("row %d: id %d of a table of %d rows", i, n, w.rows)
				}
				copy(d.floats(i), w.row(n))
			}
			return nil
		}, o.err
	})
}

// Gather copies the rows that the table names; a negative index gives zeros.
func (r *recorder) Gather(dst, src, rows kernels.Buf) {
	r.add("gather", func() (func() error, error) {
		o := operands{be: r.be}
		d, s := o.view(dst, "dst"), o.view(src, "src")
		idx := o.table(rows, "rows", d.rows)
		if o.err == nil && (d.kind != s.kind || d.cols != s.cols) {
			o.fail("src is %s of %d columns, dst %s of %d; they must agree", s.kind, s.cols, d.kind, d.cols)
		}
		return func() error {
			for i := range d.rows {
				n := idx.int(i)
				switch {
				case n >= s.rows:
					return fmt.Errorf("row %d: index %d of %d rows", i, n, s.rows)
				case n < 0:
					d.clearRow(i)
				default:
					d.copyRow(i, s, n)
				}
			}
			return nil
		}, o.err
	})
}

// Scatter copies rows to where the table says; negative indices are skipped.
func (r *recorder) Scatter(dst, src, rows kernels.Buf) {
	r.add("scatter", func() (func() error, error) {
		o := operands{be: r.be}
		d, s := o.view(dst, "dst"), o.view(src, "src")
		idx := o.table(rows, "rows", s.rows)
		if o.err == nil && (d.kind != s.kind || d.cols != s.cols) {
			o.fail("src is %s of %d columns, dst %s of %d; they must agree", s.kind, s.cols, d.kind, d.cols)
		}
		return func() error {
			for i := range s.rows {
				n := idx.int(i)
				if n >= d.rows {
					return fmt.Errorf("row %d: index %d of %d rows", i, n, d.rows)
				}
				if n >= 0 {
					d.copyRow(n, s, i)
				}
			}
			return nil
		}, o.err
	})
}

// Copy copies a view to one of the same kind and shape.
func (r *recorder) Copy(dst, src kernels.Buf) {
	r.add("copy", func() (func() error, error) {
		o := operands{be: r.be}
		d := o.view(dst, "dst")
		s := o.kind(src, "src", d.kind, d.rows, d.cols)
		if o.err == nil && s.rows != d.rows {
			o.fail("src has %d rows; it must have %d", s.rows, d.rows)
		}
		return func() error {
			for i := range d.rows {
				d.copyRow(i, s, i)
			}
			return nil
		}, o.err
	})
}

// Norm normalises each row.
func (r *recorder) Norm(dst, x kernels.Buf, n kernels.Norm) {
	r.add("norm", func() (func() error, error) {
		o := operands{be: r.be}
		d := o.kind(dst, "dst", kernels.BF16, 0, -1)
		s := o.view(x, "x")
		o.shape(s, "x", d.rows, d.cols)
		if o.err == nil && s.kind == kernels.I32 {
			o.fail("x is i32; it must be bf16 or f32")
		}
		rn := o.norm(n, d.cols, "norm")
		return func() error {
			for i := range d.rows {
				rn.apply(d.floats(i), s.floats(i))
			}
			return nil
		}, o.err
	})
}

// MatMul computes act(norm(x) Wᵀ) + residual, one row at a time.
func (r *recorder) MatMul(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear) {
	r.add("matmul", func() (func() error, error) {
		m, err := r.be.product(dst, w, x, l)
		if err != nil {
			return nil, err
		}
		return func() error { return m.run(r.be) }, nil
	})
}

// product is a resolved MatMul.
type product struct {
	dst, x, residual view
	w                *weight
	in               norm
	bias             []float64 // nil is none
	act              kernels.Act
}

func (be *Backend) product(dst kernels.Buf, h kernels.Weight, x kernels.Buf, l kernels.Linear) (*product, error) {
	o := operands{be: be}
	m := &product{w: o.weight(h, kernels.Matrix, "w"), act: l.Act}
	if o.err != nil {
		return nil, o.err
	}
	cols := m.w.rows
	switch {
	case l.Act > kernels.SwiGLU:
		o.fail("unknown activation %d", l.Act)
	case (l.Act == kernels.SwiGLU) != m.w.paired:
		o.fail("activation %d on weight %s, paired %t; SwiGLU and paired weights go together", l.Act, m.w.name, m.w.paired)
	case m.w.paired:
		cols /= 2
	}
	m.dst = o.view(dst, "dst")
	o.shape(m.dst, "dst", 0, cols)
	if o.err == nil && m.dst.kind == kernels.I32 {
		o.fail("dst is i32; it must be bf16 or f32")
	}
	m.x = o.kind(x, "x", kernels.BF16, m.dst.rows, m.w.cols)
	m.in = o.norm(l.In, m.w.cols, "input norm")
	if m.in.bias != nil {
		o.fail("the input norm has a bias; only Norm has")
	}
	if !l.Bias.None() {
		m.bias = o.bias(l, cols)
	}
	if !l.Residual.None() {
		m.residual = o.view(l.Residual, "residual")
		o.shape(m.residual, "residual", m.dst.rows, cols)
		if o.err == nil && m.residual.kind == kernels.I32 {
			o.fail("residual is i32; it must be bf16 or f32")
		}
	}
	return m, o.err
}

// bias resolves the elements that a product of cols columns adds.
func (o *operands) bias(l kernels.Linear, cols int) []float64 {
	w := o.weight(l.Bias, kernels.Vector, "bias")
	switch {
	case o.err != nil:
		return nil
	case l.Act == kernels.SwiGLU:
		o.fail("bias %s with SwiGLU, which has none", w.name)
		return nil
	case l.BiasFrom < 0 || l.BiasFrom+cols > len(w.data):
		o.fail("bias %s has %d elements; columns %d+%d were asked for", w.name, len(w.data), l.BiasFrom, cols)
		return nil
	}
	return w.data[l.BiasFrom:][:cols]
}

func (m *product) run(be *Backend) error {
	n, k, rows := m.w.rows, m.w.cols, m.dst.rows
	xs := make([]*tensor.Dense, rows)
	for i := range xs {
		x := make([]float64, k)
		m.in.apply(x, m.x.floats(i))
		xs[i] = tensor.New(tensor.WithShape(k), tensor.WithBacking(x))
	}
	ys := make([]float64, rows*n)
	errs := make([]error, len(m.w.panels))
	parallel(len(m.w.panels), func(p int) {
		panel := m.w.panels[p]
		for i, x := range xs {
			at, pn := i*n+p*panelRows, panel.Shape()[0]
			y := tensor.New(tensor.WithShape(pn), tensor.WithBacking(ys[at:at+pn]))
			if _, err := panel.MatVecMul(x, tensor.WithReuse(y)); err != nil {
				errs[p] = fmt.Errorf("weight %s: %w", m.w.name, err)
				return
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for i := range rows {
		m.finish(i, ys[i*n:(i+1)*n])
	}
	be.work.MatMulRows += uint64(rows)
	be.work.MACs += uint64(rows) * uint64(n) * uint64(k)
	be.work.WeightBytes += uint64(m.w.bytes())
	return nil
}

// finish applies the activation and the residual to the product y of row i.
func (m *product) finish(i int, y []float64) {
	d := m.dst.floats(i)
	for j := range d {
		v := y[j]
		if m.bias != nil {
			v += m.bias[j]
		}
		if m.act == kernels.SwiGLU {
			v = silu(v) * y[len(d)+j]
		} else {
			v = activate(m.act, v)
		}
		if !m.residual.none() {
			v += m.residual.floats(i)[j]
		}
		d[j] = v
	}
}

func activate(a kernels.Act, x float64) float64 {
	switch a {
	case kernels.SiLU:
		return silu(x)
	case kernels.Sigmoid:
		return sigmoid(x)
	}
	return x
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func silu(x float64) float64 { return x * sigmoid(x) }
