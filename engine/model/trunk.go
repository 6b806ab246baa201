package model

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// Trunk is a model's first layers, under its final norm and LM head, with
// activations of their own: what drafts when a model drafts, all of it or as much as
// LayerSkip runs (Elhoushi et al. 2024, arXiv:2404.16710).
type Trunk struct {
	m            *Model
	blocks       []*block
	rows         int
	s            scratch
	bufs         buffers
	ids          kernels.Buf // tokens of the rows after a translation, I32 [rows, 1]
	last, normed kernels.Buf
	logits       kernels.Buf
}

// Trunk returns the model's first layers, 1 to all of them, with activations for
// passes of at most rows rows and logits of at most spans rows.
func (m *Model) Trunk(layers, rows, spans int) (*Trunk, error) {
	if layers < 1 || layers > len(m.blocks) {
		return nil, fmt.Errorf("layers is %d; model %s has 1..%d", layers, m.Name, len(m.blocks))
	}
	h := m.Config.HiddenSize
	t := &Trunk{m: m, blocks: m.blocks[:layers], bufs: buffers{be: m.be}}
	var err error
	if t.s, err = newScratch(m.be, rows, m.MaxTokens+ropeSlack, h, t.blocks); err == nil {
		t.ids, err = m.be.Alloc(kernels.Tables, kernels.I32, rows, 1)
	}
	t.last, t.normed = t.bufs.alloc(kernels.BF16, spans, h), t.bufs.alloc(kernels.BF16, spans, h)
	t.logits = t.bufs.alloc(kernels.F32, spans, m.Config.VocabSize)
	if err == nil {
		err = t.bufs.err
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close frees the activations.
func (t *Trunk) Close() {
	t.s.free()
	t.bufs.free()
	if !t.ids.None() {
		t.m.be.Free(t.ids)
	}
}

// Run records the layers over the rows of b. layer gives their caches. The model's
// token for token x of b is row x of translation (I32 [vocabulary, 1]), or x itself
// if that is none.
func (t *Trunk) Run(q kernels.Queue, b *kernels.Batch, layer func(i int) kernels.Layer, translation kernels.Buf) {
	ids := b.Token
	if !translation.None() {
		ids = t.ids.Top(b.Rows)
		q.Gather(ids, translation, b.Token)
	}
	t.m.begin(q, &t.s, ids)
	for i, bl := range t.blocks {
		bl.forward(q, b, layer(i), &t.s)
	}
	t.m.end(q, &t.s, b.Rows)
	t.rows = b.Rows
}

// Logits records the final norm and the LM head over rows of the last Run (I32 [n,
// 1]) and returns F32 [n, VocabSize].
func (t *Trunk) Logits(q kernels.Queue, rows kernels.Buf) kernels.Buf {
	n := int(rows.Rows)
	last, normed, logits := t.last.Top(n), t.normed.Top(n), t.logits.Top(n)
	q.Gather(last, t.s.x.Top(t.rows), rows)
	q.Norm(normed, last, t.m.norm)
	q.MatMul(logits, t.m.head, normed, kernels.Linear{})
	return logits
}
