package model

import (
	"fmt"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// sparkWeights are the parameters of the DSpark module that lies in the files of
// DeepSeek-V4.1 (mtp.*): blocks of the trunk's kind with a window alone, in which the rows
// of a draft see each other. The window's keys are of the target's features at the
// positions before it:
//
//	c = main_norm(main_proj([tap ; tap ; ...])), a tap the mean of the streams that enter a layer
//	hidden = streams behind the last block, brought together
//	logits = head(norm(hidden)), and what a Markov head and a confidence head add (DSpark)
type sparkWeights struct {
	c        checkpoint.Spark
	proj     kernels.Weight
	mainNorm kernels.Norm
	blocks   []*block
	norm     kernels.Norm
	mixer    site
	markov
}

// HasDSpark reports whether a source's own files have a DSpark module.
func HasDSpark(src Source) bool {
	return src.Config().Spark.Stages > 0 && src.Has("mtp.0.main_proj.weight")
}

// sparkSource is the source of a model as its module sees it, with experts of its own
// number.
type sparkSource struct {
	Source
	c checkpoint.Config
}

// Config implements Source.
func (s sparkSource) Config() checkpoint.Config { return s.c }

func (l *loader) loadSpark(t traits, r ropes) *sparkWeights {
	src := sparkSource{l.src, l.src.Config()}
	c := &src.c
	c.MoE.Experts, c.MoE.PerToken = c.Spark.Experts, c.Spark.PerToken
	s := &loader{be: l.be, src: src, err: l.err}
	last := fmt.Sprintf("mtp.%d.", c.Spark.Stages-1)
	w := &sparkWeights{
		c: c.Spark, proj: s.matrix("mtp.0.main_proj.weight", c.HiddenSize, len(c.Spark.Taps)*c.HiddenSize),
		mainNorm: s.norm("mtp.0.main_norm.weight", c.HiddenSize, t), norm: s.norm(last+"norm.weight", c.HiddenSize, t), mixer: t.mixer(s, last),
	}
	for i := range c.Spark.Stages {
		b := s.loadPooledBlock(fmt.Sprintf("mtp.%d.", i), c.NumLayers+i, t, r)
		b.pooled.spec.Block = true
		w.blocks = append(w.blocks, b)
	}
	w.markov = s.markov(last+"markov_head.embed.weight", last+"markov_head.head.weight", c.VocabSize, c.Spark.Rank)
	w.confidence(s, last+"confidence_head.proj.weight", true)
	l.err = s.err
	return w
}

// sparkHead is the blockHead of such a module.
type sparkHead struct {
	m *Model
	w *sparkWeights
}

var _ blockHead = (*sparkHead)(nil)

// Layers implements blockHead.
func (h *sparkHead) Layers() []kernels.LayerSpec {
	specs := make([]kernels.LayerSpec, len(h.w.blocks))
	for i, b := range h.w.blocks {
		specs[i] = b.cache
	}
	return specs
}

// Taps implements blockHead.
func (h *sparkHead) Taps() []int { return h.w.c.Taps }

// Mask implements blockHead.
func (h *sparkHead) Mask() int32 { return h.w.c.Mask }

// Tokens implements blockHead.
func (*sparkHead) Tokens() []int32 { return nil }

// StepParams implements blockHead.
func (h *sparkHead) StepParams() int64 {
	n := int64(h.m.Config.VocabSize) * int64(h.m.Config.HiddenSize)
	for _, b := range h.w.blocks {
		n += b.params(h.m.Config.HiddenSize)
	}
	return n
}

// spark is a sparkHead with activations of its own.
type spark struct {
	*sparkHead
	s                         scratch
	bufs                      buffers
	features, context, hidden kernels.Buf
	normed, logits            kernels.Buf
}

var _ backbone = (*spark)(nil)

// open implements blockHead.
func (h *sparkHead) open(rows, spans int) (backbone, error) {
	hid := h.m.Config.HiddenSize
	t := &spark{sparkHead: h, bufs: buffers{be: h.m.be}}
	var err error
	if t.s, err = newScratch(h.m.be, rows, h.m.MaxTokens+ropeSlack, hid, h.w.blocks); err != nil {
		return nil, err
	}
	for _, b := range []*kernels.Buf{&t.features, &t.context, &t.hidden} {
		*b = t.bufs.alloc(kernels.BF16, rows, hid)
	}
	t.normed, t.logits = t.bufs.alloc(kernels.BF16, spans, hid), t.bufs.alloc(kernels.F32, spans, h.m.Config.VocabSize)
	if t.bufs.err != nil {
		t.Close()
		return nil, t.bufs.err
	}
	return t, nil
}

// Close implements backbone.
func (t *spark) Close() {
	t.s.free()
	t.bufs.free()
}

// Context implements backbone.
func (t *spark) Context(q kernels.Queue, b *kernels.Batch, layer func(i int) kernels.Layer, taps kernels.Buf) {
	c := t.context.Top(b.Rows)
	q.MatMul(t.features.Top(b.Rows), t.w.proj, taps, kernels.Linear{})
	q.Norm(c, t.features.Top(b.Rows), t.w.mainNorm)
	for i, bl := range t.w.blocks {
		bl.pooled.keep(q, b, layer(i), c, &t.s.pooled)
	}
}

// Forward implements backbone.
func (t *spark) Forward(q kernels.Queue, b *kernels.Batch, layer func(i int) kernels.Layer) kernels.Buf {
	t.m.begin(q, &t.s, b.Token)
	for i, bl := range t.w.blocks {
		bl.forward(q, b, layer(i), &t.s)
	}
	hidden := t.hidden.Top(b.Rows)
	t.w.mixer.collapse(q, hidden, t.s.streams.x.Top(b.Rows), &t.s.streams)
	return hidden
}

// Drafted implements backbone.
func (t *spark) Drafted() int { return t.m.Config.VocabSize }

// Logits implements backbone.
func (t *spark) Logits(q kernels.Queue, hidden kernels.Buf) kernels.Buf {
	n := int(hidden.Rows)
	normed, logits := t.normed.Top(n), t.logits.Top(n)
	q.Norm(normed, hidden, t.w.norm)
	q.MatMul(logits, t.m.head, normed, kernels.Linear{})
	return logits
}
