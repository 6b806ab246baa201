package cpu

import (
	"math"
	"unsafe"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// deltaOp is one Gated DeltaNet layer over a batch.
type deltaOp struct {
	dst, proj   view
	c           *caches
	l           *layer
	b           tables
	s           kernels.DeltaSpec
	norm        norm
	taps        *headTaps
	decay, bias []float32 // -exp(ALog), DtBias
	group       int       // value heads of a key head
	kCol, vCol  int       // first columns of k, v, z, b, a
	zCol, bCol  int
	aCol        int
}

// headTaps are the taps of a convolution packed per head, [head][4][n], padded
// with zeros in front of kernels of fewer than four taps, and -exp(ALog).
type headTaps struct {
	kHeads, vHeads, kDim, vDim int
	q, k, v                    []float32
	aLog                       *weight
	decay                      []float32
}

// Delta records a Gated DeltaNet layer.
func (q *queue) Delta(dst, proj kernels.Buf, h kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
	const op = "delta"
	if q.off() {
		return
	}
	o := deltaOp{b: q.batch(op, b), s: *s}
	o.c, o.l = q.layerOf(op, h, kernels.Delta)
	if q.off() {
		return
	}
	l := o.l.spec
	if s.KHeads != l.KHeads || s.VHeads != l.VHeads || s.KDim != l.KDim || s.VDim != l.VDim || s.Conv != l.Conv {
		q.bad("delta: %d x %d keys, %d x %d values, %d taps; the layer's cache has %d x %d, %d x %d, %d",
			s.KHeads, s.KDim, s.VHeads, s.VDim, s.Conv, l.KHeads, l.KDim, l.VHeads, l.VDim, l.Conv)
		return
	}
	kd, vd := s.KHeads*s.KDim, s.VHeads*s.VDim
	o.group = s.VHeads / s.KHeads
	o.kCol, o.vCol, o.zCol = kd, 2*kd, 2*kd+vd
	o.bCol, o.aCol = 2*kd+2*vd, 2*kd+2*vd+s.VHeads
	o.dst = q.shaped(op, "dst", dst, kernels.BF16, b.Rows, vd)
	o.proj = q.shaped(op, "proj", proj, kernels.BF16, b.Rows, o.aCol+s.VHeads)
	if !q.deltaWeights(&o) {
		return
	}
	q.require(needs{worker: deltaScratch(&o)})
	q.list.deltas = append(q.list.deltas, o)
	q.push(opDelta, false, len(q.list.deltas)-1)
}

// deltaWeights resolves the parameters.
func (q *queue) deltaWeights(o *deltaOp) bool {
	const op = "delta"
	s := &o.s
	taps := q.weightOf(op, s.Taps, kernels.Taps)
	aLog := q.weightOf(op, s.ALog, kernels.Vector)
	bias := q.weightOf(op, s.DtBias, kernels.Vector)
	if s.Norm.W.None() {
		q.bad("delta: the output norm has no weight")
	}
	o.norm = q.normOf(op, s.Norm, s.VDim)
	if q.off() {
		return false
	}
	switch {
	case taps.rows != o.l.channels || taps.cols != s.Conv:
		q.bad("delta: taps %s are [%d, %d], want [%d, %d]", taps.name, taps.rows, taps.cols, o.l.channels, s.Conv)
	case len(aLog.values) != s.VHeads:
		q.bad("delta: %s has %d elements, want %d", aLog.name, len(aLog.values), s.VHeads)
	case len(bias.values) != s.VHeads:
		q.bad("delta: %s has %d elements, want %d", bias.name, len(bias.values), s.VHeads)
	case s.Gate != kernels.SiLU && s.Gate != kernels.Sigmoid:
		q.bad("delta: the gate must be SiLU or Sigmoid")
	default:
		q.b.mem.open()
		o.taps = taps.perHead(s, aLog)
		q.b.mem.shut()
		o.decay, o.bias = o.taps.decay, bias.values
		return true
	}
	return false
}

// perHead returns the taps packed for the heads of s; they are packed once.
func (t *weight) perHead(s *kernels.DeltaSpec, aLog *weight) *headTaps {
	h := t.heads
	if h != nil && h.kHeads == s.KHeads && h.vHeads == s.VHeads && h.kDim == s.KDim && h.vDim == s.VDim && h.aLog == aLog {
		return h
	}
	h = &headTaps{kHeads: s.KHeads, vHeads: s.VHeads, kDim: s.KDim, vDim: s.VDim, aLog: aLog}
	pack := func(first, heads, n int) []float32 {
		out := make([]float32, heads*convTaps*n)
		for i := range heads {
			for j := range s.Conv {
				copy(out[(i*convTaps+convTaps-s.Conv+j)*n:][:n], t.values[j*t.rows+first+i*n:])
			}
		}
		return out
	}
	kd := s.KHeads * s.KDim
	h.q, h.k, h.v = pack(0, s.KHeads, s.KDim), pack(kd, s.KHeads, s.KDim), pack(2*kd, s.VHeads, s.VDim)
	for _, v := range aLog.values {
		h.decay = append(h.decay, -vec.Exp32(v))
	}
	t.heads = h
	return h
}

// delta runs this worker's (span, key head) pairs.
func (w *worker) delta(o *deltaOp) {
	rows := 0
	w.checkSpans()
	for i := range o.b.spans {
		s, ok := w.span("delta", &o.b, o.c, i)
		if !ok {
			return
		}
		if n := o.c.length.at(s.slot); s.n > 0 && s.start/window < n/window {
			w.fail("cpu: delta: span %d starts at %d, before the window of the committed length %d of slot %d", i, s.start, n, s.slot)
			return
		}
		rows += s.n
	}
	if w.id == 0 {
		w.work.DeltaRows += uint64(rows)
	}
	heads := o.s.KHeads
	units := o.b.spans * heads
	for u := w.first(units); u < units; u = w.after(u, units) {
		i := u / heads
		s := o.b.spanOf(i)
		if s.n > 0 {
			d := w.newDeltaHead(o, s, u%heads)
			d.run()
		}
	}
}

// deltaState are the parts of a bank that one key head and its value heads use.
type deltaState struct {
	state   unsafe.Pointer // [VHeads][KDim][vdim]
	keys    unsafe.Pointer // [KHeads][KDim][cols]
	records unsafe.Pointer // [VHeads][cols][vdim]
	decay   unsafe.Pointer // [VHeads][cols]: minus the cumulative log decay
}

func (l *layer) bankOf(slot, bank int) deltaState {
	p := addBytes(l.base, slot*l.slot+bank*l.bank)
	return deltaState{p, addBytes(p, l.keysAt), addBytes(p, l.recordsAt), addBytes(p, l.decayAt)}
}

func floats(p unsafe.Pointer, i, n int) []float32 {
	return unsafe.Slice((*float32)(addBytes(p, 4*i*n)), n)
}

// convInput returns the inputs of the convolution at a position before the span:
// from the ring, or from the tail that the last long span left.
func (c *caches) convInput(l *layer, slot, pos int) []uint16 {
	s := &c.slots[slot]
	i := pos & (c.ring - 1)
	if pos < s.tailAt && pos >= s.tailAt-convTail {
		i = c.ring + s.tailBank*convTail + pos - (s.tailAt - convTail)
	}
	return l.convRow(slot, i)
}

func (l *layer) convRow(slot, i int) []uint16 {
	return unsafe.Slice((*uint16)(addBytes(l.base, slot*l.slot+l.convAt+2*i*l.channels)), l.channels)
}

// l2 returns 1 / sqrt(sum + 1e-6).
func l2(sum float32) float32 { return 1 / float32(math.Sqrt(float64(sum+1e-6))) }
