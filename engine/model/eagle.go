package model

import (
	"fmt"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// eagleWeights are the parameters of an EAGLE head (Li et al. 2024,
// arXiv:2401.15077), by the names of its reference code:
//
//	x = fc([embed(token) ; h]) + bias            h: the target's final hidden state
//	x = x + attention(x);  h' = x + mlp(norm(x))
//	logits = the target's LM head of h', or a head of its own over fewer tokens
//	         (lm_head, d2t)
//
// and h' takes the place of h for the next draft. The layer has no norm in front of
// its attention, and the LM head none in front of it.
type eagleWeights struct {
	c                         checkpoint.HeadConfig
	embed, bias               kernels.Weight // bias: a row, none if there is none
	fc, in, out, gateUp, down kernels.Weight
	mlpNorm                   kernels.Norm
	attn                      *kernels.AttnSpec
	head                      kernels.Weight
	ids                       []int32 // tokens of the LM head's rows; nil: all, in order
}

// LoadEagle loads the EAGLE head at where, as OpenHead finds it. A head is loaded once.
func (m *Model) LoadEagle(where string) (*EagleHead, error) {
	w, err := loadHead(m, checkpoint.HeadEagle, where, m.loadEagle)
	if err != nil {
		return nil, err
	}
	return &EagleHead{m, w}, nil
}

func (m *Model) loadEagle(l *loader, src HeadSource) *eagleWeights {
	hc, c := src.Head(), src.Config()
	h := c.HiddenSize
	w := &eagleWeights{c: hc, embed: m.embed}
	if h != m.Config.HiddenSize {
		l.err = fmt.Errorf("head %s: hidden_size is %d; it uses the embedding of model %s, whose hidden size is %d", src.Name(), h, m.Name, m.Config.HiddenSize)
		return w
	}
	if src.Has("embed_tokens.weight") {
		w.embed = l.matrix("embed_tokens.weight", c.VocabSize, h)
	}
	w.fc = l.matrix("fc.weight", h, 2*h)
	if src.Has("fc.bias") {
		w.bias = l.matrix("fc.bias", 1, h)
	}
	const layer = "layers.0."
	q, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	w.in = l.load(kernels.Matrix, false, h,
		part{layer + "self_attn.q_proj.weight", q}, part{layer + "self_attn.k_proj.weight", kv}, part{layer + "self_attn.v_proj.weight", kv})
	w.out = l.matrix(layer+"self_attn.o_proj.weight", h, q)
	w.mlpNorm = l.norm(layer+"post_attention_layernorm.weight", h, traits{})
	w.gateUp, w.down = l.mlp(layer + "mlp.")
	w.head, w.ids = m.lmHead(l, src), l.tokens(src, "d2t", true)
	// As for MTP, slot p holds the pair (hidden state of p-1, token p).
	w.attn = &kernels.AttnSpec{
		QHeads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, Scale: invSqrt(c.HeadDim), Rotary: c.RotaryDim(), FirstKey: 1,
	}
	if l.err == nil {
		w.attn.Rope, l.err = ropeTable(m.be, c, m.MaxTokens+ropeSlack)
	}
	return w
}

// EagleHead is a loaded EAGLE head.
type EagleHead struct {
	m *Model
	w *eagleWeights
}

// Layer returns the cache geometry of the head's one layer.
func (h *EagleHead) Layer() kernels.LayerSpec {
	return kernels.LayerSpec{Kind: kernels.Attention, KVHeads: h.w.attn.KVHeads, HeadDim: h.w.attn.HeadDim}
}

// Tokens returns the token of each row of the LM head; nil if row i is token i.
func (h *EagleHead) Tokens() []int32 { return h.w.ids }

// Eagle is an EAGLE head with activations of its own.
type Eagle struct {
	*EagleHead
	bufs                                buffers
	embedded, both, x, proj, mixed, mlp kernels.Buf
	out, bias                           kernels.Buf // bias: its row, for each row
	logits                              kernels.Buf
}

// New returns the head with activations for passes of at most rows rows and
// logits of at most spans rows.
func (h *EagleHead) New(rows, spans int) (*Eagle, error) {
	c, a := h.w.c.Layer, h.w.attn
	hid, q := c.HiddenSize, a.QHeads*a.HeadDim
	t := &Eagle{EagleHead: h, bufs: buffers{be: h.m.be}}
	b := &t.bufs
	for _, x := range []struct {
		dst  *kernels.Buf
		cols int
	}{
		{&t.embedded, hid}, {&t.both, 2 * hid}, {&t.x, hid}, {&t.proj, q + 2*a.KVHeads*a.HeadDim}, {&t.mixed, q},
		{&t.mlp, c.IntermediateSize}, {&t.out, hid},
	} {
		*x.dst = b.alloc(kernels.BF16, rows, x.cols)
	}
	t.logits = b.alloc(kernels.F32, spans, h.w.c.DraftVocab)
	if err := t.spreadBias(rows); err != nil {
		b.free()
		return nil, err
	}
	return t, nil
}

// spreadBias fills the rows that fc's bias is added from.
func (t *Eagle) spreadBias(rows int) error {
	b := &t.bufs
	if t.w.bias.ID == 0 || b.err != nil {
		return b.err
	}
	t.bias = b.alloc(kernels.BF16, rows, t.Width())
	first, err := t.m.be.Alloc(kernels.Tables, kernels.I32, rows, 1) // zeros
	if err != nil {
		return err
	}
	if b.err == nil {
		q := t.m.be.Queue()
		q.Embed(t.bias, t.w.bias, first)
		b.err = q.Err()
	}
	t.m.be.Free(first)
	return b.err
}

// Close frees the activations.
func (t *Eagle) Close() { t.bufs.free() }

// Width returns the width of the head's hidden states.
func (t *Eagle) Width() int { return t.w.c.Layer.HiddenSize }

// Drafted returns the number of columns of the logits.
func (t *Eagle) Drafted() int { return t.w.c.DraftVocab }

// Features returns the hidden states of the target that Forward begins with: the
// final ones as they are.
func (t *Eagle) Features(_ kernels.Queue, hidden, _ kernels.Buf) kernels.Buf { return hidden }

// Forward records the layer over the rows of b, whose tokens are those after the
// rows of hidden (BF16 [b.Rows, Width]), and returns h', the hidden states that
// predict one token further.
func (t *Eagle) Forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, hidden kernels.Buf) kernels.Buf {
	w, h, n := t.w, t.Width(), b.Rows
	e, both, x, out := t.embedded.Top(n), t.both.Top(n), t.x.Top(n), t.out.Top(n)
	proj, mixed, mlp := t.proj.Top(n), t.mixed.Top(n), t.mlp.Top(n)
	q.Embed(e, w.embed, b.Token)
	q.Copy(both.Columns(0, h), e)
	q.Copy(both.Columns(h, 2*h), hidden)
	l := kernels.Linear{}
	if !t.bias.None() {
		l.Residual = t.bias.Top(n)
	}
	q.MatMul(x, w.fc, both, l)
	q.MatMul(proj, w.in, x, kernels.Linear{})
	q.Attend(mixed, proj, c, b, w.attn)
	q.MatMul(x, w.out, mixed, kernels.Linear{Residual: x})
	q.MatMul(mlp, w.gateUp, x, kernels.Linear{In: w.mlpNorm, Act: kernels.SwiGLU})
	q.MatMul(out, w.down, mlp, kernels.Linear{Residual: x})
	return out
}

// Logits records the LM head over rows of hidden and returns F32 [rows,
// Drafted].
func (t *Eagle) Logits(q kernels.Queue, hidden kernels.Buf) kernels.Buf {
	logits := t.logits.Top(int(hidden.Rows))
	q.MatMul(logits, t.w.head, hidden, kernels.Linear{})
	return logits
}
