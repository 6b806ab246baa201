package ref

import (
	"fmt"
	"math"

	"exacta.dev/exacta/kernels"
)

// deltaNet is a resolved Delta.
type deltaNet struct {
	dst, proj    view
	c            *caches
	store        *deltaStore
	t            *tables
	s            kernels.DeltaSpec
	taps         *weight
	aLog, dtBias []float64
	norm         norm
}

// Delta runs a Gated DeltaNet layer as the step recurrence.
func (r *recorder) Delta(dst, proj kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
	r.add("delta", func() (func() error, error) {
		o := operands{be: r.be}
		d := &deltaNet{s: *s}
		c, geo := o.layer(l, kernels.Delta)
		if o.err != nil {
			return nil, o.err
		}
		d.c, d.store = c, c.delta[l.Index]
		if s.KHeads != geo.KHeads || s.VHeads != geo.VHeads || s.KDim != geo.KDim || s.VDim != geo.VDim || s.Conv != geo.Conv {
			o.fail("heads %d of %d and %d of %d, %d taps; the cache has %d of %d and %d of %d, %d taps", s.KHeads, s.KDim,
				s.VHeads, s.VDim, s.Conv, geo.KHeads, geo.KDim, geo.VHeads, geo.VDim, geo.Conv)
			return nil, o.err
		}
		if s.Gate != kernels.SiLU && s.Gate != kernels.Sigmoid {
			o.fail("gate activation %d; it must be SiLU or Sigmoid", s.Gate)
		}
		d.t = o.batch(b, "batch")
		d.dst = o.kind(dst, "dst", kernels.BF16, b.Rows, s.VHeads*s.VDim)
		d.proj = o.kind(proj, "proj", kernels.BF16, b.Rows, channels(geo)+s.VHeads*s.VDim+2*s.VHeads)
		d.taps = o.weight(s.Taps, kernels.Taps, "taps")
		if o.err == nil && (d.taps.rows != channels(geo) || d.taps.cols != s.Conv) {
			o.fail("taps are [%d, %d]; they must be [%d, %d]", d.taps.rows, d.taps.cols, channels(geo), s.Conv)
		}
		d.aLog = o.vector(s.ALog, s.VHeads, "a_log")
		d.dtBias = o.vector(s.DtBias, s.VHeads, "dt_bias")
		d.norm = o.norm(s.Norm, s.VDim, "norm")
		return func() error { return d.run(r.be) }, o.err
	})
}

func (d *deltaNet) run(be *Backend) error {
	spans, err := d.t.active(d.c.spec.Slots)
	if err != nil {
		return err
	}
	for i := range spans {
		if err := d.span(&spans[i]); err != nil {
			return fmt.Errorf("span %d: %w", spans[i].index, err)
		}
		be.work.DeltaRows += uint64(spans[i].n)
	}
	return nil
}

// step is one row after convolution and gates.
type step struct {
	q, k    []float64 // [KHeads, KDim], normalised, q scaled
	v, z    []float64 // [VHeads, VDim]
	beta, g []float64 // [VHeads]
	// from and to are the states before and after the row. They are equal
	// for a span too long to keep the states between.
	from, to *state
}

// span runs one span and leaves its states tentative.
func (d *deltaNet) span(sp *span) error {
	slot := &d.store.slots[sp.slot]
	if got := d.c.length.int(sp.slot); sp.start != got {
		return fmt.Errorf("slot %d: the span starts at %d, the committed length is %d", sp.slot, sp.start, got)
	}
	if slot.committed.behind {
		return fmt.Errorf("slot %d: the layer did not run over tokens that were committed; it can't go on before the slot is reset or restored", sp.slot)
	}
	slot.tentative = tentative{n: sp.n, start: sp.start, chain: sp.chain(), whole: sp.n > len(slot.after)}
	if slot.tentative.whole && !slot.tentative.chain {
		return fmt.Errorf("slot %d: a tree of %d rows; a span of more than MaxDraft+1 = %d rows must be a chain", sp.slot, sp.n, len(slot.after))
	}
	steps := make([]*step, sp.n)
	for i := range steps {
		from, to := slot.committed, slot.after[0]
		if slot.tentative.whole {
			if i > 0 {
				from = to
			}
		} else {
			to = slot.after[i]
			if p := sp.parent[i]; p >= 0 {
				from = slot.after[p]
			}
		}
		steps[i] = d.prepare(d.proj.floats(sp.off+i), from, to)
	}
	parallel(d.s.VHeads, func(h int) {
		for i, st := range steps {
			d.advance(st, h, d.dst.floats(sp.off + i)[h*d.s.VDim:(h+1)*d.s.VDim])
		}
	})
	return nil
}

