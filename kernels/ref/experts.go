package ref

import (
	"fmt"
	"math"
	"slices"

	"exacta.dev/exacta/kernels"
)

// Route chooses experts by sorting whole rows.
func (r *recorder) Route(ids, weights, logits kernels.Buf, s *kernels.RouteSpec) {
	spec := *s
	r.add("route", func() (func() error, error) {
		o := operands{be: r.be}
		id := o.kind(ids, "ids", kernels.I32, 0, spec.K)
		w := o.kind(weights, "weights", kernels.F32, id.rows, spec.K)
		x := o.kind(logits, "logits", kernels.F32, id.rows, -1)
		if o.err != nil {
			return nil, o.err
		}
		if err := spec.Check(x.cols); err != nil {
			return nil, err
		}
		bias := make([]float64, x.cols)
		if !spec.Bias.None() {
			bias = o.vector(spec.Bias, x.cols, "bias")
		}
		return func() error {
			for i := range id.rows {
				for _, e := range id.ints(i) {
					if spec.Given && (e < 0 || int(e) >= x.cols) {
						return fmt.Errorf("row %d: expert %d of %d", i, e, x.cols)
					}
				}
				route(id.ints(i), w.floats(i), x.floats(i), bias, &spec)
			}
			return nil
		}, o.err
	})
}

