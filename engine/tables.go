package engine

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// tables is the host's side of a batch: the values that are written to the
// backend before a pass. All slices have the capacity of the largest batch.
type tables struct {
	batch                      kernels.Batch // the largest bucket
	kept, next, path           kernels.Buf
	seq, start, length, rowOff []int32
	token, pos, parent, spanOf []int32
	logit                      []int32
	pathHost                   []int32
	keptHost, nextHost         []int32
}

func newTables(be kernels.Backend, spans, rows, logitRows int) (*tables, error) {
	t := &tables{}
	var err error
	if t.batch, err = kernels.NewBatch(be, spans, rows, logitRows); err != nil {
		return nil, err
	}
	for _, b := range []struct {
		dst  *kernels.Buf
		rows int
	}{{&t.kept, spans}, {&t.next, spans}, {&t.path, rows}} {
		if *b.dst, err = be.Alloc(kernels.Tables, kernels.I32, b.rows, 1); err != nil {
			return nil, err
		}
	}
	for _, s := range []*[]int32{&t.seq, &t.start, &t.length, &t.rowOff, &t.keptHost, &t.nextHost} {
		*s = make([]int32, 0, spans)
	}
	for _, s := range []*[]int32{&t.token, &t.pos, &t.parent, &t.spanOf, &t.pathHost} {
		*s = make([]int32, 0, rows)
	}
	t.logit = make([]int32, 0, logitRows)
	return t, nil
}

func (t *tables) reset() {
	for _, s := range []*[]int32{
		&t.seq, &t.start, &t.length, &t.rowOff, &t.keptHost, &t.nextHost,
		&t.token, &t.pos, &t.parent, &t.spanOf, &t.logit, &t.pathHost,
	} {
		*s = (*s)[:0]
	}
}

// add appends a span of tokens of the sequence in slot, from position start on,
// and returns its row offset. tokens[i+1] follows tokens[parent(i)+1]. Logits are
// wanted of logits rows from row first on.
func (t *tables) add(slot, start int, tokens []int32, parent func(i int) int, first, logits int) int {
	off := len(t.token)
	span := int32(len(t.seq))
	t.seq = append(t.seq, int32(slot))
	t.start = append(t.start, int32(start))
	t.length = append(t.length, int32(len(tokens)))
	t.rowOff = append(t.rowOff, int32(off))
	for i, id := range tokens {
		up, pos := -1, start
		if i > 0 {
			up = parent(i-1) + 1
			pos = int(t.pos[off+up]) + 1
		}
		t.token = append(t.token, id)
		t.pos = append(t.pos, int32(pos))
		t.parent = append(t.parent, int32(up))
		t.spanOf = append(t.spanOf, span)
	}
	for i := first; i < first+logits; i++ {
		t.logit = append(t.logit, int32(off+i))
	}
	return off
}

// write records the upload of the tables and returns the batch cut to them.
func (t *tables) write(q kernels.Queue) kernels.Batch {
	b := t.batch.Prefix(len(t.seq), len(t.token), len(t.logit))
	b.MaxLen = 0
	for _, n := range t.length {
		b.MaxLen = max(b.MaxLen, int(n))
	}
	q.Write(b.Seq, int32Bytes(t.seq))
	q.Write(b.Start, int32Bytes(t.start))
	q.Write(b.Len, int32Bytes(t.length))
	q.Write(b.RowOff, int32Bytes(t.rowOff))
	q.Write(b.Token, int32Bytes(t.token))
	q.Write(b.Pos, int32Bytes(t.pos))
	q.Write(b.Parent, int32Bytes(t.parent))
	q.Write(b.Span, int32Bytes(t.spanOf))
	if len(t.logit) > 0 {
		q.Write(b.Logit, int32Bytes(t.logit))
	}
	return b
}

// int32Bytes views little-endian values as bytes; the backends that exist run on
// little-endian machines only.
func int32Bytes(s []int32) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), 4*len(s))
}

func float32Bytes(s []float32) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), 4*len(s))
}
