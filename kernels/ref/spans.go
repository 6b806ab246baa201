package ref

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// tables is a resolved batch.
type tables struct {
	seq, start, length, rowOff view
	token, pos, parent, span   view
	logit                      view
	spans, rows, logitRows     int
	maxLen                     int
}

// batch resolves the tables of a batch.
func (o *operands) batch(b *kernels.Batch, what string) *tables {
	t := &tables{spans: b.Spans, rows: b.Rows, logitRows: b.LogitRows, maxLen: b.MaxLen}
	if b.Spans <= 0 || b.Rows <= 0 || b.LogitRows < 0 || b.MaxLen <= 0 {
		o.fail("%s has a bucket of %d spans, %d rows (at most %d a span), %d logit rows", what, b.Spans, b.Rows, b.MaxLen, b.LogitRows)
		return t
	}
	for _, c := range []struct {
		dst  *view
		src  kernels.Buf
		name string
		n    int
	}{
		{&t.seq, b.Seq, "Seq", b.Spans}, {&t.start, b.Start, "Start", b.Spans},
		{&t.length, b.Len, "Len", b.Spans}, {&t.rowOff, b.RowOff, "RowOff", b.Spans},
		{&t.token, b.Token, "Token", b.Rows}, {&t.pos, b.Pos, "Pos", b.Rows},
		{&t.parent, b.Parent, "Parent", b.Rows}, {&t.span, b.Span, "Span", b.Rows},
	} {
		*c.dst = o.table(c.src, what+"."+c.name, c.n)
	}
	if b.LogitRows > 0 {
		t.logit = o.table(b.Logit, what+".Logit", b.LogitRows)
	}
	return t
}

// span is one span that is not idle, as the tables say when an operation runs.
type span struct {
	index, slot, start, off, n int
	parent                     []int // relative to off; -1 is the committed prefix
	pos                        []int
}

// active reads the spans that are not idle and checks them: slots are used
// once, rows lie in the bucket and name their span, positions are
// start + depth, and every other row is idle.
func (t *tables) active(slots int) ([]span, error) {
	var out []span
	used := make(map[int]bool)
	owner := make([]int, t.rows)
	for i := range owner {
		owner[i] = -1
	}
	for s := range t.spans {
		n := t.length.int(s)
		if n == 0 {
			continue
		}
		sp := span{index: s, slot: t.seq.int(s), start: t.start.int(s), off: t.rowOff.int(s), n: n}
		switch {
		case n < 0 || n > t.maxLen:
			return nil, fmt.Errorf("span %d: length %d of a bucket with at most %d", s, n, t.maxLen)
		case sp.slot < 0 || sp.slot >= slots:
			return nil, fmt.Errorf("span %d: slot %d of %d", s, sp.slot, slots)
		case used[sp.slot]:
			return nil, fmt.Errorf("span %d: slot %d is in another span too", s, sp.slot)
		case sp.start < 0 || sp.off < 0 || sp.off+n > t.rows:
			return nil, fmt.Errorf("span %d: start %d, rows %d+%d of %d", s, sp.start, sp.off, n, t.rows)
		}
		used[sp.slot] = true
		for i := range n {
			if owner[sp.off+i] >= 0 {
				return nil, fmt.Errorf("row %d is in spans %d and %d", sp.off+i, owner[sp.off+i], s)
			}
			owner[sp.off+i] = s
		}
		if err := t.readRows(&sp); err != nil {
			return nil, fmt.Errorf("span %d: %w", s, err)
		}
		out = append(out, sp)
	}
	for i, s := range owner {
		if got := t.span.int(i); got != s && (got >= 0 || s >= 0) {
			return nil, fmt.Errorf("row %d belongs to span %d, its Span is %d", i, s, got)
		}
	}
	return out, nil
}

func (t *tables) readRows(sp *span) error {
	for i := range sp.n {
		parent, pos := t.parent.int(sp.off+i), t.pos.int(sp.off+i)
		if parent < -1 || parent >= i {
			return fmt.Errorf("row %d: parent %d; it must be -1 or an earlier row", i, parent)
		}
		want := sp.start
		if parent >= 0 {
			want = sp.pos[parent] + 1
		}
		if pos != want {
			return fmt.Errorf("row %d: position %d; start and depth give %d", i, pos, want)
		}
		sp.parent, sp.pos = append(sp.parent, parent), append(sp.pos, pos)
	}
	return nil
}

// chain reports whether each row's parent is the row before it.
func (sp *span) chain() bool {
	for i, p := range sp.parent {
		if p != i-1 {
			return false
		}
	}
	return true
}

// path returns the rows from the committed prefix to row i, i included.
func (sp *span) path(i int) []int {
	n := sp.pos[i] - sp.start + 1
	out := make([]int, n)
	for ; i >= 0; i = sp.parent[i] {
		n--
		out[n] = i
	}
	return out
}
