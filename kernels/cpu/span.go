package cpu

// span is one entry of a batch, checked. Its row i is kept in the place of position
// start + i, whatever its own position is.
type span struct {
	slot, start, n, row int
	tree                bool // its rows are not one chain
	top                 int  // the position after the last one of its rows
}

// end returns the place after those of the span.
func (s span) end() int { return s.start + s.n }

// spanOf reads entry i of a batch, which has been checked.
func (b *tables) spanOf(i int) span {
	s := span{slot: b.seq.at(i), start: b.start.at(i), n: b.length.at(i), row: b.rowOff.at(i)}
	s.measure(b)
	return s
}

// measure fills in tree and top. Only the last row of a chain has as many rows
// before it as there are.
func (s *span) measure(b *tables) {
	s.top = s.end()
	if s.n == 0 || b.pos.at(s.row+s.n-1) == s.top-1 {
		return
	}
	s.tree, s.top = true, 0
	for i := range s.n {
		s.top = max(s.top, b.pos.at(s.row+i)+1)
	}
}

// checkSpans begins the check of the spans of a batch.
func (w *worker) checkSpans() { w.check++ }

// span reads and checks entry i of a batch; ok is false, and the error
// recorded, when it does not fit. An idle span has n = 0.
func (w *worker) span(op string, b *tables, c *caches, i int) (s span, ok bool) {
	s.n = b.length.at(i)
	if s.n == 0 {
		return s, true
	}
	s.slot, s.start, s.row = b.seq.at(i), b.start.at(i), b.rowOff.at(i)
	switch {
	case s.n < 0 || s.n > b.maxLen || s.row < 0 || s.row+s.n > b.rows:
		w.fail("cpu: %s: span %d has %d rows from row %d; the batch has %d rows, %d a span", op, i, s.n, s.row, b.rows, b.maxLen)
	case s.slot < 0 || s.slot >= c.spec.Slots:
		w.fail("cpu: %s: span %d is of slot %d; there are %d", op, i, s.slot, c.spec.Slots)
	case s.start < 0 || s.end() > c.spec.SlotPages*page:
		w.fail("cpu: %s: span %d covers positions %d to %d; a slot has %d", op, i, s.start, s.end()-1, c.spec.SlotPages*page)
	case w.seen[s.slot] == w.check:
		w.fail("cpu: %s: span %d is the second of slot %d in its batch", op, i, s.slot)
	default:
		w.seen[s.slot] = w.check
		if !w.paths(op, b, i, s) {
			return s, false
		}
		if s.measure(b); s.tree && s.n > c.spec.MaxDraft+1 {
			w.fail("cpu: %s: span %d is a tree of %d rows; more than %d rows must be a chain", op, i, s.n, c.spec.MaxDraft+1)
			return s, false
		}
		return s, true
	}
	return s, false
}

// paths checks the rows' parents and positions.
func (w *worker) paths(op string, b *tables, i int, s span) bool {
	for d := range s.n {
		p, want := b.parent.at(s.row+d), s.start
		if p < -1 || p >= d {
			w.fail("cpu: %s: the parent of row %d of span %d is %d; it must be -1 or an earlier row", op, d, i, p)
			return false
		}
		if p >= 0 {
			want = b.pos.at(s.row+p) + 1
		}
		if got := b.pos.at(s.row + d); got != want {
			w.fail("cpu: %s: row %d of span %d is at position %d; start %d and its depth give %d", op, d, i, got, s.start, want)
			return false
		}
	}
	return true
}

// pos returns the position of row i.
func (s *span) pos(b *tables, i int) int {
	if s.tree {
		return b.pos.at(s.row + i)
	}
	return s.start + i
}

// run returns the row after the last one of row i's children, first children and
// so forth that stand one behind the other.
func (s *span) run(b *tables, i int) int {
	for i++; i < s.n && b.parent.at(s.row+i) == i-1; i++ {
	}
	return i
}

// ancestor returns the row at a position on row i's path.
func (s *span) ancestor(b *tables, i, pos int) int {
	for b.pos.at(s.row+i) > pos {
		i = b.parent.at(s.row + i)
	}
	return i
}
