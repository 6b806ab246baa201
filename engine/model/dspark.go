package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// dsparkWeights are the parameters of a DSpark head: a DFlash backbone, whose row i
// says what stands i+1 places behind the last token, or, filling in, at its own place,
// and a Markov head that bends its logits by the token before:
//
//	e = markov_w1[token before]
//	logits = head(hidden) + markov_w2 e
//	confidence = sigmoid(confidence_head.proj [hidden ; e] + bias)
//
// where hidden are the backbone's normed states, by the names of the speculators
// library. Drafts are made one after the other, with one pass of the backbone.
type dsparkWeights struct {
	*dflashWeights
	w1, w2 kernels.Weight
	proj   kernels.Weight // none: the head has no confidence
	bias   float32
}

// LoadDSpark loads the DSpark head at where, as OpenHead finds it. A head is loaded
// once.
func (m *Model) LoadDSpark(where string) (*DSparkHead, error) {
	w, err := loadHead(m, checkpoint.HeadDSpark, where, m.loadDSpark)
	if err != nil {
		return nil, err
	}
	return &DSparkHead{&DFlashHead{m, w.dflashWeights}, w}, nil
}

func (m *Model) loadDSpark(l *loader, src HeadSource) *dsparkWeights {
	c := src.Head()
	w := &dsparkWeights{dflashWeights: m.loadDFlash(l, src)}
	w.w1 = l.matrix("markov_head.markov_w1.weight", c.Layer.VocabSize, c.MarkovRank)
	w.w2 = l.matrix("markov_head.markov_w2.weight", c.DraftVocab, c.MarkovRank)
	const proj, bias = "confidence_head.proj.weight", "confidence_head.proj.bias"
	if !c.Confidence || !src.Has(proj) {
		return w
	}
	cols := c.Layer.HiddenSize
	if c.ConfidenceMarkov {
		cols += c.MarkovRank
	}
	w.proj = l.matrix(proj, 1, cols)
	if src.Has(bias) {
		w.bias = l.scalar(bias)
	}
	return w
}

// scalar reads a tensor of one value.
func (l *loader) scalar(name string) float32 {
	if l.err != nil {
		return 0
	}
	s, err := l.src.Matrix(name, 1, 1)
	if err != nil {
		l.err = err
		return 0
	}
	raw := make([]byte, s.DType.Size())
	if _, err := s.Data.ReadAt(raw, 0); err != nil {
		l.err = fmt.Errorf("%s: tensor %s: %w", l.src.Name(), name, err)
		return 0
	}
	switch s.DType {
	case kernels.DTypeF32:
		return math.Float32frombits(binary.LittleEndian.Uint32(raw))
	case kernels.DTypeBF16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw)) << 16)
	}
	l.err = fmt.Errorf("%s: tensor %s must be F32 or BF16", l.src.Name(), name)
	return 0
}

// DSparkHead is a loaded DSpark head.
type DSparkHead struct {
	*DFlashHead
	w *dsparkWeights
}

// Most returns the longest draft: a block, without its first row where that does not
// draft.
func (h *DSparkHead) Most() int { return h.w.c.Block - h.Lead() }

// Lead returns the number of rows of a block before the first that drafts.
func (h *DSparkHead) Lead() int {
	if h.w.c.Anchor {
		return 0
	}
	return 1
}

// Confident reports whether the head says how sure it is.
func (h *DSparkHead) Confident() bool { return !h.w.proj.None() }

// Sure turns a value of Step's confidence into the probability that a draft is
// accepted if those before it are.
func (h *DSparkHead) Sure(confidence float32) float64 {
	return 1 / (1 + math.Exp(-float64(confidence+h.w.bias)))
}

// DSpark is a DSpark head with activations of its own.
type DSpark struct {
	*DFlash
	h              *DSparkHead
	bufs           buffers
	embedded, both kernels.Buf
	confidence     kernels.Buf
}

// New returns the head with activations for passes of at most rows rows and
// logits of at most spans rows.
func (h *DSparkHead) New(rows, spans int) (*DSpark, error) {
	backbone, err := h.DFlashHead.New(rows, spans)
	if err != nil {
		return nil, err
	}
	t := &DSpark{DFlash: backbone, h: h, bufs: buffers{be: h.m.be}}
	hid, r := h.w.c.Layer.HiddenSize, h.w.c.MarkovRank
	t.embedded = t.bufs.alloc(kernels.BF16, spans, r)
	t.both = t.bufs.alloc(kernels.BF16, spans, hid+r)
	t.confidence = t.bufs.alloc(kernels.F32, spans, 1)
	if t.bufs.err != nil {
		t.Close()
		return nil, t.bufs.err
	}
	return t, nil
}

// Close frees the activations.
func (t *DSpark) Close() {
	t.bufs.free()
	t.DFlash.Close()
}

// Step records what rows of the backbone's hidden states draft behind the tokens
// before (I32 [rows, 1]), and returns logits F32 [rows, Drafted] and, of a head that is
// Confident, what Sure reads, F32 [rows, 1].
func (t *DSpark) Step(q kernels.Queue, hidden, before kernels.Buf) (logits, confidence kernels.Buf) {
	n, w := int(hidden.Rows), t.h.w
	e := t.embedded.Top(n)
	q.Embed(e, w.w1, before)
	logits = t.Logits(q, hidden)
	q.MatMul(logits, w.w2, e, kernels.Linear{Residual: logits})
	if w.proj.None() {
		return logits, kernels.Buf{}
	}
	in := hidden
	if w.c.ConfidenceMarkov {
		in = t.both.Top(n)
		h := int(hidden.Cols)
		q.Copy(in.Columns(0, h), hidden)
		q.Copy(in.Columns(h, int(in.Cols)), e)
	}
	confidence = t.confidence.Top(n)
	q.MatMul(confidence, w.proj, in, kernels.Linear{})
	return logits, confidence
}
