package ref

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// Chain lays out one chain per span: row s*(1+width)+j holds token j of span s.
func (r *recorder) Chain(b *kernels.Batch, cs kernels.Caches, ahead int, first, rest kernels.Buf) {
	r.add("chain", func() (func() error, error) {
		o := operands{be: r.be}
		c, t := o.find(cs.ID()), o.batch(b, "batch")
		head := o.table(first, "first", b.Spans)
		var tail view
		n := 1
		if !rest.None() {
			tail = o.kind(rest, "rest", kernels.I32, b.Spans, -1)
			n += tail.cols
		}
		if o.err == nil && (b.Rows < b.Spans*n || b.MaxLen < n || b.LogitRows < b.Spans) {
			o.fail("%d spans of %d rows in a bucket of %d rows (at most %d a span) and %d logit rows",
				b.Spans, n, b.Rows, b.MaxLen, b.LogitRows)
		}
		return func() error {
			t.clear()
			for s := range t.spans {
				if t.seq.int(s) < 0 {
					t.rowOff.setInt(s, s*n)
					continue
				}
				if t.seq.int(s) >= c.spec.Slots {
					return fmt.Errorf("span %d: slot %d of %d", s, t.seq.int(s), c.spec.Slots)
				}
				length := 1
				for length < n && tail.ints(s)[length-1] >= 0 {
					length++
				}
				t.place(s, s*n, length, c.length.int(t.seq.int(s))+ahead)
				for j := range length {
					t.token.setInt(s*n+j, head.int(s))
					if j > 0 {
						t.token.setInt(s*n+j, int(tail.ints(s)[j-1]))
					}
					if t.logitRows >= t.spans*n {
						t.logit.setInt(s*n+j, s*n+j)
					}
				}
				if t.logitRows < t.spans*n {
					t.logit.setInt(s, s*n+length-1)
				}
			}
			return nil
		}, o.err
	})
}

// clear makes every span and row idle.
func (t *tables) clear() {
	for s := range t.spans {
		t.start.setInt(s, 0)
		t.length.setInt(s, 0)
		t.rowOff.setInt(s, 0)
	}
	for i := range t.rows {
		t.token.setInt(i, 0)
		t.pos.setInt(i, 0)
		t.parent.setInt(i, -1)
		t.span.setInt(i, -1)
	}
	for i := range t.logitRows {
		t.logit.setInt(i, -1)
	}
}

// place lays out span s as a chain of n rows from row off, at positions from
// start.
func (t *tables) place(s, off, n, start int) {
	t.start.setInt(s, start)
	t.length.setInt(s, n)
	t.rowOff.setInt(s, off)
	for j := range n {
		t.pos.setInt(off+j, start+j)
		t.parent.setInt(off+j, j-1)
		t.span.setInt(off+j, s)
	}
}

// Shift lays out the successor view of a batch.
func (r *recorder) Shift(dst, src *kernels.Batch, kept, next kernels.Buf) {
	r.add("shift", func() (func() error, error) {
		o := operands{be: r.be}
		d, s := o.batch(dst, "dst"), o.batch(src, "src")
		keep, after := o.table(kept, "kept", src.Spans), o.table(next, "next", src.Spans)
		if o.err == nil && (dst.Spans != src.Spans || dst.Rows != src.Rows || dst.LogitRows != dst.Spans) {
			o.fail("dst has a bucket of %d spans, %d rows, %d logit rows; it must have %d, %d, %d",
				dst.Spans, dst.Rows, dst.LogitRows, src.Spans, src.Rows, src.Spans)
		}
		return func() error {
			d.clear()
			for i := range s.spans {
				seq := s.seq.int(i)
				d.seq.setInt(i, -1)
				off, n, k := s.rowOff.int(i), s.length.int(i), keep.int(i)
				if n == 0 || k == 0 {
					continue
				}
				if k < 0 || k > n || k > d.maxLen || off < 0 || off+n > s.rows {
					return fmt.Errorf("span %d: %d rows kept of rows %d+%d of %d (at most %d)", i, k, off, n, s.rows, d.maxLen)
				}
				d.seq.setInt(i, seq)
				d.place(i, off, k, s.start.int(i)+1)
				for j := range k - 1 {
					d.token.setInt(off+j, s.token.int(off+j+1))
				}
				d.token.setInt(off+k-1, after.int(i))
				d.logit.setInt(i, off+k-1)
			}
			return nil
		}, o.err
	})
}

// Accept applies the greedy rule.
func (r *recorder) Accept(kept, next kernels.Buf, rule kernels.RuleID, b *kernels.Batch, target kernels.Buf) {
	r.add("accept", func() (func() error, error) {
		o := operands{be: r.be}
		t := o.batch(b, "batch")
		keep, after := o.table(kept, "kept", b.Spans), o.table(next, "next", b.Spans)
		choice := o.kind(target, "target", kernels.I32, b.LogitRows, -1)
		if o.err == nil && (rule != kernels.RuleGreedy || choice.cols < 1) {
			o.fail("rule %d with a target of %d columns; the rule must be greedy, with at least 1 column", rule, choice.cols)
		}
		return func() error {
			for s := range t.spans {
				off, n := t.rowOff.int(s), t.length.int(s)
				keep.setInt(s, 0)
				after.setInt(s, 0)
				for j := range n {
					if i := off + j; i < 0 || i >= t.logitRows || t.logit.int(i) != i {
						return fmt.Errorf("span %d: row %d is not wanted at its own index", s, i)
					}
					keep.setInt(s, j+1)
					after.setInt(s, choice.int(off+j))
					if j == n-1 || t.token.int(off+j+1) != choice.int(off+j) {
						break
					}
				}
			}
			return nil
		}, o.err
	})
}
