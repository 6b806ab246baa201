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

	q, k         []float32 // [rows][KDim], normalised
	v            []float32 // [group][rows][vdim]
	qb           []uint16  // a head after the convolution
	dots, mixed  []float32 // [rows][64]: k_j.k_t and k_j.q_t
	ck, cq       []float32 // [64]: those of a row, with decay
	decays       []float32 // [64]: e_tj
	fromK, fromQ []float32 // [vdim]: S'k, S'q
	sumK, sumQ   []float32 // [vdim]: over the records
	value        []float32 // [vdim]
}

// deltaRows is how many rows of a window go through the steps of a head together,
// so that each step finds its matrix in the first-level cache. A row's arithmetic
// is its own.
const deltaRows = 16

func deltaScratch(o *deltaOp) int {
	k, v, n := o.s.KDim, o.l.vdim, deltaRows
	return scratchBytes([]int{n * k, n * k, o.group * n * v, n * window, n * window, window, window, window, v, v, v, v, v},
		[]int{max(k, o.s.VDim)})
}

func (w *worker) newDeltaHead(o *deltaOp, s span, head int) deltaHead {
	w.begin()
	k, v, n := o.s.KDim, o.l.vdim, deltaRows
	d := deltaHead{w: w, o: o, s: s, head: head, bank: o.c.slots[s.slot].bank, open: o.c.length.at(s.slot) / window}
	d.q, d.k, d.v = w.f32(n*k), w.f32(n*k), w.f32(o.group*n*v)
	d.dots, d.mixed = w.f32(n*window), w.f32(n*window)
	d.ck, d.cq, d.decays = w.f32(window), w.f32(window), w.f32(window)
	d.fromK, d.fromQ, d.sumK, d.sumQ = w.f32(v), w.f32(v), w.f32(v), w.f32(v)
	d.value = w.f32(v)
	d.qb = w.u16(max(k, o.s.VDim))
	if v != o.s.VDim {
		clear(d.v)
	}
	return d
}

