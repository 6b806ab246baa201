package fakeserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"exacta.dev/exacta/acceptance/outside"
)

// Fault is what a server does wrong.
type Fault string

// Faults. The empty one is an honest server.
const (
	WrongToken    Fault = "wrong token"    // one token of each answer is another
	AfterStop     Fault = "after stop"     // two tokens behind the stop token
	Inflated      Fault = "inflated"       // accepted drafts are counted 8 % too high
	FewerSteps    Fault = "fewer steps"    // 8 % too many accepted, steps made up to agree
	ByCap         Fault = "by cap"         // drafts are counted as k by step
	BonusAccepted Fault = "bonus accepted" // the bonus counts as an accepted draft
	OffByOne      Fault = "off by one"     // histogram and positions are shifted
	Stuck         Fault = "stuck"          // counters don't move
	OneByOne      Fault = "one by one"     // tokens are decoded plainly and sent in bursts
	LessWork      Fault = "less work"      // steps take 8 % less
	Foreign       Fault = "foreign"        // another client's requests are counted too
)

// Server speaks a dialect. Its fields may not change while it serves.
type Server struct {
	Dialect outside.Dialect
	Script  Script
	Fault   Fault
	// K is the draft length that is reported.
	K int
	// Vocab is reported by llama-server.
	Vocab int
	// StepTime is how long a step takes, PrefillTime a prompt.
	StepTime, PrefillTime time.Duration
	// FirstFree leaves the first token out of the speed, as newer llama.cpp does.
	FirstFree bool
	// PerRequest sends what --per-request-spec-decode-metrics of vLLM adds.
	PerRequest bool
	// NoSwitch makes llama-server take a request's switch of speculation
	// without heeding it.
	NoSwitch bool
	// TextOnly refuses token ids as a prompt, as some bare servers do; they are
	// made from the text by Encode.
	TextOnly bool
	Encode   func(text string) []int32

	// NoMetrics leaves /metrics out, HTMLMetrics answers it with a page.
	NoMetrics, HTMLMetrics bool
	// Status, HTML, Cut, Endless and Silent make generation answer with a
	// status, a page, a stream that ends in its middle, a body without end,
	// or nothing more after the first piece.
	Status                     int
	HTML, Cut, Endless, Silent bool

	mu sync.Mutex
	n  counts
}

// counts are the true counters.
type counts struct {
	steps, all, proposed, accepted int64
	positions                      []int64
	generated, prompt              int64
	stop, length                   int64
	seconds                        float64
	passes                         int64
}

// Handler serves.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", s.models)
	if !s.NoMetrics {
		mux.HandleFunc("GET /metrics", s.metrics)
	}
	path := map[outside.Dialect]string{outside.SGLang: "/generate", outside.LlamaCpp: "/completion"}[s.Dialect]
	if path == "" {
		path = "/v1/completions"
	}
	mux.HandleFunc("POST "+path, s.generate)
	if s.Dialect == outside.SGLang {
		mux.HandleFunc("GET /server_info", func(w http.ResponseWriter, _ *http.Request) {
			reply(w, map[string]any{"speculative_num_steps": s.K})
		})
	}
	return mux
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// The client may have gone; there is nobody to tell.
	_ = json.NewEncoder(w).Encode(v)
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	m := map[string]any{"id": "toy", "object": "model", "owned_by": string(s.Dialect)}
	if s.Dialect == outside.LlamaCpp {
		m["meta"] = map[string]any{"n_vocab": s.Vocab}
	}
	reply(w, map[string]any{"object": "list", "data": []any{m}})
}

// asked is a request of any dialect.
type asked struct {
	Prompt    json.RawMessage `json:"prompt"`
	InputIDs  []int32         `json:"input_ids"`
	MaxTokens int             `json:"max_tokens"`
	NPredict  int             `json:"n_predict"`
	Sampling  struct {
		Max int `json:"max_new_tokens"`
	} `json:"sampling_params"`
	NMax *int `json:"speculative.n_max"`
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.Status != 0:
		w.WriteHeader(s.Status)
		reply(w, map[string]any{"error": map[string]any{"message": "as told", "code": s.Status}})
		return
	case s.HTML:
		fmt.Fprint(w, "<!DOCTYPE html><html><body>a page</body></html>")
		return
	case s.Endless:
		for range 1 << 10 {
			if _, err := w.Write(make([]byte, 1<<17)); err != nil {
				return
			}
		}
		return
	}
	body, err := io.ReadAll(r.Body)
	var q asked
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	ids := q.InputIDs
	if err == nil && ids == nil && json.Unmarshal(q.Prompt, &ids) != nil {
		var text string
		if err = json.Unmarshal(q.Prompt, &text); err == nil && s.Encode != nil {
			ids = s.Encode(text)
		}
	} else if s.TextOnly {
		err = fmt.Errorf("prompt must be text")
	}
	maxTokens := max(q.MaxTokens, q.NPredict, q.Sampling.Max)
	var t *Trace
	if err == nil && len(ids) > 0 {
		t = s.Script.Trace(ids, maxTokens, q.NMax != nil && *q.NMax == 0 && !s.NoSwitch)
	}
	if t == nil {
		w.WriteHeader(http.StatusBadRequest)
		reply(w, map[string]any{"error": map[string]any{"message": fmt.Sprintf("a bad prompt: %v", err)}})
		return
	}
	s.play(w, r, ids, s.spoil(t))
}

// spoil changes a trace's tokens where the fault is one of decoding.
func (s *Server) spoil(t *Trace) *Trace {
	out := &Trace{First: t.First, Finish: t.Finish}
	for _, st := range t.Steps {
		st.Emitted = slices.Clone(st.Emitted)
		out.Steps = append(out.Steps, st)
	}
	n := len(out.Steps)
	switch {
	case s.Fault == WrongToken && n > 2:
		e := out.Steps[n/2].Emitted
		e[0] = (e[0]+17)%(vocabulary-1) + 1
	case s.Fault == AfterStop && n > 0 && t.Finish == "stop":
		e := &out.Steps[n-1].Emitted
		*e = append(*e, 5, 6)
	}
	return out
}

// play sends a trace at its times, and counts it.
func (s *Server) play(w http.ResponseWriter, r *http.Request, prompt []int32, t *Trace) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := s.writer(w, prompt, t)
	s.sleep(r, s.PrefillTime)
	out.piece([]int32{t.First}, len(t.Steps) == 0)
	begin := time.Now()
	for i, st := range t.Steps {
		if s.Silent && i > 0 {
			<-r.Context().Done()
			return
		}
		if s.Cut && i == len(t.Steps)/2 {
			panic(http.ErrAbortHandler)
		}
		d := s.StepTime
		switch s.Fault {
		case OneByOne:
			d *= time.Duration(len(st.Emitted))
		case LessWork:
			d = d * 92 / 100
		}
		s.sleep(r, d)
		out.piece(st.Emitted, i+1 == len(t.Steps))
	}
	s.count(prompt, t, time.Since(begin))
	out.end()
}

// sleep waits for a step's time.
func (s *Server) sleep(r *http.Request, d time.Duration) {
	select {
	case <-r.Context().Done():
	case <-time.After(d):
	}
}
