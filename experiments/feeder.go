package experiments

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// feeder feeds one sequence to a model by spans and returns all logits.
type feeder struct {
	be     kernels.Backend
	m      *model.Model
	caches kernels.Caches
	batch  kernels.Batch
	kept   kernels.Buf
	pages  []int32
	rows   []float32
}

func newFeeder(m *model.Model, length int) (*feeder, error) {
	if length > m.MaxTokens {
		return nil, fmt.Errorf("%d tokens are more than the context of %d", length, m.MaxTokens)
	}
	return newFeederOf(m, length, scoreChunk)
}

// newFeederOf makes a feeder of at most chunk rows a pass, and of sequences of at
// most length tokens, which the caller has checked.
func newFeederOf(m *model.Model, length, chunk int) (*feeder, error) {
	if err := m.Reserve(chunk, chunk); err != nil {
		return nil, err
	}
	be := m.Backend()
	pages := (length + kernels.PageTokens) / kernels.PageTokens
	f := &feeder{be: be, m: m, pages: make([]int32, pages)}
	for i := range f.pages {
		f.pages[i] = int32(i)
	}
	var err error
	if f.caches, err = be.Caches(kernels.CacheSpec{Layers: m.Layers(), Slots: 1, Pages: pages, SlotPages: pages, MaxDraft: 1}); err != nil {
		return nil, err
	}
	if f.batch, err = kernels.NewBatch(be, 1, chunk, chunk); err != nil {
		return nil, err
	}
	if f.kept, err = be.Alloc(kernels.Tables, kernels.I32, 1, 1); err != nil {
		return nil, err
	}
	f.reset()
	return f, nil
}

// reset begins another sequence.
func (f *feeder) reset() {
	f.be.Queue().Reset(f.caches, 0)
	f.be.Queue().SetPages(f.caches, 0, 0, f.pages)
}

func (f *feeder) close() error {
	f.batch.Free(f.be)
	f.be.Free(f.kept)
	return f.caches.Close()
}

// feed commits ids at position start and returns their logits rows, valid until
// the next call.
func (f *feeder) feed(start int, ids []int32) ([]float32, error) {
	out := f.forward(start, ids, 0)
	if err := f.read(out.Logits); err != nil {
		return nil, err
	}
	return f.rows, nil
}

// forward records the pass that commits ids at position start, with logits for
// its rows from row want on.
func (f *feeder) forward(start int, ids []int32, want int) model.Output {
	q, n := f.be.Queue(), len(ids)
	b := f.batch.Prefix(1, n, n-want)
	b.MaxLen = n
	for _, t := range []struct {
		buf   kernels.Buf
		value func(i int) int32
	}{
		{b.Seq, func(int) int32 { return 0 }},
		{b.Start, func(int) int32 { return int32(start) }},
		{b.Len, func(int) int32 { return int32(n) }},
		{b.RowOff, func(int) int32 { return 0 }},
		{b.Token, func(i int) int32 { return ids[i] }},
		{b.Pos, func(i int) int32 { return int32(start + i) }},
		{b.Parent, func(i int) int32 { return int32(i - 1) }},
		{b.Span, func(int) int32 { return 0 }},
		{b.Logit, func(i int) int32 { return int32(want + i) }},
		{f.kept, func(int) int32 { return int32(n) }},
	} {
		if t.buf.Rows == 0 {
			continue // no logits are wanted
		}
		raw := make([]byte, 0, 4*t.buf.Rows)
		for i := range int(t.buf.Rows) {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(t.value(i)))
		}
		q.Write(t.buf, raw)
	}
	out := f.m.Forward(q, &b, f.caches)
	q.Commit(f.caches, &b, f.kept, kernels.Buf{})
	return out
}

// read brings logits rows to f.rows.
func (f *feeder) read(logits kernels.Buf) error {
	size := int(logits.Rows) * f.m.Config.VocabSize
	if cap(f.rows) < size {
		f.rows = make([]float32, size)
	}
	f.rows = f.rows[:size]
	return f.be.Queue().Read(unsafe.Slice((*byte)(unsafe.Pointer(&f.rows[0])), 4*size), logits).Wait()
}