func (d *deltaHead) run() {
	for i := 0; i < d.s.n; {
		pos := d.s.start + i
		t := pos % window
		n := min(d.s.n-i, window-t, deltaRows)
		bank := d.bank
		if pos/window != d.open {
			bank = 1 - d.bank
		}
		st := d.o.l.bankOf(d.s.slot, bank)
		for r := range n {
			d.inputs(i + r)
			d.keep(i + r)
			d.convolve(r)
		}
		d.keys(st, t, n)
		for g := range d.o.group {
			d.valueHead(st, i, t, n, g)
		}
		if i += n; t+n == window {
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

// convolve forms q, k and v of row r of a block.
func (d *deltaHead) convolve(r int) {
	o, set, n := d.o, d.w.set, d.o.s.KDim
	scale := 1 / float32(math.Sqrt(float64(n)))
	q, k := d.q[r*n:][:n], d.k[r*n:][:n]
	x := d.conv(o.taps.q[d.head*convTaps*n:], d.head*n, n)
	set.FromBF16(q, x)
	set.Scale(q, q, l2(set.SumSquaresBF16(x))*scale)
	x = d.conv(o.taps.k[d.head*convTaps*n:], o.kCol+d.head*n, n)
	set.FromBF16(k, x)
	set.Scale(k, k, l2(set.SumSquaresBF16(x)))
	for g := range o.group {
		n, h := o.s.VDim, d.head*o.group+g
		set.FromBF16(d.v[(g*deltaRows+r)*o.l.vdim:][:n], d.conv(o.taps.v[h*convTaps*n:], o.vCol+h*n, n))
	}
}

// keys stores k of n rows as columns t and following of the records and takes each
// row's products with all keys up to its own.
func (d *deltaHead) keys(st deltaState, t, n int) {
	dim := d.o.s.KDim
	keys := floats(st.keys, d.head, dim*window)
	for i := range dim {
		column := keys[i*window+t:][:n]
		for r := range column {
			column[r] = d.k[r*dim+i]
		}
	}
	for r := range n {
		seen := roundUp(t+r+1, lanes)
		at := r * window
		d.w.set.MatVec2(d.dots[at:at+seen], d.mixed[at:at+seen], keys, window, d.k[r*dim:][:dim], d.q[r*dim:][:dim])
	}
}

// valueHead advances value head g of the key head by rows [i, i+n), which are rows
// t and following of their window, and writes their outputs.
func (d *deltaHead) valueHead(st deltaState, i, t, n, g int) {
	o := d.o
	h := d.head*o.group + g
	decay := floats(st.decay, h, window)
	for r := range n {
		at := t + r
		in := o.proj.u16(d.s.row + i + r)
		decay[at] = -float32(o.decay[h] * vec.Softplus32(vec.F32(in[o.aCol+h])+o.bias[h]))
		if at > 0 {
			decay[at] += decay[at-1]
		}
		d.valueRow(st, i+r, at, r, g)
	}
}

// valueRow is valueHead of row r of a block: row i of the span, t of its window.
func (d *deltaHead) valueRow(st deltaState, i, t, r, g int) {
	o, set, s, vdim := d.o, d.w.set, &d.o.s, d.o.l.vdim
	h := d.head*o.group + g
	in := o.proj.u16(d.s.row + i)
	decay := floats(st.decay, h, window)
	set.ExpSub(d.decays[:t+1], decay[:t+1], decay[t])
	dots, mixed := d.dots[r*window:][:window], d.mixed[r*window:][:window]
	set.Mul(d.ck[:t], d.decays[:t], dots[:t])
	set.Mul(d.cq[:t], d.decays[:t], mixed[:t])

	records := floats(st.records, h, window*vdim)
	set.MatVec2(d.fromK, d.fromQ, floats(st.state, h, s.KDim*vdim), vdim, d.k[r*s.KDim:][:s.KDim], d.q[r*s.KDim:][:s.KDim])
	set.MatVec2(d.sumK, d.sumQ, records, vdim, d.ck[:t], d.cq[:t])
	beta := vec.Sigmoid32(vec.F32(in[o.bCol+h]))
	out := d.value
	set.DeltaRow(out, records[t*vdim:][:vdim], d.v[(g*deltaRows+r)*vdim:][:vdim], d.fromK, d.sumK, d.fromQ, d.sumQ,
		vec.Exp32(-decay[t]), beta, mixed[t])
	rms := rsqrtMean(set.SumSquares(out[:s.VDim]), s.VDim, o.norm.eps)
	set.NormGateBF16(o.dst.u16(d.s.row + i)[h*s.VDim:][:s.VDim], out[:s.VDim], rms, o.norm.w, in[o.zCol+h*s.VDim:][:s.VDim], s.Gate == kernels.SiLU)
}

// border writes the state after row 63 of the window in st to dst, which may be
// the same bank: two rows of the state at a time.
func (d *deltaHead) border(st, dst deltaState) {
	o, set, n, vdim := d.o, d.w.set, d.o.s.KDim, d.o.l.vdim
	keys := floats(st.keys, d.head, n*window)
	for h := d.head * o.group; h < (d.head+1)*o.group; h++ {
		decay := floats(st.decay, h, window)
		set.ExpSub(d.decays, decay, decay[window-1])
		to := floats(dst.state, h, n*vdim)
		set.Scale(to, floats(st.state, h, n*vdim), vec.Exp32(-decay[window-1]))
		records := floats(st.records, h, window*vdim)
		for i := 0; i < n; i += 2 {
			last := min(i+1, n-1)
			set.Mul(d.ck, d.decays, keys[i*window:][:window])
			set.Mul(d.cq, d.decays, keys[last*window:][:window])
			second := to[last*vdim:][:vdim]
			if last == i {
				second = d.sumQ // of no use
			}
			set.MatVecAdd2(to[i*vdim:][:vdim], second, records, vdim, d.ck, d.cq)
		}
	}
}
