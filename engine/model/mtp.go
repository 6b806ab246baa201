package model

import (
	"fmt"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// mtpWeights are the parameters of an MTP module (DeepSeek-V3, arXiv:2412.19437;
// the same in GLM and Qwen3.5, with other names):
//
//	e = norm(embed(token)); h = norm(hidden)
//	z = [e ; h] Wfcᵀ;  z -> one full-attention block -> norm = h'
//	logits = head(h')
type mtpWeights struct {
	embedNorm, hiddenNorm, norm kernels.Norm
	fc                          kernels.Weight
	block                       *block
	// Of a model with n streams, z = fc(h_i) + embedFC(e) is stream i, with h the
	// target's streams before its mixer, and h' those of the block, of which a
	// mixer makes what the head reads.
	embedFC kernels.Weight
	mixer   site

	head  kernels.Weight
	vocab int     // rows of head
	ids   []int32 // their tokens; nil: row i is token i
}

// mtpNames are the names of a module's tensors; layer is the prefix of its block's.
// With streams, embedFC and the prefix mixer are there, and norm may be empty.
// The norm of the hidden state is of all streams as one vector, or of each if apart is set.
type mtpNames struct {
	embedNorm, hiddenNorm, norm, fc, layer, embedFC, mixer string
	apart                                                  bool
}

// qwenMTP are the names of the Qwen families.
func qwenMTP(checkpoint.Config) mtpNames {
	return mtpNames{
		embedNorm: "mtp.pre_fc_norm_embedding.weight", hiddenNorm: "mtp.pre_fc_norm_hidden.weight", norm: "mtp.norm.weight",
		fc: "mtp.fc.weight", layer: "mtp.layers.0.",
	}
}

// nextMTP are the names of the DeepSeek and GLM families, which keep the module
// behind the layers of the trunk.
func nextMTP(c checkpoint.Config) mtpNames {
	at := fmt.Sprintf("model.layers.%d.", c.NumLayers)
	return mtpNames{
		embedNorm: at + "enorm.weight", hiddenNorm: at + "hnorm.weight", norm: at + "shared_head.norm.weight",
		fc: at + "eh_proj.weight", layer: at,
	}
}

// HasMTP reports whether a source has an MTP module that its family knows.
func HasMTP(src Source) bool {
	c := src.Config()
	t := families[c.Family]
	return c.MTPLayers > 0 && t.mtp != nil && src.Has(t.mtp(c).fc)
}

func (l *loader) loadMTP(t traits, r ropes) *mtpWeights {
	c := l.src.Config()
	h, name := c.HiddenSize, t.mtp(c)
	w := &mtpWeights{embedNorm: l.norm(name.embedNorm, h, t)}
	if c.Pooled.Window > 0 {
		w.block = l.loadPooledBlock(name.layer, c.NumLayers, t, r)
	} else {
		w.block = l.loadBlock(name.layer, checkpoint.FullAttention, c.MoE.Experts > 0, c.Index.Heads > 0, t, r.main)
	}
	if name.norm != "" {
		w.norm = l.norm(name.norm, h, t)
	}
	if t.mixer == nil {
		w.hiddenNorm, w.fc = l.norm(name.hiddenNorm, h, t), l.matrix(name.fc, h, 2*h)
	} else {
		streams := c.Streams.Count
		if name.apart {
			streams = 1
		}
		if w.hiddenNorm = l.norm(name.hiddenNorm, streams*h, t); name.apart {
			w.hiddenNorm.Group = h
		}
		w.fc, w.embedFC = l.matrix(name.fc, h, h), l.matrix(name.embedFC, h, h)
		w.mixer = t.mixer(l, name.mixer)
	}
	// Slot p of this layer's cache holds the pair (hidden p-1, token p), so
	// that it depends on tokens up to p alone and pages can be shared.
	// Slot 0 has no pair.
	if w.block.attn != nil {
		w.block.attn.FirstKey = 1
	}
	if m := w.block.mla; m != nil && m.index != nil {
		m.index.spec.FirstKey = 1
	}
	if x := w.block.choice; x != nil {
		x.spec.FirstKey = 1
	}
	if p := w.block.pooled; p != nil {
		p.spec.FirstKey = 1
	}
	return w
}

// MTP is a model's multi-token-prediction module with activations of its own:
// the network of the drafter draft.mtp.
type MTP struct {
	m             *Model
	w             *mtpWeights
	s             scratch
	both          kernels.Buf // [e ; h]; with streams [h] normed, and behind it [e]
	hidden        kernels.Buf
	last          kernels.Buf // with streams: what the head reads
	logits        kernels.Buf
	Hidden, Vocab int // widths; that of Hidden is all streams'
}

// MTP returns the module, or nil if the model was loaded without one. rows and
// spans bound its passes.
func (m *Model) MTP(rows, spans int) (*MTP, error) {
	if m.mtp == nil {
		return nil, nil
	}
	return m.newMTP(m.mtp, rows, spans)
}

func (m *Model) newMTP(w *mtpWeights, rows, spans int) (*MTP, error) {
	c := m.Config
	t := &MTP{m: m, w: w, Hidden: max(1, c.Streams.Count) * c.HiddenSize, Vocab: w.vocab}
	var err error
	if t.s, err = newScratch(m.be, max(rows, spans), m.MaxTokens+ropeSlack, c.HiddenSize, []*block{w.block}); err != nil {
		return nil, err
	}
	for _, a := range []struct {
		dst        *kernels.Buf
		kind       kernels.Kind
		rows, cols int
	}{
		{&t.both, kernels.BF16, rows, t.Hidden + c.HiddenSize},
		{&t.hidden, kernels.BF16, rows, t.Hidden},
		{&t.last, kernels.BF16, spans, c.HiddenSize},
		{&t.logits, kernels.F32, spans, w.vocab},
	} {
		if *a.dst, err = m.be.Alloc(kernels.Activations, a.kind, a.rows, a.cols); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Close frees the activations.
func (t *MTP) Close() {
	t.s.free()
	for _, b := range []kernels.Buf{t.both, t.hidden, t.last, t.logits} {
		t.m.be.Free(b)
	}
}

// Layer returns the cache geometry of the module's one layer.
func (t *MTP) Layer() kernels.LayerSpec { return t.w.block.cache }

// MTPLayer returns the cache geometry of the module's layer, and false if the
// model was loaded without a module.
func (m *Model) MTPLayer() (kernels.LayerSpec, bool) {
	if m.mtp == nil {
		return kernels.LayerSpec{}, false
	}
	return m.mtp.block.cache, true
}

// Width returns the width of the module's hidden states.
func (t *MTP) Width() int { return t.Hidden }

// Drafted returns the number of columns of the logits.
func (t *MTP) Drafted() int { return t.Vocab }

// Features returns the hidden states of the target that Forward begins with: the
// final ones as they are, or, where the module has taps, these.
func (t *MTP) Features(_ kernels.Queue, hidden, taps kernels.Buf) kernels.Buf {
	if t.w.mixer != nil {
		return taps
	}
	return hidden
}

// StepParams returns the parameters that one draft reads: fc, block and head.
func (t *MTP) StepParams() int64 {
	c := t.m.Config
	n := int64(t.Hidden+c.HiddenSize)*int64(c.HiddenSize) + t.w.block.params(c.HiddenSize) + int64(t.w.vocab)*int64(c.HiddenSize)
	if t.w.mixer != nil {
		n += t.w.mixer.params()
	}
	return n
}

// Choices returns the width of a row's choice of keys, if the choice that is made for the
// first token of a draft serves those behind it too (GLM-5); else 0.
func (t *MTP) Choices() int {
	if !t.m.Config.Index.ShareMTP {
		return 0
	}
	return int(t.s.mla.index.mask.Cols)
}

// Chosen returns the choices of the first rows rows of the last Forward, I32 [rows,
// Choices].
func (t *MTP) Chosen(rows int) kernels.Buf { return t.s.mla.index.mask.Top(rows) }

// Reuse has the next Forward see the keys of choices (I32 [rows, Choices]) instead of
// choosing.
func (t *MTP) Reuse(choices kernels.Buf) { t.s.mla.index.given = choices }

// Forward records the module over the rows of b, whose tokens are the tokens
// after the rows of hidden (BF16 [b.Rows, Hidden]), and returns h', the hidden states
// that predict one token further.
func (t *MTP) Forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, hidden kernels.Buf) kernels.Buf {
	h := int(t.s.x.Cols)
	x, both := t.s.x.Top(b.Rows), t.both.Top(b.Rows)
	q.Embed(x, t.m.embed, b.Token)
	if t.w.mixer != nil {
		return t.forwardStreams(q, b, c, hidden)
	}
	q.Norm(both.Columns(0, h), x, t.w.embedNorm)
	q.Norm(both.Columns(h, 2*h), hidden, t.w.hiddenNorm)
	q.MatMul(x, t.w.fc, both, kernels.Linear{})
	t.w.block.forward(q, b, c, &t.s)
	t.s.mla.index.given = kernels.Buf{}
	out := t.hidden.Top(b.Rows)
	q.Norm(out, x, t.w.norm)
	return out
}

// forwardStreams is Forward of a model with streams, behind the embedding.
func (t *MTP) forwardStreams(q kernels.Queue, b *kernels.Batch, c kernels.Layer, hidden kernels.Buf) kernels.Buf {
	h, n := int(t.s.x.Cols), b.Rows
	x, y, streams, both := t.s.x.Top(n), t.s.streams.y.Top(n), t.s.streams.x.Top(n), t.both.Top(n)
	e := both.Columns(t.Hidden, t.Hidden+h)
	q.Norm(e, x, t.w.embedNorm)
	q.MatMul(y, t.w.embedFC, e, kernels.Linear{})
	q.Norm(both.Columns(0, t.Hidden), hidden, t.w.hiddenNorm)
	for at := 0; at < t.Hidden; at += h {
		q.MatMul(streams.Columns(at, at+h), t.w.fc, both.Columns(at, at+h), kernels.Linear{Residual: y})
	}
	t.w.block.forward(q, b, c, &t.s)
	out := t.hidden.Top(n)
	q.Copy(out, streams)
	return out
}

// Logits records the LM head over rows of hidden and returns F32 [rows, Vocab].
func (t *MTP) Logits(q kernels.Queue, hidden kernels.Buf) kernels.Buf {
	logits := t.logits.Top(int(hidden.Rows))
	if t.w.mixer != nil {
		last := t.last.Top(int(hidden.Rows))
		t.w.mixer.collapse(q, last, hidden, &t.s.streams)
		q.Norm(last, last, t.w.norm)
		hidden = last
	}
	q.MatMul(logits, t.w.head, hidden, kernels.Linear{})
	return logits
}
