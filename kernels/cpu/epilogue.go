package cpu

import "exacta.dev/exacta/kernels"

// finish applies bias, activation and residual to columns [c0, c1) of rows [r, r+n)
// and rounds them into dst.
func (w *worker) finish(o *matmulOp, r, n, c0, c1 int, acc []float32, stride int) {
	for i := range n {
		a := acc[i*stride : i*stride+c1-c0]
		if o.bias != nil {
			w.set.Add(a, o.bias[c0:c1])
		}
		switch o.act {
		case kernels.SiLU:
			w.set.SiLU(a, a)
		case kernels.Sigmoid:
			w.set.Sigmoid(a, a)
		}
		w.store(o, r+i, c0, c1, a)
	}
}

// store adds the residual and rounds into columns [c0, c1) of row r of dst. The
// scratch of the worker holds a widened residual where kinds differ.
func (w *worker) store(o *matmulOp, r, c0, c1 int, a []float32) {
	switch {
	case o.res.none() && o.dst.kind == kernels.BF16:
		w.set.ToBF16(o.dst.u16(r)[c0:c1], a)
	case o.res.none():
		copy(o.dst.f32(r)[c0:c1], a)
	case o.res.kind == kernels.BF16 && o.dst.kind == kernels.BF16:
		w.set.AddBF16(o.dst.u16(r)[c0:c1], o.res.u16(r)[c0:c1], a)
	default:
		taken := w.taken
		if o.res.kind == kernels.F32 {
			w.set.Add(a, o.res.f32(r)[c0:c1])
		} else {
			t := w.f32(c1 - c0)
			w.set.FromBF16(t, o.res.u16(r)[c0:c1])
			w.set.Add(a, t)
		}
		w.taken = taken
		if o.dst.kind == kernels.BF16 {
			w.set.ToBF16(o.dst.u16(r)[c0:c1], a)
		} else {
			copy(o.dst.f32(r)[c0:c1], a)
		}
	}
}

// swiglu finishes one row of a panel: gate in the first half of a, up in the
// second.
func (w *worker) swiglu(o *matmulOp, r, c0, c1 int, a []float32) {
	g, u := a[:c1-c0], a[halfRows:halfRows+c1-c0]
	if o.res.none() && o.dst.kind == kernels.BF16 {
		w.set.SwiGLUBF16(o.dst.u16(r)[c0:c1], g, u)
		return
	}
	w.set.SiLU(g, g)
	for i, v := range u {
		g[i] *= v
	}
	w.store(o, r, c0, c1, g)
}
