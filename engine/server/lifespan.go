package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"exacta.dev/exacta/engine"
)

// lifeSpan is the trace of a request: a span of its own, and in it one for each
// answer with the queue, the prefill and the decoding, which has an event for each
// step. The span's parent is the caller's (traceparent).
type lifeSpan struct {
	tracer trace.Tracer
	ctx    context.Context
	span   trace.Span
	steps  map[*job][]stepEvent
}

// stepEvent is a step of an answer.
type stepEvent struct {
	at                time.Time
	emitted, accepted int
}

// mostStepEvents bounds those of an answer.
const mostStepEvents = 1024

// startSpan begins the trace of a request.
func (s *Server) startSpan(r *http.Request) *lifeSpan {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := s.cfg.Tracer.Start(ctx, r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer))
	return &lifeSpan{tracer: s.cfg.Tracer, ctx: ctx, span: span, steps: map[*job][]stepEvent{}}
}

// describe says what the request asks for.
func (l *lifeSpan) describe(g *generation) {
	if !l.span.IsRecording() {
		return
	}
	l.span.SetAttributes(
		attribute.String("gen_ai.request.model", g.s.cfg.Model.Name), attribute.String("gen_ai.response.id", g.id),
		attribute.Int("gen_ai.request.choice.count", g.n), attribute.String("exacta.strategy", g.drafted.Strategy),
		attribute.Int("exacta.k", g.drafted.K), attribute.String("exacta.rule", g.drafted.rule.Name()),
	)
}

// step notes a step of an answer.
func (l *lifeSpan) step(j *job, e event) {
	if !l.span.IsRecording() || len(l.steps[j]) >= mostStepEvents {
		return
	}
	l.steps[j] = append(l.steps[j], stepEvent{e.at, len(e.ids), min(e.accepted, len(e.ids))})
}

// ended makes the spans of an answer, of which the times are known now.
func (l *lifeSpan) ended(j *job, end *ending) {
	if !l.span.IsRecording() {
		return
	}
	c := end.counts
	finished := c.Ended
	if finished.IsZero() {
		finished = time.Now()
	}
	ctx, span := l.tracer.Start(l.ctx, "answer", trace.WithTimestamp(j.arrived), trace.WithAttributes(
		attribute.String("exacta.request", j.req.ID), attribute.Int("gen_ai.usage.input_tokens", len(j.req.Prompt)),
		attribute.Int("gen_ai.usage.output_tokens", c.Emitted), attribute.String("exacta.finish", string(end.finish)),
		attribute.Int("exacta.drafted", c.Drafted), attribute.Int("exacta.accepted", c.Accepted), attribute.Bool("exacta.simulated", c.Simulated),
	))
	if end.finish == engine.FinishError {
		span.SetStatus(codes.Error, fmt.Sprint(end.err))
	}
	part := func(name string, from, to time.Time) trace.Span {
		if from.IsZero() || to.Before(from) {
			return nil
		}
		_, s := l.tracer.Start(ctx, name, trace.WithTimestamp(from))
		return s
	}
	queued := c.Scheduled
	if queued.IsZero() {
		queued = finished
	}
	if s := part("queue", j.arrived, queued); s != nil {
		s.End(trace.WithTimestamp(queued))
	}
	if s := part("prefill", c.Scheduled, c.First); s != nil {
		s.End(trace.WithTimestamp(c.First))
	}
	if s := part("decode", c.First, c.Last); s != nil {
		for _, e := range l.steps[j] {
			s.AddEvent("step", trace.WithTimestamp(e.at), trace.WithAttributes(attribute.Int("exacta.emitted", e.emitted), attribute.Int("exacta.accepted", e.accepted)))
		}
		s.End(trace.WithTimestamp(c.Last))
	}
	delete(l.steps, j)
	span.End(trace.WithTimestamp(finished))
}

// end ends the trace with the status of the answer.
func (l *lifeSpan) end(status int) {
	l.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		l.span.SetStatus(codes.Error, http.StatusText(status))
	}
	l.span.End()
}
