package model

import (
	"fmt"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// medusaWeights are the parameters of Medusa heads, by the names of vLLM's
// layout. Head i guesses the token i+1 places behind the one that the target's
// final hidden state h predicts:
//
//	x = h; for each layer: x = x + silu(layer(x))
//	logits = lm_head_i(x), over the draft vocabulary
type medusaWeights struct {
	c      checkpoint.HeadConfig
	layers [][]kernels.Weight // by head
	heads  []kernels.Weight
	ids    []int32 // tokens of the LM heads' rows; nil: all, in order
}

// LoadMedusa loads the Medusa heads at where, as OpenHead finds them. They are
// loaded once.
func (m *Model) LoadMedusa(where string) (*MedusaHeads, error) {
	w, err := loadHead(m, checkpoint.HeadMedusa, where, loadMedusa)
	if err != nil {
		return nil, err
	}
	return &MedusaHeads{m, w}, nil
}

func loadMedusa(l *loader, src HeadSource) *medusaWeights {
	c := src.Head()
	h := c.Layer.HiddenSize
	w := &medusaWeights{c: c}
	for i := range c.Heads {
		var layers []kernels.Weight
		for j := range c.HeadLayers {
			name := fmt.Sprintf("blocks.%d.layers.%d.", i, j)
			if files, ok := src.(headFiles); ok && files.Has(name+"bias") && l.err == nil {
				l.err = fmt.Errorf("head %s: tensor %sbias: biases are not supported", src.Name(), name)
			}
			layers = append(layers, l.matrix(name+"weight", h, h))
		}
		w.layers = append(w.layers, layers)
		w.heads = append(w.heads, l.matrix(fmt.Sprintf("lm_heads.%d.weight", i), c.DraftVocab, h))
	}
	w.ids = l.tokens(src, "token_map", false)
	return w
}

// MedusaHeads are loaded Medusa heads.
type MedusaHeads struct {
	m *Model
	w *medusaWeights
}

// Heads returns the number of heads: the longest draft.
func (h *MedusaHeads) Heads() int { return len(h.w.heads) }

// Tokens returns the token of each row of the LM heads; nil if row i is token i.
func (h *MedusaHeads) Tokens() []int32 { return h.w.ids }

// StepParams returns the parameters that one draft reads: a head.
func (h *MedusaHeads) StepParams() int64 {
	hid := int64(h.w.c.Layer.HiddenSize)
	return hid*hid*int64(h.w.c.HeadLayers) + hid*int64(h.w.c.DraftVocab)
}

// Medusa are Medusa heads with activations of their own.
type Medusa struct {
	*MedusaHeads
	bufs   buffers
	x      [2]kernels.Buf
	logits kernels.Buf
}

// New returns the heads with activations for drafts of at most spans sequences.
func (h *MedusaHeads) New(spans int) (*Medusa, error) {
	t := &Medusa{MedusaHeads: h, bufs: buffers{be: h.m.be}}
	for i := range t.x {
		t.x[i] = t.bufs.alloc(kernels.BF16, spans, h.w.c.Layer.HiddenSize)
	}
	t.logits = t.bufs.alloc(kernels.F32, spans, h.w.c.DraftVocab)
	if t.bufs.err != nil {
		t.bufs.free()
		return nil, t.bufs.err
	}
	return t, nil
}

// Close frees the activations.
func (t *Medusa) Close() { t.bufs.free() }

// Width returns the width of the target's hidden states, Drafted the number of
// columns of the logits.
func (t *Medusa) Width() int { return t.w.c.Layer.HiddenSize }

// Drafted returns the number of columns of the logits.
func (t *Medusa) Drafted() int { return t.w.c.DraftVocab }

// Logits records head i over rows of the target's final hidden states and returns
// F32 [rows, Drafted].
func (t *Medusa) Logits(q kernels.Queue, i int, hidden kernels.Buf) kernels.Buf {
	n := int(hidden.Rows)
	x := hidden
	for j, w := range t.w.layers[i] {
		y := t.x[j%2].Top(n)
		q.MatMul(y, w, x, kernels.Linear{Act: kernels.SiLU, Residual: x})
		x = y
	}
	logits := t.logits.Top(n)
	q.MatMul(logits, t.w.heads[i], x, kernels.Linear{})
	return logits
}
