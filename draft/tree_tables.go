package draft

import "exacta.dev/exacta/kernels"

// treeTables is the host's side of a batch of trees.
type treeTables struct {
	seq, start, length, off   []int32
	token, pos, parent, spans []int32
	from                      []int32 // row of the pool that each row begins with
}

func (t *treeTables) reset() {
	for _, s := range []*[]int32{&t.seq, &t.start, &t.length, &t.off, &t.token, &t.pos, &t.parent, &t.spans, &t.from} {
		*s = (*s)[:0]
	}
}

// span begins a span of n rows.
func (t *treeTables) span(slot, start, n int) {
	t.seq, t.start = append(t.seq, int32(slot)), append(t.start, int32(start))
	t.length, t.off = append(t.length, int32(n)), append(t.off, int32(len(t.token)))
}

// row adds a row to the span that was begun last.
func (t *treeTables) row(token, parent int32, pos int, from int32) {
	t.token, t.parent, t.pos = append(t.token, token), append(t.parent, parent), append(t.pos, int32(pos))
	t.spans, t.from = append(t.spans, int32(len(t.seq)-1)), append(t.from, from)
}

// write records the upload of the tables and returns the batch cut to them.
func (t *treeTables) write(q kernels.Queue, b kernels.Batch) kernels.Batch {
	b = b.Prefix(len(t.seq), len(t.token), 0)
	b.MaxLen = 0
	for _, n := range t.length {
		b.MaxLen = max(b.MaxLen, int(n))
	}
	for _, w := range []struct {
		dst kernels.Buf
		x   []int32
	}{
		{b.Seq, t.seq}, {b.Start, t.start}, {b.Len, t.length}, {b.RowOff, t.off},
		{b.Token, t.token}, {b.Pos, t.pos}, {b.Parent, t.parent}, {b.Span, t.spans},
	} {
		q.Write(w.dst, bytesOf(w.x))
	}
	return b
}
