package server

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/tokenizer"
)

// answers turn events into what a client is told.
type answers interface {
	// add takes an event of an answer that is told whole; body is then all.
	add(i int, e event)
	body(u *usage) map[string]any
	// chunks are the pieces that an event gives in a stream.
	chunks(i int, e event) []map[string]any
}

// head is what every answer begins with.
func (g *generation) head(object string) map[string]any {
	return map[string]any{
		"id": g.id, "object": object, "created": g.created, "model": g.s.cfg.Model.Name, "system_fingerprint": g.s.fingerprint,
	}
}

// decorate adds what a request asks for beside the text.
func (g *generation) decorate(choice map[string]any, ids []int32, steps []*stepView) {
	if g.c.ReturnTokenIDs && len(ids) > 0 {
		choice["token_ids"] = ids
	}
	if len(steps) == 0 {
		return
	}
	if t := g.s.cfg.Model.Tokenizer; t != nil {
		for _, v := range steps {
			v.EmittedText, v.ProposedText = spell(t, v.Emitted), spell(t, v.Proposed)
		}
	}
	choice["speculation"] = steps
}

// spell are the texts of tokens, each by itself.
func spell(t *tokenizer.Tokenizer, ids []int32) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = t.TokenText(id)
	}
	return texts
}

// answer runs a generation and tells the client, whole or in a stream.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, g *generation, a answers) (err error) {
	g.trace = spanOf(r)
	g.trace.describe(g)
	tokens := 0
	for _, p := range g.prompts {
		tokens += len(p)
	}
	if err := g.who.admit(tokens); err != nil {
		return err
	}
	if err := g.start(r.Context()); err != nil {
		return err
	}
	all := make([]counts, len(g.jobs))
	var failed error // of an answer
	note := func(i int, e event) {
		if e.end == nil {
			all[i].Emitted += len(e.ids)
			return
		}
		all[i] = e.end.counts
		if e.end.finish == engine.FinishError || e.end.finish == engine.FinishCancel {
			failed = errors.Join(failed, s.why(e.end))
		}
	}
	defer func() { s.line(r, g, all, err) }()
	if g.c.Stream {
		return s.stream(w, r, g, a, all, note, &failed)
	}
	err = g.follow(r.Context(), func(i int, e event) error {
		note(i, e)
		a.add(i, e)
		return nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	w.Header().Set("X-Request-Id", requestID(r, g.id))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cfg.Limits.Write))
	writeJSON(w, http.StatusOK, a.body(g.usage(all)))
	return nil
}

// why is the error of an answer that failed or was cancelled.
func (s *Server) why(e *ending) error {
	switch {
	case errors.Is(e.err, errDead):
		return e.err
	case e.finish == engine.FinishCancel && e.err.Error() == pastDeadline:
		return failure(http.StatusGatewayTimeout, serverError, "deadline_exceeded", "deadline_ms", "the answer was cancelled: %v", e.err)
	case e.finish == engine.FinishCancel:
		return failure(http.StatusServiceUnavailable, serverError, "cancelled", "", "the answer was cancelled: %v", e.err)
	}
	s.cfg.Logger.Warn("an answer failed", "error", e.err)
	return failure(http.StatusInternalServerError, serverError, "", "", "the answer failed: %v", refusalText(e.err))
}

// refusalText is an engine's error without the id that it begins with.
func refusalText(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// stream tells the answers as server-sent events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, g *generation, a answers, all []counts, note func(int, event), failed *error) error {
	out := &sse{w: w, rc: http.NewResponseController(w), limit: s.cfg.Limits.Write}
	w.Header().Set("X-Request-Id", requestID(r, g.id))
	if err := out.begin(); err != nil {
		g.abandon("client went away")
		return err
	}
	options := streamOptions{}
	if g.c.StreamOptions != nil {
		options = *g.c.StreamOptions
	}
	err := g.follow(r.Context(), func(i int, e event) error {
		note(i, e)
		for _, c := range a.chunks(i, e) {
			if options.ContinuousUsage {
				c["usage"] = g.usage(all)
			} else if options.IncludeUsage {
				c["usage"] = nil
			}
			if err := out.add(c); err != nil {
				return err
			}
		}
		return out.flush()
	})
	if err != nil {
		return err
	}
	if *failed != nil {
		e := asAPI(*failed)
		if err := out.add(map[string]any{"error": e}); err != nil {
			return err
		}
	} else if options.IncludeUsage {
		v := g.head(map[string]string{"chat": "chat.completion.chunk", "completion": "text_completion"}[g.kind])
		v["choices"], v["usage"] = []any{}, g.usage(all)
		if err := out.add(v); err != nil {
			return err
		}
	}
	return out.done()
}

// sse writes server-sent events. A client that does not read within the limit is
// given up.
type sse struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration
	buf   []byte
}

// begin sends the header.
func (o *sse) begin() error {
	h := o.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	o.w.WriteHeader(http.StatusOK)
	return o.rc.Flush()
}

// add puts an event into the buffer.
func (o *sse) add(v any) error {
	text, err := marshal(v)
	if err != nil {
		return err
	}
	o.buf = append(append(append(o.buf, "data: "...), text...), "\n\n"...)
	return nil
}

// flush sends what is in the buffer.
func (o *sse) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	// Some writers, of tests say, have no deadlines.
	_ = o.rc.SetWriteDeadline(time.Now().Add(o.limit))
	_, err := o.w.Write(o.buf)
	o.buf = o.buf[:0]
	if err != nil {
		return err
	}
	return o.rc.Flush()
}

// done ends the stream.
func (o *sse) done() error {
	o.buf = append(o.buf, "data: [DONE]\n\n"...)
	return o.flush()
}

// line writes the request's line into the log.
func (s *Server) line(r *http.Request, g *generation, all []counts, err error) {
	sum := counts{}
	for _, c := range all {
		sum = sum.plus(c)
	}
	prompt := 0
	for _, p := range g.prompts {
		prompt += len(p)
	}
	level, status := slog.LevelInfo, http.StatusOK
	if err != nil {
		status = asAPI(err).status
	}
	attrs := []any{
		"id", g.id, "path", r.URL.Path, "client", g.who.name(), "status", status, "stream", g.c.Stream, "answers", len(g.jobs), "prompt_tokens", prompt,
		"answer_tokens", sum.Emitted, "strategy", g.drafted.Strategy, "k", g.drafted.K, "rule", g.drafted.rule.Name(),
		"drafted", sum.Drafted, "accepted", sum.Accepted, "seconds", time.Since(g.arrived).Seconds(),
	}
	if first := all[0].First; !first.IsZero() {
		attrs = append(attrs, "ttft", first.Sub(g.arrived).Seconds())
	}
	if s.cfg.LogText && s.cfg.Model.Tokenizer != nil {
		attrs = append(attrs, "prompt", s.cfg.Model.Tokenizer.Decode(g.prompts[0], false), "answer", s.cfg.Model.Tokenizer.Decode(g.jobs[0].output, false))
	}
	s.cfg.Logger.Log(r.Context(), level, "request", attrs...)
}
