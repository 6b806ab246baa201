package cpu

import (
	"unsafe"
)

// ring keeps a row of each of the last positions of a slot. A span's row i is in the
// place of position start + i. A span that may be longer than what the ring has beyond
// the positions in use brings the rows that it takes the place of to spare places
// first, for it may come to nothing and be run again: the tag of a place says whose
// row it holds, and a row that is not in its place is in the spare one.
type ring struct {
	n    int // places
	line int // bytes of a row
	at   int // offset in a slot
}

// bytes returns the size of a ring: rows, spare rows, tags.
func (r *ring) bytes() int { return 2*roundUp(r.n*r.line, lineBytes) + roundUp(4*r.n, lineBytes) }

func (r *ring) tags(slot unsafe.Pointer) []int32 {
	return int32s(addBytes(slot, r.at+2*roundUp(r.n*r.line, lineBytes)), r.n)
}

// place returns the place of a position, and the spare one.
func (r *ring) place(slot unsafe.Pointer, pos int) (row, spare []byte) {
	p := addBytes(slot, r.at+pos%r.n*r.line)
	return unsafe.Slice((*byte)(p), r.line), unsafe.Slice((*byte)(addBytes(p, roundUp(r.n*r.line, lineBytes))), r.line)
}

// row returns the row of a position that was written before.
func (r *ring) row(slot unsafe.Pointer, pos int) unsafe.Pointer {
	row, spare := r.place(slot, pos)
	if r.tags(slot)[pos%r.n] != int32(pos)+1 {
		row = spare
	}
	return unsafe.Pointer(unsafe.SliceData(row))
}

// move brings the row in the place of position from to that of to.
func (r *ring) move(slot unsafe.Pointer, to, from int) {
	if r.n > 0 {
		dst, _ := r.place(slot, to)
		src, _ := r.place(slot, from)
		copy(dst, src)
	}
}

// save copies the rows of positions below length to another ring.
func (r *ring) save(to, slot unsafe.Pointer, length int) {
	if r.n == 0 {
		return
	}
	tags := r.tags(to)
	clear(tags)
	for pos := max(0, length-r.n); pos < length; pos++ {
		dst, _ := r.place(to, pos)
		copy(dst, unsafe.Slice((*byte)(r.row(slot, pos)), r.line))
		tags[pos%r.n] = int32(pos) + 1
	}
}

// keepRows writes this worker's share of a span's rows of src to a ring, from byte at of
// a row on. A tag is one more than the position, so that 0 is none.
func (w *worker) keepRows(c *caches, r *ring, s span, slot unsafe.Pointer, at int, src *view) {
	from := max(0, s.n-r.n)
	lo, hi := w.share(s.n - from)
	tags := r.tags(slot)
	for i := from + lo; i < from+hi; i++ {
		pos := s.start + i
		tag := &tags[pos%r.n]
		place, spare := r.place(slot, pos)
		if s.n > c.spec.MaxDraft+1 && int(*tag) <= s.start {
			copy(spare, place)
		}
		copy(place[at:], src.bytes(s.row+i))
		*tag = int32(pos) + 1
	}
}
