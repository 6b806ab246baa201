package cpu

import "exacta.dev/exacta/kernels"

// tableKind says which operation on tables a tableOp is.
type tableKind uint8

const (
	tableChain tableKind = iota
	tableShift
	tableAccept
	tableCommit
)

// tableOp lays out, judges or commits a batch.
type tableOp struct {
	kind        tableKind
	c           *caches
	dst, src    tables
	ahead       int
	first, rest view
	kept, next  view
	path        view
}

func (q *queue) pushTable(o tableOp) {
	q.list.tables = append(q.list.tables, o)
	q.push(opTables, true, len(q.list.tables)-1)
}

func (w *worker) table(o *tableOp) {
	switch o.kind {
	case tableChain:
		w.layChain(o)
	case tableShift:
		w.shift(o)
	case tableAccept:
		w.accept(o)
	case tableCommit:
		w.commit(o)
	}
}

// Chain lays out b as one chain per span.
func (q *queue) Chain(b *kernels.Batch, c kernels.Caches, ahead int, first, rest kernels.Buf) {
	const op = "chain"
	if q.off() {
		return
	}
	o := tableOp{kind: tableChain, c: q.cachesOf(op, c.ID()), dst: q.batch(op, b), ahead: ahead}
	if q.off() {
		return
	}
	o.first = q.column(op, "first", first, b.Spans)
	width := 0
	if !rest.None() {
		o.rest = q.column(op, "rest", rest, b.Spans)
		width = int(rest.Cols)
	}
	if b.Rows < b.Spans*(1+width) || b.MaxLen < 1+width {
		q.bad("chain: %d spans of %d rows; the batch has %d rows, %d a span", b.Spans, 1+width, b.Rows, b.MaxLen)
	}
	if b.LogitRows < b.Spans {
		q.bad("chain: the batch wants %d logits for %d spans", b.LogitRows, b.Spans)
	}
	if !q.off() {
		q.pushTable(o)
	}
}

func (w *worker) layChain(o *tableOp) {
	b := &o.dst
	n := 1
	if !o.rest.none() {
		n += o.rest.cols
	}
	all := b.logits >= b.spans*n
	for i := range b.logits {
		b.logit.set(i, -1)
	}
	for s := range b.spans {
		slot := b.seq.at(s)
		if slot >= o.c.spec.Slots {
			w.fail("cpu: chain: span %d is of slot %d; there are %d", s, slot, o.c.spec.Slots)
			return
		}
		row := s * n
		b.rowOff.set(s, row)
		if slot < 0 {
			b.start.set(s, 0)
			b.length.set(s, 0)
			for i := range n {
				b.idle(row + i)
			}
			continue
		}
		start := o.c.length.at(slot) + o.ahead
		b.start.set(s, start)
		length := 0
		for token := o.first.at(s); token >= 0 || length == 0; {
			i := length
			b.lay(row+i, s, i, start+i, token)
			if all {
				b.logit.set(row+i, row+i)
			}
			if length++; length == n {
				break
			}
			token = o.rest.cell(s, i)
		}
		b.length.set(s, length)
		if !all {
			b.logit.set(s, row+length-1)
		}
		for i := length; i < n; i++ {
			b.idle(row + i)
		}
	}
	for r := b.spans * n; r < b.rows; r++ {
		b.idle(r)
	}
}

// lay fills a row of a chain.
func (b *tables) lay(row, span, depth, pos, token int) {
	b.token.set(row, token)
	b.pos.set(row, pos)
	b.parent.set(row, depth-1)
	b.span.set(row, span)
}

// idle makes a row idle.
func (b *tables) idle(row int) {
	b.lay(row, -1, 0, 0, 0)
}

// Shift lays out dst as the successor view of src.
func (q *queue) Shift(dst, src *kernels.Batch, kept, next kernels.Buf) {
	const op = "shift"
	if q.off() {
		return
	}
	o := tableOp{kind: tableShift, dst: q.batch(op, dst), src: q.batch(op, src)}
	if q.off() {
		return
	}
	o.kept, o.next = q.column(op, "kept", kept, src.Spans), q.column(op, "next", next, src.Spans)
	if dst.Spans != src.Spans || dst.Rows != src.Rows || dst.LogitRows != src.Spans {
		q.bad("shift: dst has %d spans, %d rows, %d logits; want %d, %d, %d", dst.Spans, dst.Rows, dst.LogitRows, src.Spans, src.Rows, src.Spans)
	}
	if !q.off() {
		q.pushTable(o)
	}
}

func (w *worker) shift(o *tableOp) {
	b, src := &o.dst, &o.src
	for r := range b.rows {
		b.idle(r)
	}
	for s := range b.spans {
		n, k, row, start := src.length.at(s), o.kept.at(s), src.rowOff.at(s), src.start.at(s)
		if k < 0 || k > n || k > 0 && (row < 0 || row+n > src.rows) {
			w.fail("cpu: shift: span %d of %d rows from row %d keeps %d", s, n, row, k)
			return
		}
		b.seq.set(s, -1)
		if k > 0 {
			b.seq.set(s, src.seq.at(s))
		}
		b.start.set(s, start+1)
		b.length.set(s, k)
		b.rowOff.set(s, row)
		b.logit.set(s, -1)
		for i := range k {
			token := o.next.at(s)
			if i < k-1 {
				token = src.token.at(row + i + 1)
			}
			b.lay(row+i, s, i, start+1+i, token)
		}
		if k > 0 {
			b.logit.set(s, row+k-1)
		}
	}
}

// Accept applies a rule.
func (q *queue) Accept(kept, next kernels.Buf, r kernels.RuleID, b *kernels.Batch, target kernels.Buf) {
	const op = "accept"
	if q.off() {
		return
	}
	o := tableOp{kind: tableAccept, src: q.batch(op, b)}
	if q.off() {
		return
	}
	o.kept, o.next = q.column(op, "kept", kept, b.Spans), q.column(op, "next", next, b.Spans)
	o.first = q.column(op, "target", target, b.LogitRows)
	if r != kernels.RuleGreedy {
		q.bad("accept: rule %d has no twin on this backend", r)
	}
	if !q.off() {
		q.pushTable(o)
	}
}

func (w *worker) accept(o *tableOp) {
	b := &o.src
	for s := range b.spans {
		n, row := b.length.at(s), b.rowOff.at(s)
		if n == 0 {
			o.kept.set(s, 0)
			o.next.set(s, 0)
			continue
		}
		if n < 0 || row < 0 || row+n > b.rows || row+n > b.logits {
			w.fail("cpu: accept: span %d has rows %d to %d; the batch wants the logits of %d", s, row, row+n-1, b.logits)
			return
		}
		a := 0
		for a+1 < n && b.token.at(row+a+1) == o.first.at(row+a) {
			a++
		}
		o.kept.set(s, a+1)
		o.next.set(s, o.first.at(row+a))
	}
}
