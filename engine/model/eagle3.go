package model

import (
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// eagle3Weights are the parameters of an EAGLE-3 head, by the names of its
// reference code:
//
//	g = fc([tap ; tap ; tap])                     features of the target
//	z = [norm(embed(token)) ; hidden_norm(g)]
//	x = g + attention(z);  r = x + mlp(norm(x))
//	logits = lm_head(norm(r)), over the draft vocabulary
//
// and r takes the place of g for the next draft.
type eagle3Weights struct {
	c                              checkpoint.HeadConfig
	taps                           []int
	embed                          kernels.Weight
	fc, in, out, gateUp, down      kernels.Weight
	head                           kernels.Weight
	fcNorm                         kernels.Norm // of the features, where the head has it
	embedNorm, hiddenNorm, mlpNorm kernels.Norm
	norm                           kernels.Norm
	attn                           *kernels.AttnSpec
	ids                            []int32 // tokens of the LM head's rows; nil: all, in order
}

// LoadEagle3 loads the EAGLE-3 head at where, as OpenHead finds it. A head is
// loaded once.
func (m *Model) LoadEagle3(where string) (*Eagle3Head, error) {
	w, err := loadHead(m, checkpoint.HeadEagle3, where, m.loadEagle3)
	if err != nil {
		return nil, err
	}
	return &Eagle3Head{m, w}, nil
}

func (m *Model) loadEagle3(l *loader, src HeadSource) *eagle3Weights {
	hc, c := src.Head(), src.Config()
	h, plain := c.HiddenSize, traits{}
	w := &eagle3Weights{c: hc, taps: m.headTaps(hc), embed: m.embed}
	if src.Has("embed_tokens.weight") {
		w.embed = l.matrix("embed_tokens.weight", c.VocabSize, h)
	}
	features := len(w.taps) * hc.TargetHidden
	w.fc = l.matrix("fc.weight", h, features)
	if hc.NormBeforeFC {
		w.fcNorm = l.norm("input_norm.weight", features, plain)
	}
	w.embedNorm = l.norm("midlayer.input_layernorm.weight", h, plain)
	w.hiddenNorm = l.norm("midlayer.hidden_norm.weight", h, plain)
	w.mlpNorm = l.norm("midlayer.post_attention_layernorm.weight", h, plain)
	w.norm = l.norm("norm.weight", h, plain)
	q, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	const at = "midlayer.self_attn."
	w.in = l.load(kernels.Matrix, false, 2*h, part{at + "q_proj.weight", q}, part{at + "k_proj.weight", kv}, part{at + "v_proj.weight", kv})
	w.out = l.matrix(at+"o_proj.weight", h, q)
	w.gateUp, w.down = l.mlp("midlayer.mlp.")
	w.head = m.lmHead(l, src)
	w.ids = l.tokens(src, "d2t", true)
	// As for MTP, slot p holds the pair (features of p-1, token p).
	w.attn = &kernels.AttnSpec{
		QHeads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, Scale: invSqrt(c.HeadDim), Rotary: c.RotaryDim(), FirstKey: 1,
	}
	if l.err == nil {
		w.attn.Rope, l.err = ropeTable(m.be, c, m.MaxTokens+ropeSlack)
	}
	return w
}

// Eagle3Head is a loaded EAGLE-3 head.
type Eagle3Head struct {
	m *Model
	w *eagle3Weights
}

// Layer returns the cache geometry of the head's one layer.
func (h *Eagle3Head) Layer() kernels.LayerSpec {
	return kernels.LayerSpec{Kind: kernels.Attention, KVHeads: h.w.attn.KVHeads, HeadDim: h.w.attn.HeadDim}
}

// Taps returns the places in the target that the head reads, by the number of
// layers run before.
func (h *Eagle3Head) Taps() []int { return h.w.taps }

// Tokens returns the token of each row of the LM head; nil if row i is token i.
func (h *Eagle3Head) Tokens() []int32 { return h.w.ids }

// StepParams returns the parameters that one draft reads: layer and LM head.
func (h *Eagle3Head) StepParams() int64 {
	c, a := h.w.c, h.w.attn
	hid := int64(c.Layer.HiddenSize)
	attn := 2*hid*int64((a.QHeads+2*a.KVHeads)*a.HeadDim) + hid*int64(a.QHeads*a.HeadDim)
	return attn + 3*hid*int64(c.Layer.IntermediateSize) + hid*int64(c.DraftVocab)
}

// Eagle3 is an EAGLE-3 head with activations of its own.
type Eagle3 struct {
	*Eagle3Head
	bufs                                buffers
	embedded, both, proj, mixed, x, mlp kernels.Buf
	features, out, normed               kernels.Buf
	logits                              kernels.Buf
}

// New returns the head with activations for passes of at most rows rows and
// logits of at most spans rows.
func (h *Eagle3Head) New(rows, spans int) (*Eagle3, error) {
	c, a := h.w.c, h.w.attn
	hid, q := c.Layer.HiddenSize, a.QHeads*a.HeadDim
	t := &Eagle3{Eagle3Head: h, bufs: buffers{be: h.m.be}}
	b := &t.bufs
	for _, x := range []struct {
		dst  *kernels.Buf
		cols int
	}{
		{&t.embedded, hid}, {&t.both, 2 * hid}, {&t.proj, q + 2*a.KVHeads*a.HeadDim}, {&t.mixed, q}, {&t.x, hid},
		{&t.mlp, c.Layer.IntermediateSize}, {&t.features, hid}, {&t.out, hid},
	} {
		*x.dst = b.alloc(kernels.BF16, rows, x.cols)
	}
	if c.NormOutput {
		t.normed = b.alloc(kernels.BF16, rows, hid)
	}
	t.logits = b.alloc(kernels.F32, spans, c.DraftVocab)
	if b.err != nil {
		b.free()
		return nil, b.err
	}
	return t, nil
}

// Close frees the activations.
func (t *Eagle3) Close() { t.bufs.free() }

// Width returns the width of the head's hidden states.
func (t *Eagle3) Width() int { return t.w.c.Layer.HiddenSize }

// Drafted returns the number of columns of the logits.
func (t *Eagle3) Drafted() int { return t.w.c.DraftVocab }

// Features records the projection of the target's taps (BF16 [rows,
// HiddenSize*taps]) and returns g, the hidden states for Forward.
func (t *Eagle3) Features(q kernels.Queue, _, taps kernels.Buf) kernels.Buf {
	n := int(taps.Rows)
	g := t.features.Top(n)
	q.MatMul(g, t.w.fc, taps, kernels.Linear{In: t.w.fcNorm})
	return g
}

// Forward records the layer over the rows of b, whose tokens are those after the
// rows of hidden (BF16 [b.Rows, Width]), and returns r, the hidden states that
// predict one token further.
func (t *Eagle3) Forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, hidden kernels.Buf) kernels.Buf {
	w, h, n := t.w, t.Width(), b.Rows
	e, both, x, out := t.embedded.Top(n), t.both.Top(n), t.x.Top(n), t.out.Top(n)
	proj, mixed, mlp := t.proj.Top(n), t.mixed.Top(n), t.mlp.Top(n)
	q.Embed(e, w.embed, b.Token)
	q.Norm(both.Columns(0, h), e, w.embedNorm)
	q.Norm(both.Columns(h, 2*h), hidden, w.hiddenNorm)
	residual := hidden
	if w.c.NormBeforeResidual {
		residual = both.Columns(h, 2*h)
	}
	q.MatMul(proj, w.in, both, kernels.Linear{})
	q.Attend(mixed, proj, c, b, w.attn)
	q.MatMul(x, w.out, mixed, kernels.Linear{Residual: residual})
	q.MatMul(mlp, w.gateUp, x, kernels.Linear{In: w.mlpNorm, Act: kernels.SwiGLU})
	q.MatMul(out, w.down, mlp, kernels.Linear{Residual: x})
	if !w.c.NormOutput {
		return out
	}
	normed := t.normed.Top(n)
	q.Norm(normed, out, w.norm)
	return normed
}

// Logits records the LM head over rows of hidden and returns F32 [rows, Drafted].
func (t *Eagle3) Logits(q kernels.Queue, hidden kernels.Buf) kernels.Buf {
	logits, in := t.logits.Top(int(hidden.Rows)), t.w.norm
	if t.w.c.NormOutput {
		in = kernels.Norm{}
	}
	q.MatMul(logits, t.w.head, hidden, kernels.Linear{In: in})
	return logits
}
