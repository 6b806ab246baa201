package model

import (
	"fmt"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// dflashWeights are the parameters of a DFlash head: a few Qwen3 layers over a
// block [last token, MASK, MASK, ...], whose row at a masked place says which
// token stands there. Each layer's keys and values are those of the block and, at
// the positions before it, of the target's features:
//
//	c = hidden_norm(fc([tap ; tap ; ...]))
//	k, v = k_proj, v_proj of c before the block, of norm(x) inside
//
// Logits are the target's LM head's, or those of a head of its own over fewer
// tokens (lm_head, d2t).
type dflashWeights struct {
	c                checkpoint.HeadConfig
	taps             []int
	fc               kernels.Weight
	hiddenNorm, norm kernels.Norm
	layers           []dflashLayer
	head             kernels.Weight
	ids              []int32 // tokens of the LM head's rows; nil: all, in order
}

// dflashLayer is one layer: queries, and keys and values, apart, for the features
// need the latter alone.
type dflashLayer struct {
	mixNorm, mlpNorm             kernels.Norm
	query, keys, out, gate, down kernels.Weight
	attn                         *kernels.AttnSpec
}

// LoadDFlash loads the DFlash head at where, as OpenHead finds it. A head is
// loaded once.
func (m *Model) LoadDFlash(where string) (*DFlashHead, error) {
	w, err := loadHead(m, checkpoint.HeadDFlash, where, m.loadDFlash)
	if err != nil {
		return nil, err
	}
	return &DFlashHead{m, w}, nil
}

func (m *Model) loadDFlash(l *loader, src HeadSource) *dflashWeights {
	hc, c := src.Head(), src.Config()
	h, plain := c.HiddenSize, traits{}
	w := &dflashWeights{c: hc, taps: m.headTaps(hc)}
	if h != m.Config.HiddenSize {
		l.err = fmt.Errorf("head %s: hidden_size is %d; it uses the embedding of model %s, whose hidden size is %d", src.Name(), h, m.Name, m.Config.HiddenSize)
		return w
	}
	w.fc = l.matrix("fc.weight", h, len(w.taps)*hc.TargetHidden)
	w.hiddenNorm = l.norm("hidden_norm.weight", h, plain)
	w.norm = l.norm("norm.weight", h, plain)
	rope, err := ropeTable(m.be, c, m.MaxTokens+ropeSlack)
	if l.err == nil {
		l.err = err
	}
	q, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	for i := range c.NumLayers {
		p := fmt.Sprintf("layers.%d.", i)
		at := p + "self_attn."
		y := dflashLayer{
			mixNorm: l.norm(p+"input_layernorm.weight", h, plain),
			mlpNorm: l.norm(p+"post_attention_layernorm.weight", h, plain),
			query:   l.matrix(at+"q_proj.weight", q, h),
			keys:    l.load(kernels.Matrix, false, h, part{at + "k_proj.weight", kv}, part{at + "v_proj.weight", kv}),
			out:     l.matrix(at+"o_proj.weight", h, q),
			attn: &kernels.AttnSpec{
				QHeads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, Scale: invSqrt(c.HeadDim), Rope: rope, Rotary: c.RotaryDim(),
				QNorm: l.norm(at+"q_norm.weight", c.HeadDim, plain), KNorm: l.norm(at+"k_norm.weight", c.HeadDim, plain),
			},
		}
		y.gate, y.down = l.mlp(p + "mlp.")
		w.layers = append(w.layers, y)
	}
	w.head = m.lmHead(l, src)
	w.ids = l.tokens(src, "d2t", true)
	return w
}

// DFlashHead is a loaded DFlash head.
type DFlashHead struct {
	m *Model
	w *dflashWeights
}

// Layers returns the cache geometry of the head's layers.
func (h *DFlashHead) Layers() []kernels.LayerSpec {
	specs := make([]kernels.LayerSpec, len(h.w.layers))
	for i, l := range h.w.layers {
		specs[i] = kernels.LayerSpec{Kind: kernels.Attention, KVHeads: l.attn.KVHeads, HeadDim: l.attn.HeadDim}
	}
	return specs
}

// Taps returns the places in the target that the head reads, by the number of
// layers run before.
func (h *DFlashHead) Taps() []int { return h.w.taps }

// Most returns the longest draft: a block without its first row.
func (h *DFlashHead) Most() int { return h.w.c.Block - 1 }

// Mask returns the token in the masked places.
func (h *DFlashHead) Mask() int32 { return h.w.c.Mask }

// Tokens returns the token of each row of the LM head; nil if row i is token i.
func (h *DFlashHead) Tokens() []int32 { return h.w.ids }

// StepParams returns the parameters that one draft reads, however long: the
// layers and the LM head.
func (h *DFlashHead) StepParams() int64 {
	c := h.w.c.Layer
	hid, q, kv := int64(c.HiddenSize), int64(c.NumHeads*c.HeadDim), int64(c.NumKVHeads*c.HeadDim)
	return int64(len(h.w.layers))*hid*(2*q+2*kv+3*int64(c.IntermediateSize)) + hid*int64(h.w.c.DraftVocab)
}

// DFlash is a DFlash head with activations of its own.
type DFlash struct {
	*DFlashHead
	bufs                     buffers
	features, context, x, y  kernels.Buf
	proj, mixed, mlp, hidden kernels.Buf
	logits                   kernels.Buf
}

// New returns the head with activations for passes of at most rows rows and
// logits of at most spans rows.
func (h *DFlashHead) New(rows, spans int) (*DFlash, error) {
	c := h.w.c.Layer
	hid, q, kv := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	t := &DFlash{DFlashHead: h, bufs: buffers{be: h.m.be}}
	for _, a := range []struct {
		dst  *kernels.Buf
		cols int
	}{
		{&t.features, hid}, {&t.context, hid}, {&t.x, hid}, {&t.y, hid}, {&t.proj, q + 2*kv},
		{&t.mixed, q}, {&t.mlp, c.IntermediateSize}, {&t.hidden, hid},
	} {
		*a.dst = t.bufs.alloc(kernels.BF16, rows, a.cols)
	}
	t.logits = t.bufs.alloc(kernels.F32, spans, h.w.c.DraftVocab)
	if t.bufs.err != nil {
		t.bufs.free()
		return nil, t.bufs.err
	}
	return t, nil
}

// open implements blockHead.
func (h *DFlashHead) open(rows, spans int) (backbone, error) {
	t, err := h.New(rows, spans)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Close frees the activations.
func (t *DFlash) Close() { t.bufs.free() }

// Context records the keys and values of the target's features for the rows of b,
// at their positions. taps is BF16 [b.Rows, HiddenSize*taps]. layer gives the
// caches of the head's layers.
func (t *DFlash) Context(q kernels.Queue, b *kernels.Batch, layer func(i int) kernels.Layer, taps kernels.Buf) {
	c, cols := t.context.Top(b.Rows), int(t.mixed.Cols)
	q.MatMul(t.features.Top(b.Rows), t.w.fc, taps, kernels.Linear{})
	q.Norm(c, t.features.Top(b.Rows), t.w.hiddenNorm)
	proj := t.proj.Top(b.Rows)
	for i, l := range t.w.layers {
		// What the rows attend to, with queries left over, is not used.
		q.MatMul(proj.Columns(cols, int(proj.Cols)), l.keys, c, kernels.Linear{})
		q.Attend(t.mixed.Top(b.Rows), proj, layer(i), b, l.attn)
	}
}

// Forward records the layers over the blocks of b and returns the hidden states
// of its rows.
func (t *DFlash) Forward(q kernels.Queue, b *kernels.Batch, layer func(i int) kernels.Layer) kernels.Buf {
	x, y, proj := t.x.Top(b.Rows), t.y.Top(b.Rows), t.proj.Top(b.Rows)
	mixed, mlp, cols := t.mixed.Top(b.Rows), t.mlp.Top(b.Rows), int(t.mixed.Cols)
	q.Embed(x, t.m.embed, b.Token)
	for i, l := range t.w.layers {
		q.Norm(y, x, l.mixNorm)
		q.MatMul(proj.Columns(0, cols), l.query, y, kernels.Linear{})
		q.MatMul(proj.Columns(cols, int(proj.Cols)), l.keys, y, kernels.Linear{})
		q.Attend(mixed, proj, layer(i), b, l.attn)
		q.MatMul(x, l.out, mixed, kernels.Linear{Residual: x})
		q.MatMul(mlp, l.gate, x, kernels.Linear{In: l.mlpNorm, Act: kernels.SwiGLU})
		q.MatMul(x, l.down, mlp, kernels.Linear{Residual: x})
	}
	hidden := t.hidden.Top(b.Rows)
	q.Norm(hidden, x, t.w.norm)
	return hidden
}

// Drafted returns the number of columns of the logits.
func (t *DFlash) Drafted() int { return t.w.c.DraftVocab }

// Logits records the LM head over rows of hidden and returns F32 [rows, Drafted].
func (t *DFlash) Logits(q kernels.Queue, hidden kernels.Buf) kernels.Buf {
	logits := t.logits.Top(int(hidden.Rows))
	q.MatMul(logits, t.w.head, hidden, kernels.Linear{})
	return logits
}
