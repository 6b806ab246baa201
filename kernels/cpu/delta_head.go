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
//
// The records of row i of a span stand in the place of position start + i: column
// (start + i) % 64 in a chain. A row that has i rows before it in the span but
// fewer on its path finds the records of its path through cols, and puts them
// together before they are summed up: the same numbers in the same order.
type deltaHead struct {
	w    *worker
	o    *deltaOp
	s    span
	head int
	bank int // of the committed state
	open int // window of the committed state
	gate int // row of a tree whose path made the state in the spare bank; -1: none

	shift int          // columns from where a chain would keep the rows of a block
	cols  [window]int  // where the rows of a block's path are
	path  []float32    // [64][vdim]: records of a path
	fades []float32    // [64]: decays of a path
	line  [2][]float32 // [64]: keys of a path

	q, k         []float32 // [rows][KDim], normalised
	v            []float32 // [group][rows][vdim]
	qb           []uint16  // a head after the convolution
	dots, mixed  []float32 // [rows][cols]: k_j.k_t and k_j.q_t
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
	k, v, n, c := o.s.KDim, o.l.vdim, deltaRows, o.l.cols
	return scratchBytes([]int{n * k, n * k, o.group * n * v, n * c, n * c, window, window, window, v, v, v, v, v, window * v, window, window, window},
		[]int{max(k, o.s.VDim)})
}

func (w *worker) newDeltaHead(o *deltaOp, s span, head int) deltaHead {
	w.begin()
	k, v, n := o.s.KDim, o.l.vdim, deltaRows
	d := deltaHead{w: w, o: o, s: s, head: head, bank: o.c.slots[s.slot].bank, open: o.c.length.at(s.slot) / window, gate: -1}
	d.q, d.k, d.v = w.f32(n*k), w.f32(n*k), w.f32(o.group*n*v)
	d.dots, d.mixed = w.f32(n*o.l.cols), w.f32(n*o.l.cols)
	d.ck, d.cq, d.decays = w.f32(window), w.f32(window), w.f32(window)
	d.fromK, d.fromQ, d.sumK, d.sumQ = w.f32(v), w.f32(v), w.f32(v), w.f32(v)
	d.value = w.f32(v)
	d.path, d.fades, d.line = w.f32(window*v), w.f32(window), [2][]float32{w.f32(window), w.f32(window)}
	d.qb = w.u16(max(k, o.s.VDim))
	if v != o.s.VDim {
		clear(d.v)
	}
	return d
}

func (d *deltaHead) run() {
	b := &d.o.b
	for i := 0; i < d.s.n; {
		pos := d.s.pos(b, i)
		t := pos % window
		n := min(d.s.n-i, window-t, deltaRows)
		bank := d.bank
		if pos/window != d.open {
			bank = 1 - d.bank
		}
		if d.s.tree {
			n = min(n, d.s.run(b, i)-i)
			d.pass(i, pos)
			d.follow(i, pos, n)
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
			d.gate = i - 1
		}
	}
}

// pass makes the state at the window's border that of row i's path, if the row lies
// behind it and another row of the tree has passed it since.
func (d *deltaHead) pass(i, pos int) {
	last := pos/window*window - 1 // position before the border
	if last < d.s.start {
		return
	}
	g := d.s.ancestor(&d.o.b, i, last)
	if g != d.gate {
		d.follow(g, last, 1)
		d.border(d.o.l.bankOf(d.s.slot, d.bank), d.o.l.bankOf(d.s.slot, 1-d.bank))
		d.gate = g
	}
}

// follow sets shift and cols for a block of n rows from row i on, which is at pos.
func (d *deltaHead) follow(i, pos, n int) {
	d.shift = i - (pos - d.s.start)
	if d.shift == 0 {
		return
	}
	first := pos / window * window
	for t := range n {
		d.cols[pos-first+t] = pos - first + t + d.shift
	}
	for p := pos - 1; p >= first; p-- {
		d.cols[p-first] = p - first
		if p >= d.s.start {
			i = d.o.b.parent.at(d.s.row + i)
			d.cols[p-first] += i - (p - d.s.start)
		}
	}
}

