package cpu

// span is one entry of a batch, checked.
type span struct {
	slot, start, n, row int
}

// end returns the position after the span.
func (s span) end() int { return s.start + s.n }

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
		return s, w.chain(op, b, i, s)
	}
	return s, false
}

// chain checks the rows' parents and positions.
func (w *worker) chain(op string, b *tables, i int, s span) bool {
	for d := range s.n {
		if p := b.parent.at(s.row + d); p != d-1 {
			w.fail("cpu: %s: span %d is a tree (the parent of its row %d is %d); this backend runs chains", op, i, d, p)
			return false
		}
		if p := b.pos.at(s.row + d); p != s.start+d {
			w.fail("cpu: %s: row %d of span %d is at position %d, want start %d + depth %d", op, d, i, p, s.start, d)
			return false
		}
	}
	return true
}
