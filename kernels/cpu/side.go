package cpu

import (
	"fmt"
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// side is what a layer of any kind keeps of each position beside its keys or states:
// a token, a row of BF16.
type side struct {
	tokens []int32 // by page and position within it; nil: none
	rows   []uint16
	dim    int
	mem    block
}

// allocateSide makes room for what a layer keeps by position.
func (c *caches) allocateSide(l *layer) (err error) {
	n := c.spec.Pages * page
	tokens := 0
	if l.spec.Tokens {
		tokens = roundUp(4*n, lineBytes)
	}
	l.side.dim = l.spec.RowDim
	size := tokens + 2*n*l.side.dim
	if size == 0 {
		return nil
	}
	if l.side.mem, err = c.b.mem.alloc(kernels.KV, size); err != nil {
		return err
	}
	p := l.side.mem.ptr()
	if tokens > 0 {
		l.side.tokens = unsafe.Slice((*int32)(p), n)
	}
	l.side.rows = unsafe.Slice((*uint16)(addBytes(p, tokens)), n*l.side.dim)
	return nil
}

// sideBytes is what a layer keeps beside of a position.
func sideBytes(l kernels.LayerSpec) int64 {
	n := int64(2 * l.RowDim)
	if l.Tokens {
		n += 4
	}
	return n
}

// checkSide validates what a layer keeps beside.
func checkSide(l kernels.LayerSpec, pages int) error {
	if l.RowDim < 0 || pages <= 0 && sideBytes(l) > 0 {
		return fmt.Errorf("rows of %d columns in %d pages", l.RowDim, pages)
	}
	return nil
}

// placeOf returns where a position of a slot is kept in all pages, or -1.
func (c *caches) placeOf(slot, pos int) int {
	if i := pos / page; i < c.spec.SlotPages {
		if p := int(c.pages[slot*c.spec.SlotPages+i]); p >= 0 && p < c.spec.Pages {
			return p*page + pos%page
		}
	}
	return -1
}

// row returns the row at a place.
func (s *side) row(place int) []uint16 { return s.rows[place*s.dim:][:s.dim] }

// moveSide moves what a layer keeps beside of the rows that a span keeps.
func (o *tableOp) moveSide(l *layer, s *span, k int) {
	if sideBytes(l.spec) == 0 {
		return
	}
	for j := range k {
		from, to := o.c.placeOf(s.slot, s.start+o.keptRow(s, j)), o.c.placeOf(s.slot, s.start+j)
		if from == to || from < 0 || to < 0 {
			continue
		}
		if l.side.tokens != nil {
			l.side.tokens[to] = l.side.tokens[from]
		}
		copy(l.side.row(to), l.side.row(from))
	}
}

// anyLayer resolves the handle of a layer of any kind.
func (q *queue) anyLayer(op string, h kernels.Layer) (*caches, *layer) {
	c := q.cachesOf(op, h.Caches)
	if c == nil {
		return nil, nil
	}
	if h.Index < 0 || int(h.Index) >= len(c.layers) {
		q.bad("%s: there is no layer %d in %d", op, h.Index, len(c.layers))
		return nil, nil
	}
	return c, c.layers[h.Index]
}

// sideSpans checks the spans of a batch, and the pages of their rows and of the back
// positions before them.
func (w *worker) sideSpans(op string, b *tables, c *caches, back int) bool {
	w.checkSpans()
	for i := range b.spans {
		s, ok := w.span(op, b, c, i)
		if !ok {
			return false
		}
		if s.n == 0 {
			continue
		}
		for p := max(s.start-back, 0) / page; p <= (s.end()-1)/page; p++ {
			if c.placeOf(s.slot, p*page) < 0 {
				w.fail("cpu: %s: span %d: page %d of slot %d is not set", op, i, p, s.slot)
				return false
			}
		}
	}
	return true
}
