package cpu

import (
	"math"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// deltaHead runs one key head of a span, with its value heads, row by row.
//
// With S the state at the window's start, G the cumulative log decay and
// e_tj = exp(G_t - G_j), row t of a window is
//
//	u_t = beta_t (v_t - exp(G_t) S'k_t - sum_{j<t} (e_tj k_j.k_t) u_j)
//	o_t = exp(G_t) S'q_t + sum_{j<t} (e_tj k_j.q_t) u_j + (k_t.q_t) u_t
//
// (the parallel form of Yang et al. 2024 with the triangular solve done by
// forward substitution), the same for a row of a prefill, a decode step and a
// verification. After row 63, S <- exp(G_63) S + sum_j e_63j k_j u_j', j
// ascending, goes to the spare bank.
type deltaHead struct {
	w    *worker
	o    *deltaOp
	s    span
	head int
	bank int // of the committed state
	open int // window of the committed state

	q, k           []float32 // [KDim], normalised
	qb             []uint16  // a head after the convolution
	dots, mixed    []float32 // [64]: k_j.k_t and k_j.q_t, then with decay
	decays         []float32 // [64]: e_tj
	fromK, fromQ   []float32 // [vdim]: S'k, S'q
	sumK, sumQ     []float32 // [vdim]: over the records
	value, rowKeys []float32 // [vdim], [64][KDim]
}

func deltaScratch(o *deltaOp) int {
	k, v := o.s.KDim, o.l.vdim
	return scratchBytes([]int{k, k, window, window, window, v, v, v, v, v, window * k}, []int{max(k, o.s.VDim)})
}

func (w *worker) newDeltaHead(o *deltaOp, s span, head int) deltaHead {
	w.begin()
	k, v := o.s.KDim, o.l.vdim
	d := deltaHead{w: w, o: o, s: s, head: head, bank: o.c.slots[s.slot].bank, open: o.c.length.at(s.slot) / window}
	d.q, d.k = w.f32(k), w.f32(k)
	d.dots, d.mixed, d.decays = w.f32(window), w.f32(window), w.f32(window)
	d.fromK, d.fromQ, d.sumK, d.sumQ = w.f32(v), w.f32(v), w.f32(v), w.f32(v)
	d.value, d.rowKeys = w.f32(v), w.f32(window*k)
	d.qb = w.u16(max(k, o.s.VDim))
	clear(d.value)
	return d
}

func (d *deltaHead) run() {
	for i := range d.s.n {
		pos := d.s.start + i
		bank := d.bank
		if pos/window != d.open {
			bank = 1 - d.bank
		}
		st := d.o.l.bankOf(d.s.slot, bank)
		d.inputs(i)
		d.keep(i)
		d.keys(st, pos%window)
		for g := range d.o.group {
			d.valueHead(st, i, pos%window, d.head*d.o.group+g)
		}
		if pos%window == window-1 {
			d.border(st, d.o.l.bankOf(d.s.slot, 1-d.bank))
		}
	}
}

// inputs points w.in at the rows that the convolution of row i reads.
func (d *deltaHead) inputs(i int) {
	for j := range convTaps {
		t := i - convTail + j
		switch pos := d.s.start + t; {
		case pos < 0:
			d.w.in[j] = nil
		case t >= 0:
			d.w.in[j] = d.o.proj.u16(d.s.row + t)[:d.o.l.channels]
		default:
			d.w.in[j] = d.o.c.convInput(d.o.l, d.s.slot, pos)
		}
	}
}

// conv convolves n channels from column col into d.qb.
func (d *deltaHead) conv(taps []float32, col, n int) []uint16 {
	in := &d.w.cut // of the worker: a local would escape
	for j, row := range d.w.in {
		if in[j] = nil; row != nil {
			in[j] = row[col : col+n]
		}
	}
	d.w.set.Conv4BF16(d.qb[:n], taps, in)
	return d.qb[:n]
}

// keep stores this head's channels of row i for later convolutions: in the ring,
// or, in a span too long to be cut, its last rows in the spare tail.
func (d *deltaHead) keep(i int) {
	o, n := d.o, d.s.n
	c := o.c
	at := (d.s.start + i) & (c.ring - 1)
	if n > c.short {
		if i < n-convTail {
			return
		}
		at = c.ring + (1-c.slots[d.s.slot].tailBank)*convTail + i - (n - convTail)
	}
	dst, src := o.l.convRow(d.s.slot, at), o.proj.u16(d.s.row+i)
	kd, vd := o.s.KDim, o.group*o.s.VDim
	for _, r := range [3][2]int{{d.head * kd, kd}, {o.kCol + d.head*kd, kd}, {o.vCol + d.head*vd, vd}} {
		copy(dst[r[0]:r[0]+r[1]], src[r[0]:])
	}
}

// keys forms q and k of the row, stores k as column t of the records and takes
// its products with all keys up to its own.
func (d *deltaHead) keys(st deltaState, t int) {
	o, set, n := d.o, d.w.set, d.o.s.KDim
	x := d.conv(o.taps.q[d.head*convTaps*n:], d.head*n, n)
	set.FromBF16(d.q, x)
	scale := 1 / float32(math.Sqrt(float64(n)))
	set.Scale(d.q, d.q, l2(set.SumSquaresBF16(x))*scale)
	x = d.conv(o.taps.k[d.head*convTaps*n:], o.kCol+d.head*n, n)
	set.FromBF16(d.k, x)
	set.Scale(d.k, d.k, l2(set.SumSquaresBF16(x)))
	keys := floats(st.keys, d.head, n*window)
	for i, v := range d.k {
		keys[i*window+t] = v
	}
	seen := roundUp(t+1, lanes)
	set.MatVec2(d.dots[:seen], d.mixed[:seen], keys, window, d.k, d.q)
}

// valueHead advances value head h by row i, which is row t of its window, and
// writes its output. d.dots and d.mixed hold the products of the keys.
func (d *deltaHead) valueHead(st deltaState, i, t, h int) {
	o, set, s, vdim := d.o, d.w.set, &d.o.s, d.o.l.vdim
	in := o.proj.u16(d.s.row + i)
	beta := vec.Sigmoid32(vec.F32(in[o.bCol+h]))
	decay := floats(st.decay, h, window)
	decay[t] = -float32(o.decay[h] * vec.Softplus32(vec.F32(in[o.aCol+h])+o.bias[h]))
	if t > 0 {
		decay[t] += decay[t-1]
	}
	set.ExpSub(d.decays[:t+1], decay[:t+1], decay[t])
	grown := vec.Exp32(-decay[t])
	x := d.conv(o.taps.v[h*convTaps*s.VDim:], o.vCol+h*s.VDim, s.VDim)
	set.FromBF16(d.value[:s.VDim], x)

	records := floats(st.records, h, window*vdim)
	set.MatVec2(d.fromK, d.fromQ, floats(st.state, h, s.KDim*vdim), vdim, d.k, d.q)
	ck, cq := d.rowKeys[:window], d.rowKeys[window:2*window] // free until the border
	for j := range t {
		ck[j], cq[j] = d.decays[j]*d.dots[j], d.decays[j]*d.mixed[j]
	}
	set.MatVec2(d.sumK, d.sumQ, records, vdim, ck[:t], cq[:t])

	u := records[t*vdim:][:vdim]
	copy(u, d.value)
	set.Axpy(u, d.fromK, -grown)
	set.Axpy(u, d.sumK, -1)
	set.Scale(u, u, beta)

	out := d.fromQ
	set.Scale(out, out, grown)
	set.Add(out, d.sumQ)
	set.Axpy(out, u, d.mixed[t])
	rms := rsqrtMean(set.SumSquares(out[:s.VDim]), s.VDim, o.norm.eps)
	set.NormGateBF16(o.dst.u16(d.s.row + i)[h*s.VDim:][:s.VDim], out[:s.VDim], rms, o.norm.w, in[o.zCol+h*s.VDim:][:s.VDim], s.Gate == kernels.SiLU)
}

// border writes the state after row 63 of the window in st to dst, which may be
// the same bank.
func (d *deltaHead) border(st, dst deltaState) {
	o, set, n, vdim := d.o, d.w.set, d.o.s.KDim, d.o.l.vdim
	keys := floats(st.keys, d.head, n*window)
	for j := range window {
		for i := range n {
			d.rowKeys[j*n+i] = keys[i*window+j]
		}
	}
	for h := d.head * o.group; h < (d.head+1)*o.group; h++ {
		decay := floats(st.decay, h, window)
		set.ExpSub(d.decays, decay, decay[window-1])
		to := floats(dst.state, h, n*vdim)
		set.Scale(to, floats(st.state, h, n*vdim), vec.Exp32(-decay[window-1]))
		records := floats(st.records, h, window*vdim)
		for j := range window {
			set.Rank1Add(to, vdim, d.decays[j], d.rowKeys[j*n:][:n], records[j*vdim:][:vdim])
		}
	}
}
