package experiments

import (
	"fmt"
	"unsafe"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// hiddenRows are the exported rows of one sequence.
type hiddenRows struct {
	tokens       []int32
	hidden, taps []uint16 // BF16
	topIDs       []int32
	topLogits    []float32
}

// hiddenTap is a drafter that drafts nothing: it copies what the target gave for
// every committed row.
type hiddenTap struct {
	m      *model.Model
	layers []int
	topK   int
	seqs   map[int64]*hiddenRows

	hidden, taps []uint16 // of a step
	logits       kernels.Buf
	sel, rows    kernels.Buf
	host         []float32
}

var _ engine.DeviceDrafter = (*hiddenTap)(nil)

// hiddenLogitRows is the number of rows whose logits are computed at once.
const hiddenLogitRows = 128

func newHiddenTap(m *model.Model, layers []int, topK int) *hiddenTap {
	return &hiddenTap{m: m, layers: layers, topK: topK, seqs: map[int64]*hiddenRows{}}
}

// Name implements engine.Drafter.
func (t *hiddenTap) Name() string { return "hidden" }

// Layers implements engine.DeviceDrafter.
func (t *hiddenTap) Layers() []kernels.LayerSpec { return nil }

// TapLayers implements engine.DeviceDrafter.
func (t *hiddenTap) TapLayers() []int { return t.layers }

// Follow implements engine.DeviceDrafter: it has no layers.
func (t *hiddenTap) Follow(kernels.Queue, *kernels.Batch) bool { return false }

// Attach implements engine.DeviceDrafter.
func (t *hiddenTap) Attach(_ kernels.Caches, _, _, rows int) error {
	h, be := t.m.Config.HiddenSize, t.m.Backend()
	t.hidden, t.taps = make([]uint16, rows*h), make([]uint16, rows*h*len(t.layers))
	if t.topK == 0 {
		return nil
	}
	t.host = make([]float32, hiddenLogitRows*t.m.Config.VocabSize)
	for _, a := range []struct {
		dst     *kernels.Buf
		purpose kernels.Purpose
		kind    kernels.Kind
		cols    int
	}{
		{&t.logits, kernels.Activations, kernels.F32, t.m.Config.VocabSize},
		{&t.sel, kernels.Activations, kernels.BF16, h}, {&t.rows, kernels.Tables, kernels.I32, 1},
	} {
		var err error
		if *a.dst, err = be.Alloc(a.purpose, a.kind, hiddenLogitRows, a.cols); err != nil {
			return err
		}
	}
	return nil
}

// Detach implements engine.DeviceDrafter.
func (t *hiddenTap) Detach() {
	for _, b := range []kernels.Buf{t.logits, t.sel, t.rows} {
		if !b.None() {
			t.m.Backend().Free(b)
		}
	}
	t.logits, t.sel, t.rows = kernels.Buf{}, kernels.Buf{}, kernels.Buf{}
}

// Committed implements engine.Drafter. The engine has pages for all sequences, so
// that none is preempted: each comes once, in order of position.
func (t *hiddenTap) Committed(s *engine.Step) error {
	h, w := t.m.Config.HiddenSize, t.m.Config.HiddenSize*len(t.layers)
	n := s.Batch.Rows
	ticket := s.Queue.Read(raw16(t.hidden[:n*h]), s.Hidden)
	if w > 0 {
		ticket = s.Queue.Read(raw16(t.taps[:n*w]), s.Taps)
	}
	if err := ticket.Wait(); err != nil {
		return err
	}
	for _, sp := range s.Spans {
		r := t.seqs[sp.Seq.ID()]
		if r == nil {
			r = &hiddenRows{}
			t.seqs[sp.Seq.ID()] = r
		}
		if sp.Start != len(r.tokens) {
			return fmt.Errorf("hidden: rows from position %d on, behind %d", sp.Start, len(r.tokens))
		}
		r.tokens = append(r.tokens, sp.Tokens[:sp.Kept]...)
		r.hidden = append(r.hidden, t.hidden[sp.RowOff*h:(sp.RowOff+sp.Kept)*h]...)
		r.taps = append(r.taps, t.taps[sp.RowOff*w:(sp.RowOff+sp.Kept)*w]...)
		if err := t.top(s, sp, r); err != nil {
			return err
		}
	}
	return nil
}

// top appends the largest logits of a span's kept rows.
func (t *hiddenTap) top(s *engine.Step, sp engine.Span, r *hiddenRows) error {
	if t.topK == 0 {
		return nil
	}
	vocab := t.m.Config.VocabSize
	for from := 0; from < sp.Kept; from += hiddenLogitRows {
		rows := make([]int32, min(hiddenLogitRows, sp.Kept-from))
		for i := range rows {
			rows[i] = int32(sp.RowOff + from + i)
		}
		at, logits := t.rows.Top(len(rows)), t.logits.Top(len(rows))
		s.Queue.Write(at, rawInts(rows))
		t.m.Head(s.Queue, logits, t.sel, s.Hidden, at)
		host := t.host[:len(rows)*vocab]
		if err := s.Queue.Read(unsafe.Slice((*byte)(unsafe.Pointer(&host[0])), 4*len(host)), logits).Wait(); err != nil {
			return err
		}
		for ; len(host) > 0; host = host[vocab:] {
			for _, top := range topLogits(host[:vocab], t.topK) {
				r.topIDs, r.topLogits = append(r.topIDs, top.ID), append(r.topLogits, top.Logit)
			}
		}
	}
	return nil
}

// take hands over the rows of a sequence that has ended.
func (t *hiddenTap) take(s *engine.Sequence) *hiddenRows {
	r := t.seqs[s.ID()]
	delete(t.seqs, s.ID())
	if r == nil {
		return &hiddenRows{}
	}
	return r
}

// Propose implements engine.Drafter: nothing.
func (t *hiddenTap) Propose(_ kernels.Queue, asks []*engine.Ask) error {
	for _, a := range asks {
		a.Draft = engine.Draft{}
	}
	return nil
}

// Release implements engine.Drafter: take, which comes later, ends a sequence.
func (t *hiddenTap) Release(*engine.Sequence) {}

// Save implements engine.DeviceDrafter. There is no prefix cache here.
func (t *hiddenTap) Save(kernels.Queue, *engine.Sequence, int) error { return nil }

// Restore implements engine.DeviceDrafter.
func (t *hiddenTap) Restore(kernels.Queue, *engine.Sequence, int, int32) error { return nil }

// raw16 and rawInts view numbers as little-endian bytes; the backends that exist run
// on little-endian machines only.
func raw16(s []uint16) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 2*len(s))
}

func rawInts(s []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}
