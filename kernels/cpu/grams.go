package cpu

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// loadRows keeps a table of rows where its file has it.
func (b *Backend) loadRows(w *weight, t kernels.Tensor) {
	w.parts = t.Parts
	for _, p := range t.Parts {
		w.line = max(w.line, p.Cols*p.DType.Size())
	}
}

// readRow reads row r of a table as BF16; raw and wide are scratch of a row.
func (w *worker) readRow(t *weight, dst []uint16, raw []byte, wide []float32, r int) error {
	i := 0
	for r >= t.parts[i].Rows {
		r -= t.parts[i].Rows
		i++
	}
	p := t.parts[i]
	raw = raw[:p.Cols*p.DType.Size()]
	if n, err := p.Data.ReadAt(raw, int64(r)*int64(len(raw))); n < len(raw) {
		return fmt.Errorf("part %s: row %d: %w", p.Name, r, err)
	}
	if p.DType == kernels.DTypeBF16 {
		for c := range dst {
			dst[c] = binary.LittleEndian.Uint16(raw[2*c:])
		}
		return nil
	}
	widen(wide, raw, p.DType)
	w.set.ToBF16(dst, wide)
	return nil
}

// Lookup gathers rows side by side.
func (q *queue) Lookup(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	const op = "lookup"
	if q.off() {
		return
	}
	o := rowOp{w: q.weightOf(op, table, kernels.Rows), dst: q.typed(op, "dst", dst, kernels.BF16)}
	if q.off() {
		return
	}
	o.idx = q.shaped(op, "ids", ids, kernels.I32, o.dst.rows, int(ids.Cols))
	if !q.off() && o.idx.cols*o.w.cols != o.dst.cols {
		q.bad("lookup: dst has %d columns for %d rows of %d of %s", o.dst.cols, o.idx.cols, o.w.cols, o.w.name)
	}
	if q.off() {
		return
	}
	q.require(needs{worker: scratchBytes([]int{o.w.line, o.w.cols}, nil)})
	q.pushRows(opLookup, o, o.dst.rows < 2)
}

func (w *worker) lookup(o *rowOp) {
	raw, wide := unsafe.Slice((*byte)(w.take(o.w.line)), o.w.line), w.f32(o.w.cols)
	lo, hi := w.part(o.dst.rows)
	for r := lo; r < hi; r++ {
		dst := o.dst.u16(r)
		for j := range o.idx.cols {
			id := o.idx.cell(r, j)
			if id < 0 || id >= o.w.rows {
				w.fail("cpu: lookup: row %d has id %d, %s has rows 0 to %d", r, id, o.w.name, o.w.rows-1)
				return
			}
			if err := w.readRow(o.w, dst[j*o.w.cols:][:o.w.cols], raw, wide, id); err != nil {
				w.fail("cpu: lookup: %s: %w", o.w.name, err)
				return
			}
		}
	}
}

// gramsOp hashes n-grams over a batch.
type gramsOp struct {
	dst, ids view
	c        *caches
	l        *layer
	b        tables
	s        kernels.GramSpec
}

// Grams hashes n-grams along each row's path.
func (q *queue) Grams(dst kernels.Buf, h kernels.Layer, b *kernels.Batch, s *kernels.GramSpec) {
	const op = "grams"
	if q.off() {
		return
	}
	o := gramsOp{s: *s, b: q.batch(op, b)}
	if o.c, o.l = q.anyLayer(op, h); q.off() {
		return
	}
	if err := s.Check(o.l.spec); err != nil {
		q.bad("grams: %v", err)
		return
	}
	o.dst = q.shaped(op, "dst", dst, kernels.I32, b.Rows, s.Columns())
	if !s.Map.None() {
		o.ids = q.column(op, "map", s.Map, 1)
	}
	if q.off() {
		return
	}
	q.list.grams = append(q.list.grams, o)
	q.push(opGrams, b.Rows < 64, len(q.list.grams)-1)
}

func (w *worker) grams(o *gramsOp) {
	if !w.sideSpans("grams", &o.b, o.c, o.s.Size-1) {
		return
	}
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		lo, hi := w.part(s.n)
		for r := lo; r < hi; r++ {
			if !w.gramRow(o, &s, r) {
				return
			}
			o.l.side.tokens[o.c.placeOf(s.slot, s.start+r)] = int32(o.b.token.at(s.row + r))
		}
	}
}

// gramRow looks back from row r of a span.
func (w *worker) gramRow(o *gramsOp, s *span, r int) bool {
	var buf [kernels.MaxGram]uint64
	ids, ended, pos, at := buf[:o.s.Size], false, s.pos(&o.b, r), r
	for i := range ids {
		token := 0
		switch {
		case pos-i < 0:
			ended = true
		case at >= 0:
			token = o.b.token.at(s.row + at)
			at = o.b.parent.at(s.row + at)
		default:
			token = int(o.l.side.tokens[o.c.placeOf(s.slot, pos-i)])
		}
		if ended = ended || i > 0 && token == int(o.s.Stop); ended {
			ids[i] = uint64(o.s.Pad)
			continue
		}
		if !o.ids.none() {
			if token < 0 || token >= o.ids.rows {
				w.fail("cpu: grams: row %d has token %d, the map 0 to %d", s.row+r, token, o.ids.rows-1)
				return false
			}
			token = o.ids.at(token)
		}
		ids[i] = uint64(token)
	}
	o.s.Hash(int32s(o.dst.row(s.row+r), o.dst.cols), ids)
	return true
}
