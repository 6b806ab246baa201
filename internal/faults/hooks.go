package faults

import (
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// hooks is an interposer of functions; nil ones change nothing.
type hooks struct {
	engine.NoInterposer
	queue     func(kernels.Queue) kernels.Queue
	draft     func(seq *engine.Sequence, k int, d engine.Draft) engine.Draft
	span      func(seq *engine.Sequence, start int, tokens []int32) (int, []int32)
	logitRows func(seq *engine.Sequence, rows int) int
	verdict   func(seq *engine.Sequence, v *engine.Verification, d engine.Verdict) engine.Verdict
	emit      func(seq *engine.Sequence, decided, emit []int32, why engine.Finish) ([]int32, engine.Finish)
	keep      func(seq *engine.Sequence, rows, kept int) int
	keys      func(seq *engine.Sequence, tokens []int32) []int32
	count     func(seq *engine.Sequence, r *engine.Record)
}

var _ engine.Interposer = (*hooks)(nil)

// Queue implements engine.Interposer.
func (h *hooks) Queue(q kernels.Queue) kernels.Queue {
	if h.queue == nil {
		return q
	}
	return h.queue(q)
}

// Draft implements engine.Interposer.
func (h *hooks) Draft(seq *engine.Sequence, k int, d engine.Draft) engine.Draft {
	if h.draft == nil {
		return d
	}
	return h.draft(seq, k, d)
}

// Span implements engine.Interposer.
func (h *hooks) Span(seq *engine.Sequence, start int, tokens []int32) (int, []int32) {
	if h.span == nil {
		return start, tokens
	}
	return h.span(seq, start, tokens)
}

// LogitRows implements engine.Interposer.
func (h *hooks) LogitRows(seq *engine.Sequence, rows int) int {
	if h.logitRows == nil {
		return rows
	}
	return h.logitRows(seq, rows)
}

// Verdict implements engine.Interposer.
func (h *hooks) Verdict(seq *engine.Sequence, v *engine.Verification, d engine.Verdict) engine.Verdict {
	if h.verdict == nil {
		return d
	}
	return h.verdict(seq, v, d)
}

// Emit implements engine.Interposer.
func (h *hooks) Emit(seq *engine.Sequence, decided, emit []int32, why engine.Finish) ([]int32, engine.Finish) {
	if h.emit == nil {
		return emit, why
	}
	return h.emit(seq, decided, emit, why)
}

// Keep implements engine.Interposer.
func (h *hooks) Keep(seq *engine.Sequence, rows, kept int) int {
	if h.keep == nil {
		return kept
	}
	return h.keep(seq, rows, kept)
}

// Keys implements engine.Interposer.
func (h *hooks) Keys(seq *engine.Sequence, tokens []int32) []int32 {
	if h.keys == nil {
		return tokens
	}
	return h.keys(seq, tokens)
}

// Count implements engine.Interposer.
func (h *hooks) Count(seq *engine.Sequence, r *engine.Record) {
	if h.count != nil {
		h.count(seq, r)
	}
}
