//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import "exacta.dev/exacta/kernels"

// Chain lays out one chain per span: row s*(1+width)+j holds token j of span s.
func (q *queue) Chain(b *kernels.Batch, cs kernels.Caches, ahead int, first, rest kernels.Buf) {
	q.do(opChain, func() {
		c := q.caches(cs.ID())
		a := chainArgs{env: q.head(), b: q.batch(b), first: q.table(first, "first", b.Spans), ahead: int32(ahead)}
		n := 1
		if !rest.None() {
			r := q.of(rest, "rest", kernels.I32, b.Spans, -1)
			a.rest, a.width = r.view(), int32(r.cols)
			n += r.cols
		}
		if q.bad != nil {
			return
		}
		if b.Rows < b.Spans*n || b.MaxLen < n || b.LogitRows < b.Spans {
			q.fail("%d spans of %d rows in a bucket of %d rows (at most %d a span) and %d logit rows",
				b.Spans, n, b.Rows, b.MaxLen, b.LogitRows)
			return
		}
		a.length, a.slots = q.be.bufs[c.length.ID].ptr, int32(c.spec.Slots)
		*args[chainArgs](q) = a
		q.launch(kChain, 1, 1, 0)
	})
}

// Shift lays out the successor view of a batch.
func (q *queue) Shift(dst, src *kernels.Batch, kept, next kernels.Buf) {
	q.do(opShift, func() {
		if dst.Spans != src.Spans || dst.Rows != src.Rows || dst.LogitRows != dst.Spans {
			q.fail("dst has a bucket of %d spans, %d rows, %d logit rows; it must have %d, %d, %d",
				dst.Spans, dst.Rows, dst.LogitRows, src.Spans, src.Rows, src.Spans)
			return
		}
		*args[shiftArgs](q) = shiftArgs{
			env: q.head(), dst: q.batch(dst), src: q.batch(src),
			kept: q.table(kept, "kept", src.Spans), next: q.table(next, "next", src.Spans),
		}
		q.launch(kShift, 1, 1, 0)
	})
}

// Accept applies the greedy rule.
func (q *queue) Accept(kept, next kernels.Buf, rule kernels.RuleID, b *kernels.Batch, target kernels.Buf) {
	q.do(opAccept, func() {
		t := q.of(target, "target", kernels.I32, b.LogitRows, -1)
		if q.bad == nil && (rule != kernels.RuleGreedy || t.cols < 1) {
			q.fail("rule %d with a target of %d columns; the rule must be greedy, with at least 1 column", rule, t.cols)
		}
		*args[acceptArgs](q) = acceptArgs{
			env: q.head(), b: q.batch(b),
			kept: q.table(kept, "kept", b.Spans), next: q.table(next, "next", b.Spans), target: t.view(),
		}
		q.launch(kAccept, 1, 1, 0)
	})
}

// Commit makes a path of kept rows of each span part of its sequence. The launches
// that move rows are left out where there is no path.
func (q *queue) Commit(cs kernels.Caches, b *kernels.Batch, kept, path kernels.Buf) {
	q.do(opCommit, func() {
		c := q.caches(cs.ID())
		a := commitArgs{env: q.head(), b: q.batch(b), kept: q.table(kept, "kept", b.Spans)}
		if q.bad != nil {
			return
		}
		if !path.None() {
			a.path = q.table(path, "path", b.Rows)
		}
		z := c.sizes
		a.length, a.slots, a.maxDraft = q.be.bufs[c.length.ID].ptr, int32(c.spec.Slots), int32(c.spec.MaxDraft)
		a.layers, a.table, a.slotPages, a.pages = c.moves.ptr, c.pages.ptr, int32(c.spec.SlotPages), int32(c.spec.Pages)
		a.kv, a.conv, a.state, a.records = c.kv.ptr, c.conv.ptr, c.state.ptr, c.records.ptr
		a.slotState, a.halfState, a.slotRec, a.slotConv = uint64(2*z.state), uint64(z.state), uint64(z.records), uint64(z.conv)
		a.ring, a.convRing, a.heads = int32(z.ring), int32(z.convRing), int32(z.heads)
		*args[commitArgs](q) = a
		if !path.None() {
			q.launch(kCommitFold, len(c.layers)*z.heads, b.Spans, 0)
			q.launch(kCommitRows, len(c.layers), b.Spans, 0)
			q.commitRings(c, b, a.kept, a.path)
			*args[commitArgs](q) = a
		}
		q.launch(kCommit, 1, 1, 0)
	})
}
