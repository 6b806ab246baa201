package experiments

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// TopLogit is one of a row's largest logits.
type TopLogit struct {
	ID    int32   `json:"id"`
	Logit float32 `json:"logit"`
}

// ScoredToken is a token with what the model said of it and at it.
type ScoredToken struct {
	ID int32 `json:"id"`
	// Logprob is the natural log of the token's probability after the tokens
	// before it; null for the first token.
	Logprob *float64 `json:"logprob"`
	// Top are the five largest logits of the row at this token: what may
	// follow it.
	Top []TopLogit `json:"top"`
}

// Continued is a token of the greedy continuation.
type Continued struct {
	ID  int32   `json:"id"`
	Gap float32 `json:"gap"` // largest minus second largest logit
}

// ScoreResult is what exacta score prints.
type ScoreResult struct {
	Model        string        `json:"model"`
	Backend      string        `json:"backend"`
	Positions    []ScoredToken `json:"positions"`
	Continuation []Continued   `json:"continuation"`
	logits       []float32
	vocab        int
}

// scoreChunk is the number of rows per pass; the bits do not depend on it.
const scoreChunk = 64

// Score runs ids through a model and continues them greedily by more tokens.
// All logits rows of ids are kept if keep is set (LogitsData).
func Score(m *model.Model, ids []int32, more int, keep bool) (*ScoreResult, error) {
	r, err := newFeeder(m, len(ids)+more)
	if err != nil {
		return nil, err
	}
	defer r.close()
	c := m.Config
	res := &ScoreResult{Model: m.Name, Backend: m.Backend().Info().Name, vocab: c.VocabSize}
	var last []float32
	for from := 0; from < len(ids); from += scoreChunk {
		chunk := ids[from:min(len(ids), from+scoreChunk)]
		rows, err := r.feed(from, chunk)
		if err != nil {
			return nil, err
		}
		for i := range chunk {
			row := rows[i*c.VocabSize : (i+1)*c.VocabSize]
			tok := ScoredToken{ID: chunk[i], Top: topLogits(row, 5)}
			if last != nil {
				lp := logProb(last, chunk[i])
				tok.Logprob = &lp
			}
			last = append(last[:0], row...)
			res.Positions = append(res.Positions, tok)
		}
		if keep {
			res.logits = append(res.logits, rows...)
		}
	}
	for i := range more {
		top := topLogits(last, 2)
		res.Continuation = append(res.Continuation, Continued{ID: top[0].ID, Gap: top[0].Logit - top[1].Logit})
		if i+1 == more {
			break
		}
		rows, err := r.feed(len(ids)+i, []int32{top[0].ID})
		if err != nil {
			return nil, err
		}
		last = append(last[:0], rows...)
	}
	return res, nil
}

// LogitsData returns the kept rows as a tensor "logits" [positions, vocabulary],
// F32.
func (r *ScoreResult) LogitsData() checkpoint.Data {
	return checkpoint.Float32Data("logits", []int{len(r.logits) / r.vocab, r.vocab}, r.logits)
}

// logProb returns log softmax(row)[id], in float64.
func logProb(row []float32, id int32) float64 {
	top := float64(slices.Max(row))
	sum := 0.0
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	return float64(row[id]) - top - math.Log(sum)
}

// topLogits returns the n largest, ties to the lower id.
func topLogits(row []float32, n int) []TopLogit {
	var top []TopLogit
	for id, v := range row {
		at := len(top)
		for at > 0 && v > top[at-1].Logit {
			at--
		}
		if at < n {
			top = slices.Insert(top, at, TopLogit{int32(id), v})[:min(n, len(top)+1)]
		}
	}
	return top
}

// feeder feeds one sequence to a model by spans and returns all logits.
type feeder struct {
	be     kernels.Backend
	m      *model.Model
	caches kernels.Caches
	batch  kernels.Batch
	kept   kernels.Buf
	rows   []float32
}

func newFeeder(m *model.Model, length int) (*feeder, error) {
	if length > m.MaxTokens {
		return nil, fmt.Errorf("%d tokens are more than the context of %d", length, m.MaxTokens)
	}
	if err := m.Reserve(scoreChunk, scoreChunk); err != nil {
		return nil, err
	}
	be := m.Backend()
	pages := (length + kernels.PageTokens) / kernels.PageTokens
	f := &feeder{be: be, m: m}
	var err error
	if f.caches, err = be.Caches(kernels.CacheSpec{Layers: m.Layers(), Slots: 1, Pages: pages, SlotPages: pages, MaxDraft: 1}); err != nil {
		return nil, err
	}
	if f.batch, err = kernels.NewBatch(be, 1, scoreChunk, scoreChunk); err != nil {
		return nil, err
	}
	if f.kept, err = be.Alloc(kernels.Tables, kernels.I32, 1, 1); err != nil {
		return nil, err
	}
	list := make([]int32, pages)
	for i := range list {
		list[i] = int32(i)
	}
	be.Queue().Reset(f.caches, 0)
	be.Queue().SetPages(f.caches, 0, 0, list)
	return f, nil
}

func (f *feeder) close() { _ = f.caches.Close() }

// feed commits ids at position start and returns their logits rows, valid until
// the next call.
func (f *feeder) feed(start int, ids []int32) ([]float32, error) {
	q, n := f.be.Queue(), len(ids)
	b := f.batch.Prefix(1, n, n)
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
		{b.Logit, func(i int) int32 { return int32(i) }},
		{f.kept, func(int) int32 { return int32(n) }},
	} {
		raw := make([]byte, 0, 4*t.buf.Rows)
		for i := range int(t.buf.Rows) {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(t.value(i)))
		}
		q.Write(t.buf, raw)
	}
	out := f.m.Forward(q, &b, f.caches)
	q.Commit(f.caches, &b, f.kept)
	size := n * f.m.Config.VocabSize
	if cap(f.rows) < size {
		f.rows = make([]float32, size)
	}
	f.rows = f.rows[:size]
	if err := q.Read(unsafe.Slice((*byte)(unsafe.Pointer(&f.rows[0])), 4*size), out.Logits).Wait(); err != nil {
		return nil, err
	}
	return f.rows, nil
}
