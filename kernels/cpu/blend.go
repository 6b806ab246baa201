package cpu

import "exacta.dev/exacta/kernels"

// blendOp adds an n-gram memory to the streams over a batch.
type blendOp struct {
	x, src view
	c      *caches
	l      *layer
	b      tables
	s      kernels.BlendSpec
	taps   *weight
	norm   norm
	n, h   int
}

// Blend adds gated values and their convolution over positions to the streams.
func (q *queue) Blend(x, src kernels.Buf, h kernels.Layer, b *kernels.Batch, s *kernels.BlendSpec) {
	const op = "blend"
	if q.off() {
		return
	}
	o := blendOp{s: *s, b: q.batch(op, b)}
	if o.c, o.l = q.anyLayer(op, h); q.off() {
		return
	}
	if err := s.Check(o.l.spec); err != nil {
		q.bad("blend: %v", err)
		return
	}
	o.h = s.Norm.Group
	o.n = o.l.spec.RowDim - o.h
	cols := o.n * o.h
	o.x = q.shaped(op, "x", x, kernels.BF16, b.Rows, cols)
	o.src = q.shaped(op, "src", src, kernels.BF16, b.Rows, o.l.spec.RowDim)
	if o.taps = q.weightOf(op, s.Taps, kernels.Taps); o.taps == nil {
		return
	}
	if o.taps.rows != cols {
		q.bad("blend: taps %s are [%d, %d] for %d columns", o.taps.name, o.taps.rows, o.taps.cols, cols)
	}
	o.norm = q.normEach(op, s.Norm, cols)
	if q.off() {
		return
	}
	q.require(needs{worker: scratchBytes([]int{cols, cols, o.h, o.h, o.n}, nil)})
	q.list.blends = append(q.list.blends, o)
	q.push(opBlend, b.Rows < 2, len(q.list.blends)-1)
}

func (w *worker) blend(o *blendOp) {
	if !w.sideSpans("blend", &o.b, o.c, (o.taps.cols-1)*o.s.Dilation) {
		return
	}
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		lo, hi := w.part(s.n)
		for r := lo; r < hi; r++ {
			w.blendRow(o, &s, r)
			copy(o.l.side.row(o.c.placeOf(s.slot, s.start+r)), o.src.u16(s.row+r))
		}
	}
}

// blendRow updates the streams of row r of a span.
func (w *worker) blendRow(o *blendOp, s *span, r int) {
	w.begin()
	set, k := w.set, o.taps.cols
	out, sum, v, t, gates := w.f32(o.n*o.h), w.f32(o.n*o.h), w.f32(o.h), w.f32(o.h), w.f32(o.n)
	x := o.x.u16(s.row + r)
	set.FromBF16(out, x)
	clear(sum)
	pos := s.pos(&o.b, r)
	for j := 0; j < k && pos-j*o.s.Dilation >= 0; j++ {
		at := pos - j*o.s.Dilation
		var in []uint16
		if at >= s.start {
			in = o.src.u16(s.row + s.ancestor(&o.b, r, at))
		} else {
			in = o.l.side.row(o.c.placeOf(s.slot, at))
		}
		set.FromBF16(v, in[:o.h])
		set.FromBF16(gates, in[o.h:])
		for i, g := range gates {
			set.Scale(t, v, g)
			if j == 0 {
				set.Add(out[i*o.h:][:o.h], t)
			}
			set.ScaleWeight(t, t, rsqrtMean(set.SumSquares(t), o.h, o.norm.eps), o.norm.of(i*o.h))
			set.Mul(t, t, o.taps.values[(k-1-j)*o.n*o.h+i*o.h:][:o.h])
			set.Add(sum[i*o.h:][:o.h], t)
		}
	}
	set.SiLU(sum, sum)
	set.Add(out, sum)
	set.ToBF16(x, out)
}
