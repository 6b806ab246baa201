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
	markov
}

// markov are the Markov head and the confidence head.
type markov struct {
	w1, w2       kernels.Weight
	proj         kernels.Weight // none: the head has no confidence
	bias         float32
	be           kernels.Backend
	hidden, rank int
	both         bool // the confidence reads e too
}

// LoadDSpark loads the DSpark head at where, as OpenHead finds it; an empty where is the
// module in the model's own files, if it has one. A head is loaded once.
func (m *Model) LoadDSpark(where string) (*DSparkHead, error) {
	if where == "" && m.spark != nil {
		return &DSparkHead{blockHead: &sparkHead{m, m.spark}, markov: m.spark.markov, block: m.spark.c.Block, whole: true}, nil
	}
	w, err := loadHead(m, checkpoint.HeadDSpark, where, m.loadDSpark)
	if err != nil {
		return nil, err
	}
	h := &DSparkHead{blockHead: &DFlashHead{m, w.dflashWeights}, markov: w.markov, block: w.c.Block}
	if !w.c.Anchor {
		h.lead = 1
	}
	return h, nil
}

func (m *Model) loadDSpark(l *loader, src HeadSource) *dsparkWeights {
	c := src.Head()
	w := &dsparkWeights{dflashWeights: m.loadDFlash(l, src)}
	const proj, bias = "confidence_head.proj.weight", "confidence_head.proj.bias"
	w.markov = l.markov("markov_head.markov_w1.weight", "markov_head.markov_w2.weight", c.DraftVocab, c.MarkovRank)
	if !c.Confidence || !src.Has(proj) {
		return w
	}
	w.confidence(l, proj, c.ConfidenceMarkov)
	if src.Has(bias) {
		w.bias = l.scalar(bias)
	}
	return w
}

// markov loads a Markov head that drafts the first tokens of the vocabulary.
func (l *loader) markov(w1, w2 string, drafted, rank int) markov {
	c := l.src.Config()
	return markov{be: l.be, w1: l.matrix(w1, c.VocabSize, rank), w2: l.matrix(w2, drafted, rank), hidden: c.HiddenSize, rank: rank}
}

// confidence loads what says how sure the head is, of hidden states alone, or of both.
func (w *markov) confidence(l *loader, name string, both bool) {
	cols := w.hidden
	if w.both = both; both {
		cols += w.rank
	}
	w.proj = l.matrix(name, 1, cols)
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

// blockHead is a loaded head that fills in blocks.
type blockHead interface {
	// Layers returns the cache geometry of the head's layers.
	Layers() []kernels.LayerSpec
	// Taps returns the places in the target that the head reads.
	Taps() []int
	// Mask returns the token in the masked places.
	Mask() int32
	// Tokens returns the token of each row of the LM head; nil if row i is token i.
	Tokens() []int32
	// StepParams returns the parameters that one draft reads, however long.
	StepParams() int64
	// open returns the head with activations for passes of at most rows rows and
	// logits of at most spans rows.
	open(rows, spans int) (backbone, error)
}

// backbone is such a head with activations of its own.
type backbone interface {
	// Close frees the activations.
	Close()
	// Context records the keys of the target's features for the rows of b, at their
	// positions. taps is BF16 [b.Rows, HiddenSize*taps]. layer gives the caches of
	// the head's layers.
	Context(q kernels.Queue, b *kernels.Batch, layer func(i int) kernels.Layer, taps kernels.Buf)
	// Forward records the layers over the blocks of b and returns the hidden states
	// of its rows.
	Forward(q kernels.Queue, b *kernels.Batch, layer func(i int) kernels.Layer) kernels.Buf
	// Drafted returns the number of columns of the logits.
	Drafted() int
	// Logits records the LM head over rows of hidden and returns F32 [rows, Drafted].
	Logits(q kernels.Queue, hidden kernels.Buf) kernels.Buf
}

// DSparkHead is a loaded DSpark head.
type DSparkHead struct {
	blockHead
	markov
	block, lead int
	whole       bool
}

// Most returns the longest draft: a block, without its first row where that does not
// draft.
func (h *DSparkHead) Most() int { return h.block - h.lead }

// Lead returns the number of rows of a block before the first that drafts.
func (h *DSparkHead) Lead() int { return h.lead }

// Whole reports whether the rows of a block see each other, so that a short draft takes
// a whole block too.
func (h *DSparkHead) Whole() bool { return h.whole }

// Confident reports whether the head says how sure it is.
func (h *DSparkHead) Confident() bool { return !h.proj.None() }

// Sure turns a value of Step's confidence into the probability that a draft is
// accepted if those before it are.
func (h *DSparkHead) Sure(confidence float32) float64 {
	return 1 / (1 + math.Exp(-float64(confidence+h.bias)))
}

// DSpark is a DSpark head with activations of its own.
type DSpark struct {
	backbone
	w              *markov
	bufs           buffers
	embedded, both kernels.Buf
	confidence     kernels.Buf
}

// New returns the head with activations for passes of at most rows rows and
// logits of at most spans rows.
func (h *DSparkHead) New(rows, spans int) (*DSpark, error) {
	net, err := h.open(rows, spans)
	if err != nil {
		return nil, err
	}
	t := &DSpark{backbone: net, w: &h.markov, bufs: buffers{be: h.be}}
	t.embedded = t.bufs.alloc(kernels.BF16, spans, h.rank)
	t.both = t.bufs.alloc(kernels.BF16, spans, h.hidden+h.rank)
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
	t.backbone.Close()
}

// Step records what rows of the backbone's hidden states draft behind the tokens
// before (I32 [rows, 1]), and returns logits F32 [rows, Drafted] and, of a head that is
// Confident, what Sure reads, F32 [rows, 1].
func (t *DSpark) Step(q kernels.Queue, hidden, before kernels.Buf) (logits, confidence kernels.Buf) {
	n, w := int(hidden.Rows), t.w
	e := t.embedded.Top(n)
	q.Embed(e, w.w1, before)
	logits = t.Logits(q, hidden)
	q.MatMul(logits, w.w2, e, kernels.Linear{Residual: logits})
	if w.proj.None() {
		return logits, kernels.Buf{}
	}
	in := hidden
	if w.both {
		in = t.both.Top(n)
		h := int(hidden.Cols)
		q.Copy(in.Columns(0, h), hidden)
		q.Copy(in.Columns(h, int(in.Cols)), e)
	}
	confidence = t.confidence.Top(n)
	q.MatMul(confidence, w.proj, in, kernels.Linear{})
	return logits, confidence
}