// inputs points w.in at the rows that the convolution of row i reads.
func (d *deltaHead) inputs(i int) {
	if d.s.tree {
		d.pathInputs(i)
		return
	}
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

// pathInputs is inputs for a row of a tree.
func (d *deltaHead) pathInputs(i int) {
	pos := d.o.b.pos.at(d.s.row + i)
	for j := convTail; j >= 0; j-- {
		switch {
		case pos < 0:
			d.w.in[j] = nil
		case pos >= d.s.start:
			d.w.in[j] = d.o.proj.u16(d.s.row + i)[:d.o.l.channels]
			i = d.o.b.parent.at(d.s.row + i)
		default:
			d.w.in[j] = d.o.c.convInput(d.o.l, d.s.slot, pos)
		}
		pos--
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

// keys stores k of n rows as columns of the records, t and following in a chain,
// and takes each row's products with the keys up to its own.
func (d *deltaHead) keys(st deltaState, t, n int) {
	dim, cols := d.o.s.KDim, d.o.l.cols
	keys := floats(st.keys, d.head, dim*cols)
	at := t + d.shift
	for i := range dim {
		column := keys[i*cols+at:][:n]
		for r := range column {
			column[r] = d.k[r*dim+i]
		}
	}
	for r := range n {
		seen := roundUp(at+r+1, lanes)
		dots, mixed := d.dots[r*cols:][:seen], d.mixed[r*cols:][:seen]
		d.w.set.MatVec2(dots, mixed, keys, cols, d.k[r*dim:][:dim], d.q[r*dim:][:dim])
		if d.shift > 0 {
			for j, c := range d.cols[:t+r+1] { // upwards: c is never below j
				dots[j], mixed[j] = dots[c], mixed[c]
			}
		}
	}
}

// col returns the column of row t of the window, on the path of the block.
func (d *deltaHead) col(t int) int {
	if d.shift == 0 {
		return t
	}
	return d.cols[t]
}

// valueHead advances value head g of the key head by rows [i, i+n), which are rows
// t and following of their window, and writes their outputs.
func (d *deltaHead) valueHead(st deltaState, i, t, n, g int) {
	o := d.o
	h := d.head*o.group + g
	decay := floats(st.decay, h, o.l.cols)
	for r := range n {
		at := d.col(t + r)
		in := o.proj.u16(d.s.row + i + r)
		decay[at] = -float32(o.decay[h] * vec.Softplus32(vec.F32(in[o.aCol+h])+o.bias[h]))
		if t+r > 0 {
			decay[at] += decay[d.col(t+r-1)]
		}
		d.valueRow(st, i+r, t+r, r, g)
	}
}

// seen returns the decays of rows 0..t and the records of rows 0..t-1 of the window
// (of all its rows, if t is 64), along the path of the block.
func (d *deltaHead) seen(st deltaState, h, t int) (decay, records []float32) {
	cols, vdim := d.o.l.cols, d.o.l.vdim
	decay, records = floats(st.decay, h, cols), floats(st.records, h, cols*vdim)
	if d.shift == 0 {
		return decay, records
	}
	for j, c := range d.cols[:min(t+1, window)] {
		d.fades[j] = decay[c]
		if j < t {
			copy(d.path[j*vdim:][:vdim], records[c*vdim:][:vdim])
		}
	}
	return d.fades, d.path
}

// valueRow is valueHead of row r of a block: row i of the span, t of its window.
func (d *deltaHead) valueRow(st deltaState, i, t, r, g int) {
	o, set, s, vdim, cols := d.o, d.w.set, &d.o.s, d.o.l.vdim, d.o.l.cols
	h := d.head*o.group + g
	in := o.proj.u16(d.s.row + i)
	decay, records := d.seen(st, h, t)
	set.ExpSub(d.decays[:t+1], decay[:t+1], decay[t])
	dots, mixed := d.dots[r*cols:][:cols], d.mixed[r*cols:][:cols]
	set.Mul(d.ck[:t], d.decays[:t], dots[:t])
	set.Mul(d.cq[:t], d.decays[:t], mixed[:t])

	set.MatVec2(d.fromK, d.fromQ, floats(st.state, h, s.KDim*vdim), vdim, d.k[r*s.KDim:][:s.KDim], d.q[r*s.KDim:][:s.KDim])
	set.MatVec2(d.sumK, d.sumQ, records, vdim, d.ck[:t], d.cq[:t])
	beta := vec.Sigmoid32(vec.F32(in[o.bCol+h]))
	out, own := d.value, floats(st.records, h, cols*vdim)[d.col(t)*vdim:][:vdim]
	set.DeltaRow(out, own, d.v[(g*deltaRows+r)*vdim:][:vdim], d.fromK, d.sumK, d.fromQ, d.sumQ,
		vec.Exp32(-decay[t]), beta, mixed[t])
	rms := rsqrtMean(set.SumSquares(out[:s.VDim]), s.VDim, o.norm.eps)
	set.NormGateBF16(o.dst.u16(d.s.row + i)[h*s.VDim:][:s.VDim], out[:s.VDim], rms, o.norm.w, in[o.zCol+h*s.VDim:][:s.VDim], s.Gate == kernels.SiLU)
}

// border writes the state after row 63 of the window in st to dst, which may be
// the same bank: two rows of the state at a time.
func (d *deltaHead) border(st, dst deltaState) {
	o, set, n, vdim, cols := d.o, d.w.set, d.o.s.KDim, d.o.l.vdim, d.o.l.cols
	keys := floats(st.keys, d.head, n*cols)
	for h := d.head * o.group; h < (d.head+1)*o.group; h++ {
		decay, records := d.seen(st, h, window)
		set.ExpSub(d.decays, decay[:window], decay[window-1])
		to := floats(dst.state, h, n*vdim)
		set.Scale(to, floats(st.state, h, n*vdim), vec.Exp32(-decay[window-1]))
		for i := 0; i < n; i += 2 {
			last := min(i+1, n-1)
			set.Mul(d.ck, d.decays, d.keyLine(keys, i, 0))
			set.Mul(d.cq, d.decays, d.keyLine(keys, last, 1))
			second := to[last*vdim:][:vdim]
			if last == i {
				second = d.sumQ // of no use
			}
			set.MatVecAdd2(to[i*vdim:][:vdim], second, records, vdim, d.ck, d.cq)
		}
	}
}

// keyLine returns channel i of the window's keys, along the path of the block.
func (d *deltaHead) keyLine(keys []float32, i, spare int) []float32 {
	line := keys[i*d.o.l.cols:][:d.o.l.cols]
	if d.shift == 0 {
		return line[:window]
	}
	out := d.line[spare]
	for j, c := range d.cols[:] {
		out[j] = line[c]
	}
	return out
}
