//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import "exacta.dev/exacta/kernels"

// Embed gathers rows of a table.
func (q *queue) Embed(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	q.do(opEmbed, func() {
		w := q.weight(table, kernels.Matrix, "table")
		if w.group > 0 {
			q.fail("table is weight %s of 4 bits; embeddings are gathered from BF16 matrices", w.name)
		}
		d := q.of(dst, "dst", kernels.BF16, 0, w.cols)
		*args[embedArgs](q) = embedArgs{
			env: q.head(), dst: d.view(), ids: q.table(ids, "ids", d.rows),
			table: w.ptr, cols: int32(w.cols), tableRows: int32(w.rows),
		}
		q.launch(kEmbed, d.rows, 1, 0)
	})
}

// Modes of move_rows.
const (
	moveCopy = iota
	moveGather
	moveScatter
)

// Gather copies the rows that the table names; a negative index gives zeros.
func (q *queue) Gather(dst, src, rows kernels.Buf) {
	q.do(opGather, func() { q.move(dst, src, rows, moveGather) })
}

// Scatter copies rows to where the table says; negative indices are skipped. Of
// two rows with one destination either may win.
func (q *queue) Scatter(dst, src, rows kernels.Buf) {
	q.do(opScatter, func() { q.move(dst, src, rows, moveScatter) })
}

// Copy copies a view to one of the same kind and shape.
func (q *queue) Copy(dst, src kernels.Buf) {
	q.do(opCopy, func() { q.move(dst, src, kernels.Buf{}, moveCopy) })
}

func (q *queue) move(dst, src, index kernels.Buf, mode int32) {
	d, s := q.operand(dst, "dst"), q.operand(src, "src")
	if q.bad == nil && (d.kind != s.kind || d.cols != s.cols) {
		q.fail("src is %s of %d columns, dst %s of %d; they must agree", s.kind, s.cols, d.kind, d.cols)
	}
	n := d.rows
	a := moveArgs{env: q.head(), mode: mode}
	switch mode {
	case moveGather:
		a.index = q.table(index, "rows", n)
	case moveScatter:
		n = s.rows
		a.index = q.table(index, "rows", n)
	default:
		if q.bad == nil && s.rows != d.rows {
			q.fail("src has %d rows; it must have %d", s.rows, d.rows)
		}
	}
	// Elements are moved as 16-bit units.
	units := int32(d.size() / 2)
	a.dst, a.src, a.cols = d.view(), s.view(), int32(d.cols)*units
	a.dst.ld *= units
	a.src.ld *= units
	*args[moveArgs](q) = a
	q.launch(kMove, n, 1, 0)
}

// Norm normalises each row.
func (q *queue) Norm(dst, x kernels.Buf, n kernels.Norm) {
	q.do(opNorm, func() {
		d := q.of(dst, "dst", kernels.BF16, 0, -1)
		s := q.float(x, "x", d.rows, d.cols)
		r := q.normEach(n, d.cols, "norm")
		*args[normArgs](q) = normArgs{
			env: q.head(), dst: d.view(), x: s.view(), w: r.w, bias: r.bias, eps: r.eps,
			cols: int32(d.cols), group: r.group, centered: r.centered, wide: flag(s.kind == kernels.F32), each: r.each,
		}
		if q.bad == nil && d.cols > 0 {
			q.launchNorm(d.rows, d.cols, r)
		}
	})
}

// normWarp is NORM_WARP: the widest group that a warp norms.
const normWarp = 512

// launchNorm launches a norm of rows of cols columns, whose arguments are in place.
func (q *queue) launchNorm(rows, cols int, n norm) {
	groups := cols / int(n.group)
	if n.group <= normWarp {
		groups = ceil(groups, threads/32)
	}
	q.launch(kNorm, rows, groups, 0)
}

// ceil returns n/d rounded up.
func ceil(n, d int) int { return (n + d - 1) / d }
