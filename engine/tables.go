package engine

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// tables is the host's side of a batch: the values that are written to the
// backend before a pass. All slices have the capacity of the largest batch.
type tables struct {
	spans, rows, logitRows     int         // of the largest batch
	all                        kernels.Buf // the tables of a batch, one behind the other
	decided                    kernels.Buf // kept, next
	kept, next, path           kernels.Buf
	seq, start, length, rowOff []int32
	token, pos, parent, spanOf []int32
	logit                      []int32
	pathHost                   []int32
	keptHost, nextHost         []int32
	upload                     []int32
}

func newTables(be kernels.Backend, spans, rows, logitRows int) (*tables, error) {
	t := &tables{spans: spans, rows: rows, logitRows: logitRows}
	var err error
	for _, b := range []struct {
		dst  *kernels.Buf
		rows int
	}{{&t.all, 4*spans + 4*rows + logitRows}, {&t.decided, 2 * spans}, {&t.path, rows}} {
		if *b.dst, err = be.Alloc(kernels.Tables, kernels.I32, b.rows, 1); err != nil {
			return t, err
		}
	}
	t.kept, t.next = t.decided.Top(spans), t.decided.Slice(spans, 2*spans)
	for _, s := range []*[]int32{&t.seq, &t.start, &t.length, &t.rowOff, &t.keptHost, &t.nextHost} {
		*s = make([]int32, 0, spans)
	}
	for _, s := range []*[]int32{&t.token, &t.pos, &t.parent, &t.spanOf, &t.pathHost} {
		*s = make([]int32, 0, rows)
	}
	t.logit = make([]int32, 0, logitRows)
	t.upload = make([]int32, 0, max(4*spans+4*rows+logitRows, 2*spans))
	return t, nil
}

func (t *tables) free(be kernels.Backend) {
	for _, b := range []kernels.Buf{t.all, t.decided, t.path} {
		if !b.None() {
			be.Free(b)
		}
	}
}

// batch returns the tables of a batch of a shape. They lie one behind the other, so
// that one write fills them; the tables of two shapes overlap.
func (t *tables) batch(spans, rows, logitRows int) kernels.Batch {
	b := kernels.Batch{Spans: spans, Rows: rows, LogitRows: logitRows, MaxLen: rows}
	at := 0
	for _, c := range []struct {
		dst *kernels.Buf
		n   int
	}{
		{&b.Seq, spans}, {&b.Start, spans}, {&b.Len, spans}, {&b.RowOff, spans},
		{&b.Token, rows}, {&b.Pos, rows}, {&b.Parent, rows}, {&b.Span, rows}, {&b.Logit, logitRows},
	} {
		*c.dst = t.all.Slice(at, at+c.n)
		at += c.n
	}
	return b
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

// write records the upload of the tables and returns the batch.
func (t *tables) write(q kernels.Queue) kernels.Batch {
	b := t.batch(len(t.seq), len(t.token), len(t.logit))
	b.MaxLen = 0
	for _, n := range t.length {
		b.MaxLen = max(b.MaxLen, int(n))
	}
	t.upload = t.upload[:0]
	for _, s := range [][]int32{t.seq, t.start, t.length, t.rowOff, t.token, t.pos, t.parent, t.spanOf, t.logit} {
		t.upload = append(t.upload, s...)
	}
	q.Write(t.all.Top(len(t.upload)), int32Bytes(t.upload))
	return b
}

// decide records the upload of what is kept of each span, and of the tokens behind.
func (t *tables) decide(q kernels.Queue) (kept, next kernels.Buf) {
	n := len(t.keptHost)
	t.upload = append(append(t.upload[:0], t.keptHost...), make([]int32, t.spans-n)...)
	t.upload = append(t.upload, t.nextHost...)
	q.Write(t.decided.Top(len(t.upload)), int32Bytes(t.upload))
	return t.kept.Top(n), t.next.Top(n)
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
