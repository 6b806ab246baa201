package engine

import (
	"slices"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// passKey is the shape of a batch: what a captured pass depends on beside the tables.
type passKey struct{ spans, rows, logits, maxLen int }

// pass is a target pass over a batch of a shape, captured when the shape came again.
type pass struct {
	program kernels.Program
	out     model.Output
}

// mostPasses bounds the shapes of which an engine keeps a pass.
const mostPasses = 512

// graphs says whether passes are captured: on a backend where that pays, in an engine
// that runs alone and whole.
func (e *Engine) graphs() bool {
	_, whole := e.cfg.Interposer.(NoInterposer)
	return whole && !e.cfg.several() && e.be.Info().Graphs
}

// pass records the target's pass over a batch and the statistics of its logits. Steps
// that only decode come again in the same shapes: their passes are captured, with no
// row added, so that work and results are those of a pass that is not.
func (e *Engine) pass(b kernels.Batch) (model.Output, error) {
	if e.passes == nil || e.w.prefill > 0 {
		return e.forward(e.q, &b), nil
	}
	key := passKey{b.Spans, b.Rows, b.LogitRows, b.MaxLen}
	p, again := e.passes[key]
	switch {
	case !again && len(e.passes) < mostPasses:
		e.passes[key] = nil
		fallthrough
	case !again:
		return e.forward(e.q, &b), nil
	case p == nil:
		p = &pass{}
		var err error
		p.program, err = e.q.Capture(kernels.GraphKey{Name: "pass", Spans: b.Spans, Rows: b.Rows}, func(q kernels.Queue) {
			p.out = e.forward(q, &b)
			p.out.Taps = slices.Clone(p.out.Taps)
		})
		if err != nil {
			return model.Output{}, err
		}
		e.passes[key] = p
	}
	e.q.Run(p.program)
	return p.out, nil
}

func (e *Engine) forward(q kernels.Queue, b *kernels.Batch) model.Output {
	out := e.m.Forward(q, b, e.caches)
	if b.LogitRows > 0 {
		q.Stats(e.stats.Top(b.LogitRows), out.Logits, e.cfg.Vocab, !e.cfg.NoHash)
	}
	return out
}