// descending sorts indices by value, largest first, ties by index; a NaN is last.
func descending(index []int, value func(i int) float64) {
	at := func(i int) float64 {
		if v := value(i); v == v {
			return v
		}
		return math.Inf(-1)
	}
	slices.SortStableFunc(index, func(i, j int) int {
		switch a, b := at(i), at(j); {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return i - j
	})
}

func route(ids []int32, weights, x, bias []float64, s *kernels.RouteSpec) {
	n := len(x)
	score, choice := make([]float64, n), make([]float64, n)
	copy(score, x)
	switch s.Score {
	case kernels.ScoreSoftmax:
		softmax(score)
		copy(choice, x)
	case kernels.ScoreSigmoid:
		for i, v := range x {
			score[i] = sigmoid(v)
		}
		copy(choice, score)
	case kernels.ScoreSqrtSoftplus:
		for i, v := range x {
			score[i] = math.Sqrt(softplus(v))
		}
		copy(choice, score)
	}
	for i, b := range bias {
		choice[i] += b
	}
	var chosen []int
	if s.Given {
		for _, e := range ids {
			chosen = append(chosen, int(e))
		}
	} else {
		chosen = allowed(choice, s)
		descending(chosen, func(i int) float64 { return choice[i] })
	}
	var sum float64
	for _, e := range chosen[:s.K] {
		sum += score[e]
	}
	if s.Score != kernels.ScoreSoftmax {
		sum += 1e-20
	}
	for j, e := range chosen[:s.K] {
		ids[j], weights[j] = int32(e), score[e]
		if s.Normalize {
			weights[j] /= sum
		}
		weights[j] *= float64(s.Scale)
	}
}

// allowed returns the experts of the groups that are kept.
func allowed(choice []float64, s *kernels.RouteSpec) []int {
	groups, kept := max(s.Groups, 1), s.Kept
	if groups == 1 {
		kept = 1
	}
	size := len(choice) / groups
	order, value := make([]int, groups), make([]float64, groups)
	for g := range order {
		order[g] = g
		in := make([]int, size)
		for i := range in {
			in[i] = g*size + i
		}
		descending(in, func(i int) float64 { return choice[i] })
		if groups > 1 {
			value[g] = choice[in[0]] + choice[in[1]]
		}
	}
	descending(order, func(g int) float64 { return value[g] })
	var out []int
	for _, g := range order[:kept] {
		for i := range size {
			out = append(out, g*size+i)
		}
	}
	return out
}

// mixture is a resolved Experts or Mix.
type mixture struct {
	dst, x, ids, weights, residual view
	w                              *weight
	act                            kernels.Act
	experts, rows                  int // of the bank; of one of its matrices
}

func (o *operands) mixture(dst kernels.Buf, h kernels.Weight, x, ids kernels.Buf, act kernels.Act) *mixture {
	m := &mixture{w: o.weight(h, kernels.Bank, "w"), act: act}
	if o.err != nil {
		return m
	}
	m.experts = m.w.experts
	m.rows = m.w.rows / m.experts
	m.dst, m.ids = o.view(dst, "dst"), o.kind(ids, "ids", kernels.I32, 0, -1)
	m.x = o.kind(x, "x", kernels.BF16, 0, m.w.cols)
	if o.err == nil && m.dst.kind == kernels.I32 {
		o.fail("dst is i32; it must be bf16 or f32")
	}
	return m
}

// Experts multiplies rows by the experts that ids names.
func (r *recorder) Experts(dst kernels.Buf, w kernels.Weight, x, ids kernels.Buf, act kernels.Act) {
	r.add("experts", func() (func() error, error) {
		o := operands{be: r.be}
		m := o.mixture(dst, w, x, ids, act)
		if o.err != nil {
			return nil, o.err
		}
		cols := m.rows
		switch {
		case act > kernels.SwiGLU || (act == kernels.SwiGLU) != m.w.paired:
			o.fail("activation %d on bank %s, paired %t; SwiGLU and paired banks go together", act, m.w.name, m.w.paired)
		case act == kernels.SwiGLU:
			cols /= 2
		}
		o.shape(m.dst, "dst", m.ids.rows*m.ids.cols, cols)
		o.shape(m.x, "x", m.ids.rows, m.w.cols)
		return func() error {
			return m.each(r.be, func(i, j int) int { return i }, func(i, j int, y []float64) {
				d := m.dst.floats(i*m.ids.cols + j)
				for c := range d {
					if act == kernels.SwiGLU {
						d[c] = silu(y[c]) * y[len(d)+c]
					} else {
						d[c] = activate(act, y[c])
					}
				}
			})
		}, o.err
	})
}

// Mix sums rows of experts by weight.
func (r *recorder) Mix(dst kernels.Buf, w kernels.Weight, x, ids, weights, residual kernels.Buf) {
	r.add("mix", func() (func() error, error) {
		o := operands{be: r.be}
		m := o.mixture(dst, w, x, ids, kernels.Identity)
		if o.err != nil {
			return nil, o.err
		}
		if m.w.paired {
			o.fail("bank %s is paired; outputs of experts are added", m.w.name)
		}
		n := m.ids.rows
		o.shape(m.dst, "dst", n, m.rows)
		o.shape(m.x, "x", n*m.ids.cols, m.w.cols)
		m.weights = o.kind(weights, "weights", kernels.F32, n, m.ids.cols)
		if !residual.None() {
			m.residual = o.view(residual, "residual")
			o.shape(m.residual, "residual", n, m.rows)
			if o.err == nil && m.residual.kind == kernels.I32 {
				o.fail("residual is i32; it must be bf16 or f32")
			}
		}
		return func() error {
			sum := make([]float64, n*m.rows)
			err := m.each(r.be, func(i, j int) int { return i*m.ids.cols + j }, func(i, j int, y []float64) {
				for c, v := range y {
					sum[i*m.rows+c] += m.weights.floats(i)[j] * v
				}
			})
			for i := range n {
				d := m.dst.floats(i)
				for c := range d {
					v := sum[i*m.rows+c]
					if !m.residual.none() {
						v += m.residual.floats(i)[c]
					}
					d[c] = v
				}
			}
			return err
		}, o.err
	})
}

// each calls f with the product of row from(i, j) of x and expert j of row i, rows in
// parallel and the experts of a row in order.
func (m *mixture) each(be *Backend, from func(i, j int) int, f func(i, j int, y []float64)) error {
	for i := range m.ids.rows {
		for _, e := range m.ids.ints(i) {
			if e < 0 || int(e) >= m.experts {
				return fmt.Errorf("row %d: expert %d of %d", i, e, m.experts)
			}
		}
	}
	parallel(m.ids.rows, func(i int) {
		y := make([]float64, m.rows)
		for j, e := range m.ids.ints(i) {
			x := m.x.floats(from(i, j))
			for c := range y {
				y[c] = dot(x, m.w.row(int(e)*m.rows+c))
			}
			f(i, j, y)
		}
	})
	n := uint64(m.ids.rows * m.ids.cols)
	be.work.MatMulRows += n
	be.work.MACs += n * uint64(m.rows) * uint64(m.w.cols)
	be.work.WeightBytes += uint64(m.w.bytes() / int64(m.experts) * m.distinct())
	return nil
}

// distinct counts the experts that are used.
func (m *mixture) distinct() int64 {
	used := map[int32]bool{}
	for i := range m.ids.rows {
		for _, e := range m.ids.ints(i) {
			used[e] = true
		}
	}
	return int64(len(used))
}

// Blocks multiplies blocks of columns by their matrices.
func (r *recorder) Blocks(dst kernels.Buf, w kernels.Weight, x kernels.Buf) {
	r.add("blocks", func() (func() error, error) {
		o := operands{be: r.be}
		m := o.weight(w, kernels.Diagonal, "w")
		if o.err != nil {
			return nil, o.err
		}
		n := m.rows / m.experts
		d := o.view(dst, "dst")
		o.shape(d, "dst", 0, m.rows)
		if o.err == nil && d.kind == kernels.I32 {
			o.fail("dst is i32; it must be bf16 or f32")
		}
		s := o.kind(x, "x", kernels.BF16, d.rows, m.experts*m.cols)
		return func() error {
			parallel(d.rows, func(i int) {
				in, out := s.floats(i), d.floats(i)
				for c := range out {
					out[c] = dot(in[c/n*m.cols:][:m.cols], m.row(c))
				}
			})
			r.be.work.MatMulRows += uint64(d.rows)
			r.be.work.MACs += uint64(d.rows) * uint64(m.rows) * uint64(m.cols)
			r.be.work.WeightBytes += uint64(m.bytes())
			return nil
		}, o.err
	})
}
