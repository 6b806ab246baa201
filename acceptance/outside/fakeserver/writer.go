package fakeserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"exacta.dev/exacta/acceptance/outside"
)

// writer sends a trace in a dialect.
type writer struct {
	s      *Server
	w      http.ResponseWriter
	prompt []int32
	t      *Trace
	sent   []int32
	begin  time.Time
	buf    bytes.Buffer
}

func (s *Server) writer(w http.ResponseWriter, prompt []int32, t *Trace) *writer {
	return &writer{s: s, w: w, prompt: prompt, t: t, begin: time.Now()}
}

func (w *writer) event(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		text = fmt.Appendf(nil, "%q", err.Error())
	}
	fmt.Fprintf(&w.buf, "data: %s\n\n", text)
}

// flush sends what was written in one go: the bursts of a step arrive together.
func (w *writer) flush() {
	// The client may have gone; the next sleep notices.
	_, _ = w.w.Write(w.buf.Bytes())
	w.buf.Reset()
	_ = http.NewResponseController(w.w).Flush()
}

// finish is the finish reason of a piece, null but for the last.
func (w *writer) finish(last bool) any {
	if last {
		return w.t.Finish
	}
	return nil
}

// piece sends the tokens of a step.
func (w *writer) piece(ids []int32, last bool) {
	if len(w.sent) == 0 {
		w.begin = time.Now()
	}
	w.sent = append(w.sent, ids...)
	text := w.s.Script.Text(ids)
	switch w.s.Dialect {
	case outside.VLLM:
		w.event(map[string]any{"object": "text_completion", "choices": []any{map[string]any{"index": 0, "text": text, "token_ids": ids, "finish_reason": w.finish(last)}}})
	case outside.SGLang:
		w.event(map[string]any{"text": w.s.Script.Text(w.sent), "output_ids": w.sent, "meta_info": w.meta(last)})
	case outside.LlamaCpp:
		for _, id := range ids {
			if id == 0 && last && w.t.Finish == "stop" && w.s.Fault != AfterStop {
				break // llama-server doesn't send the token that ends a text
			}
			w.event(map[string]any{"index": 0, "content": w.s.Script.Text([]int32{id}), "tokens": []int32{id}, "stop": false})
		}
	default:
		w.event(map[string]any{"object": "text_completion", "choices": []any{map[string]any{"index": 0, "text": text, "finish_reason": w.finish(last)}}})
	}
	w.flush()
}

// stated is what the server says of this request.
func (w *writer) stated() (n counts, histogram []int64) {
	n = tally(w.t, w.s.K)
	histogram = make([]int64, w.s.K+1)
	for _, st := range w.t.Steps {
		if len(st.Offered) > 0 || w.s.Dialect == outside.SGLang {
			histogram[min(st.Accepted, w.s.K)]++
		}
	}
	if w.s.Dialect == outside.SGLang {
		n.steps = n.all
	}
	if w.s.Fault == OffByOne {
		histogram = append([]int64{0}, histogram...)[:w.s.K+2]
	}
	if w.s.Fault == Stuck {
		return n, histogram
	}
	return w.s.told(n), histogram
}

// meta is SGLang's meta_info.
func (w *writer) meta(last bool) map[string]any {
	m := map[string]any{"prompt_tokens": len(w.prompt), "completion_tokens": len(w.sent), "finish_reason": nil}
	if !last {
		return m
	}
	m["finish_reason"] = map[string]any{"type": w.t.Finish, "length": len(w.sent)}
	n, h := w.stated()
	if n.steps > 0 {
		m["spec_verify_ct"] = n.steps
		m["spec_accept_length"] = float64(len(w.sent)) / float64(n.steps)
		m["spec_accept_rate"] = float64(n.accepted) / float64(max(1, n.proposed))
		m["spec_num_correct_drafts"] = n.accepted
		m["spec_num_proposed_drafts"] = n.proposed
		m["spec_correct_drafts_histogram"] = h
	}
	return m
}

// end sends what comes behind the last piece.
func (w *writer) end() {
	used := map[string]any{"prompt_tokens": len(w.prompt), "completion_tokens": len(w.sent), "total_tokens": len(w.prompt) + len(w.sent)}
	switch w.s.Dialect {
	case outside.VLLM:
		e := map[string]any{"choices": []any{}, "usage": used}
		if w.s.PerRequest {
			n, h := w.stated()
			bins := map[string]int64{}
			for i, v := range h {
				bins[fmt.Sprint(i)] = v
			}
			e["metrics"] = map[string]any{"speculative_decoding": map[string]any{
				"mean_acceptance_length": 1 + float64(n.accepted)/float64(max(1, n.steps)), "draft_acceptance_rate": float64(n.accepted) / float64(max(1, n.proposed)),
				"acceptance_histogram": bins, "num_spec_steps": n.steps, "num_accepted_draft_tokens": n.accepted, "num_draft_tokens": n.proposed,
			}}
		}
		w.event(e)
	case outside.LlamaCpp:
		n, _ := w.stated()
		ms := float64(time.Since(w.begin)) / float64(time.Millisecond)
		counted := len(w.sent)
		if w.s.FirstFree {
			counted--
		}
		t := map[string]any{"predicted_n": len(w.sent), "predicted_ms": ms, "predicted_per_second": 1000 * float64(counted) / max(ms, 1e-6)}
		if n.proposed > 0 {
			t["draft_n"], t["draft_n_accepted"] = n.proposed, n.accepted
		}
		stop := "limit"
		if w.t.Finish == "stop" {
			stop = "eos"
		}
		w.event(map[string]any{"content": "", "tokens": []int32{}, "stop": true, "stop_type": stop, "tokens_predicted": len(w.sent), "tokens_evaluated": len(w.prompt), "timings": t})
	case outside.Unknown:
		w.event(map[string]any{"choices": []any{}, "usage": used})
	}
	w.sent = slices.Clip(w.sent)
	w.buf.WriteString("data: [DONE]\n\n")
	w.flush()
}
