package model

import (
	"fmt"
	"math"
	"slices"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// Options of Load.
type Options struct {
	// MaxTokens is the longest sequence that will run; the rotary table has
	// that many rows and some for drafts. 0 means the model's own limit.
	MaxTokens int
	// MTP loads the draft module too that the source has: a multi-token-prediction
	// layer, or a DSpark head.
	MTP bool
}

// Model is a loaded model: weight handles, and, after Reserve, activations.
type Model struct {
	Config checkpoint.Config
	// Name is the source's name.
	Name string
	// MaxTokens is the longest sequence, in tokens.
	MaxTokens int

	be     kernels.Backend
	embed  kernels.Weight // also the head, if tied
	head   kernels.Weight
	norm   kernels.Norm
	mixer  site // of models with streams: what makes the head's hidden state of them
	ropes  ropes
	blocks []*block
	mtp    *mtpWeights
	spark  *sparkWeights
	left   int64

	rows, logitRows int
	s               scratch
	hidden, sel     kernels.Buf
	logits          kernels.Buf
	taps            taps
	heads           headOpener      // nil: the source has none
	loaded          map[headKey]any // heads' parameters, and companions
}

// ropeSlack is the number of positions past MaxTokens that drafts may touch.
const ropeSlack = kernels.WindowTokens

// Load takes a model's parameters into a backend. An error names the tensor or
// configuration key.
func Load(be kernels.Backend, src Source, o Options) (*Model, error) {
	c := src.Config()
	t, err := traitsOf(c)
	if err != nil {
		return nil, err
	}
	m := &Model{Config: c, Name: src.Name(), be: be, MaxTokens: o.MaxTokens}
	if m.MaxTokens == 0 {
		m.MaxTokens = c.MaxPositions
	}
	if m.MaxTokens > c.MaxPositions {
		return nil, fmt.Errorf("%s: a context of %d tokens was asked for; max_position_embeddings is %d", src.Name(), m.MaxTokens, c.MaxPositions)
	}
	if m.ropes, err = ropeTables(be, c, m.MaxTokens+ropeSlack); err != nil {
		return nil, fmt.Errorf("%s: %w", src.Name(), err)
	}
	m.heads, _ = src.(headOpener)
	l, n := &loader{be: be, src: src}, t.tensors()
	m.embed = l.matrix(n.embed, c.VocabSize, c.HiddenSize)
	m.head = m.embed
	if !c.TieEmbeddings {
		m.head = l.matrix(n.head, c.VocabSize, c.HiddenSize)
	}
	if !t.bare {
		m.norm = l.norm(n.norm, c.HiddenSize, t)
	}
	if t.mixer != nil {
		m.mixer = t.mixer(l, "model.")
	}
	for i, kind := range c.LayerTypes {
		prefix := fmt.Sprintf(n.layer, i)
		var b *block
		if c.Pooled.Window > 0 {
			b = l.loadPooledBlock(prefix, i, t, m.ropes)
		} else {
			b = l.loadBlock(prefix, kind, at(c.Sparse, i), at(c.Index.Own, i), t, m.ropes.main)
		}
		if nth := slices.Index(c.Grams.Layers, i); nth >= 0 && t.memory != nil {
			b.memory = t.memory(l, prefix, nth)
			b.memory.cache(&b.cache)
		}
		m.blocks = append(m.blocks, b)
	}
	if o.MTP && HasMTP(src) {
		m.mtp = l.loadMTP(t, m.ropes)
		m.mtp.head, m.mtp.vocab = m.head, c.VocabSize
	}
	if o.MTP && HasDSpark(src) {
		m.spark = l.loadSpark(t, m.ropes)
	}
	if l.err != nil {
		return nil, fmt.Errorf("load model: %w", l.err)
	}
	m.left = l.left
	return m, nil
}

// LeftInFiles returns the bytes of tables that no backend on the host holds: rows are
// read from their files as they are looked up, so that the source must stay open.
func (m *Model) LeftInFiles() int64 { return m.left }

// Backend returns the backend that holds the model.
func (m *Model) Backend() kernels.Backend { return m.be }

// Layers returns the cache geometry of the trunk's layers.
func (m *Model) Layers() []kernels.LayerSpec {
	specs := make([]kernels.LayerSpec, len(m.blocks))
	for i, b := range m.blocks {
		specs[i] = b.cache
	}
	return specs
}

// Recurrent reports whether any layer keeps a state beside its pages.
func (m *Model) Recurrent() bool {
	return m.Config.Has(checkpoint.LinearAttention) || m.Config.Pooled.Window > 0
}

// StepParams returns the number of parameters that one decode step of one row reads:
// all matrices of the trunk and the head (embedding rows are gathered), of a mixture
// the experts that a row gets.
func (m *Model) StepParams() int64 {
	n := int64(m.Config.VocabSize) * int64(m.Config.HiddenSize)
	if m.mixer != nil {
		n += m.mixer.params()
	}
	for _, b := range m.blocks {
		n += b.params(m.Config.HiddenSize)
	}
	return n
}

// PrefillMACs returns the multiply-adds of reading a prompt of n tokens from an
// empty cache, with logits for its last row: the matrices, and the scores and
// weighted sums of causal attention.
func (m *Model) PrefillMACs(n int) float64 {
	head := float64(m.Config.VocabSize) * float64(m.Config.HiddenSize)
	macs := (float64(m.StepParams())-head)*float64(n) + head
	for _, b := range m.blocks {
		if b.attn != nil {
			macs += float64(n) * float64(n+1) / 2 * float64(b.attn.QHeads*(b.attn.HeadDim+b.attn.Values()))
		}
		if p := b.pooled; p != nil {
			for pos := range n {
				macs += float64(p.seen(b, pos)) * float64(2*p.heads*p.dim)
			}
		}
	}
	return macs
}

// Reserve allocates activations for passes of at most rows rows of which
// logitRows want logits. Each of taps lists layers, by the number of layers run
// before, after which Forward shall give the residual stream too; nothing is
// allocated for none. A second call replaces the first.
func (m *Model) Reserve(rows, logitRows int, taps ...[]int) error {
	m.release()
	c := m.Config
	var err error
	if m.s, err = newScratch(m.be, rows, m.MaxTokens+ropeSlack, c.HiddenSize, m.blocks); err != nil {
		return err
	}
	for _, a := range []struct {
		dst        *kernels.Buf
		kind       kernels.Kind
		rows, cols int
	}{
		{&m.hidden, kernels.BF16, rows, c.HiddenSize},
		{&m.sel, kernels.BF16, logitRows, c.HiddenSize},
		{&m.logits, kernels.F32, logitRows, c.VocabSize},
	} {
		if *a.dst, err = m.be.Alloc(kernels.Activations, a.kind, a.rows, a.cols); err != nil {
			return err
		}
	}
	m.rows, m.logitRows = rows, logitRows
	return m.taps.reserve(m, rows, taps)
}

func (m *Model) release() {
	m.s.free()
	m.taps.free(m.be)
	for _, b := range []*kernels.Buf{&m.hidden, &m.sel, &m.logits} {
		if !b.None() {
			m.be.Free(*b)
			*b = kernels.Buf{}
		}
	}
	m.s = scratch{}
}

// Output is what a recorded pass leaves in backend memory, until the next pass.
type Output struct {
	Hidden kernels.Buf // final normed hidden states, BF16 [b.Rows, HiddenSize]
	Logits kernels.Buf // F32 [b.LogitRows, VocabSize], the rows of b.Logit
	// Taps are, by tap of Reserve, the residual streams that it lists (of several,
	// their mean, or one of them: StreamTap), side by side in its order, BF16
	// [b.Rows, HiddenSize*layers]. The slice is
	// the model's, valid until the next pass is recorded.
	Taps []kernels.Buf
}

// Forward records one pass over the batch: the only one there is. Its caches
// are c's layers from 0 on. It never branches on the contents of b's tables.
func (m *Model) Forward(q kernels.Queue, b *kernels.Batch, c kernels.Caches) Output {
	m.begin(q, &m.s, b.Token)
	m.taps.record(q, &m.s, b.Rows, 0)
	for i, bl := range m.blocks {
		bl.forward(q, b, c.Layer(i), &m.s)
		m.taps.record(q, &m.s, b.Rows, i+1)
	}
	out := Output{Hidden: m.hidden.Top(b.Rows), Taps: m.taps.top(b.Rows)}
	m.end(q, &m.s, b.Rows)
	q.Norm(out.Hidden, m.s.x.Top(b.Rows), m.norm)
	if b.LogitRows > 0 {
		out.Logits = m.logits.Top(b.LogitRows)
		m.Head(q, out.Logits, m.sel, out.Hidden, b.Logit)
	}
	return out
}

// begin records the embedding of tokens (I32 [rows, 1]).
func (m *Model) begin(q kernels.Queue, s *scratch, tokens kernels.Buf) {
	x := s.x.Top(int(tokens.Rows))
	q.Embed(x, m.embed, tokens)
	s.streams.enter(q, x)
}

// end records what brings the streams, if there are any, back to one vector of rows.
func (m *Model) end(q kernels.Queue, s *scratch, rows int) {
	if m.mixer != nil {
		m.mixer.collapse(q, s.x.Top(rows), s.streams.x.Top(rows), &s.streams)
	}
}

// Head records the LM head over rows of hidden: logits[i] = head(hidden[rows[i]]).
// sel is scratch of at least as many rows as rows has.
func (m *Model) Head(q kernels.Queue, logits, sel, hidden, rows kernels.Buf) {
	sel = sel.Top(int(rows.Rows))
	q.Gather(sel, hidden, rows)
	q.MatMul(logits, m.head, sel, kernels.Linear{})
}

// at returns element i of a list that a family may lack.
func at(list []bool, i int) bool { return list != nil && list[i] }

func invSqrt(n int) float32 { return float32(1 / math.Sqrt(float64(n))) }