// prepare convolves a row, shifts its input into the convolution's memory, and
// forms heads and gates.
func (d *deltaNet) prepare(x []float64, from, to *state) *step {
	kd, vd := d.s.KHeads*d.s.KDim, d.s.VHeads*d.s.VDim
	c := d.convolve(x[:2*kd+vd], from, to)
	st := &step{
		q: c[:kd], k: c[kd : 2*kd], v: c[2*kd:],
		z: x[2*kd+vd : 2*kd+2*vd], from: from, to: to,
	}
	for h := range d.s.KHeads {
		l2(st.q[h*d.s.KDim : (h+1)*d.s.KDim])
		l2(st.k[h*d.s.KDim : (h+1)*d.s.KDim])
	}
	for i := range st.q {
		st.q[i] /= math.Sqrt(float64(d.s.KDim))
	}
	b, a := x[2*kd+2*vd:2*kd+2*vd+d.s.VHeads], x[2*kd+2*vd+d.s.VHeads:]
	for h := range d.s.VHeads {
		st.beta = append(st.beta, sigmoid(b[h]))
		st.g = append(st.g, -math.Exp(d.aLog[h])*softplus(a[h]+d.dtBias[h]))
	}
	return st
}

// convolve returns silu of the causal convolution ending at u.
func (d *deltaNet) convolve(u []float64, from, to *state) []float64 {
	n, past := d.s.Conv-1, from.conv
	out := make([]float64, len(u))
	for ch := range u {
		w := d.taps.row(ch)
		sum := w[n] * u[ch]
		for j := range n {
			sum += w[j] * past[j*len(u)+ch]
		}
		out[ch] = silu(sum)
	}
	if n > 0 {
		next := to.conv
		copy(next, past[len(u):n*len(u)])
		copy(next[(n-1)*len(u):], u)
	}
	return out
}

// advance runs the recurrence of one value head over one row and writes the
// gated, normed output.
func (d *deltaNet) advance(st *step, h int, out []float64) {
	kdim, vdim := d.s.KDim, d.s.VDim
	kh := h / (d.s.VHeads / d.s.KHeads)
	q, k := st.q[kh*kdim:(kh+1)*kdim], st.k[kh*kdim:(kh+1)*kdim]
	v, z := st.v[h*vdim:(h+1)*vdim], st.z[h*vdim:(h+1)*vdim]
	s := st.to.head(h)
	copy(s, st.from.head(h))
	decay := math.Exp(st.g[h])
	for i := range s {
		s[i] *= decay
	}
	u := append([]float64(nil), v...)
	for i, ki := range k {
		for j := range u {
			u[j] -= s[i*vdim+j] * ki
		}
	}
	for j := range u {
		u[j] *= st.beta[h]
	}
	o := make([]float64, vdim)
	for i, ki := range k {
		row := s[i*vdim : (i+1)*vdim]
		for j := range row {
			row[j] += ki * u[j]
			o[j] += row[j] * q[i]
		}
	}
	d.norm.apply(out, o)
	for j := range out {
		out[j] *= activate(d.s.Gate, z[j])
	}
}

// l2 normalises x with 1e-6 added to the sum.
func l2(x []float64) {
	inv := 1 / math.Sqrt(dot(x, x)+1e-6)
	for i := range x {
		x[i] *= inv
	}
}

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }
