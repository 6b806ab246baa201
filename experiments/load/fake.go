package load

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"exacta.dev/exacta/acceptance/outside"
)

// Fake is a server that generates nothing: it answers completions of the OpenAI
// interface at a set pace, with made-up tokens, as a server of some dialect would
// send them. It stands in for servers that aren't there, and for ones that are fast
// enough to test the generator. What it is measured at means nothing.
type Fake struct {
	// Dialect is the server that it looks like.
	Dialect outside.Dialect
	// First is the time to the first token, Step that from one step to the
	// next, and PerStep the tokens of a step.
	First, Step time.Duration
	PerStep     int
	// Sequences is how many answers are under way at once; others wait. 0 does
	// not bound them.
	Sequences int
	// Info is what /v1/models says of the model beside its name.
	Info map[string]any
	// Times, if not nil, is told when each chunk had been written, of which
	// request.
	Times func(id string, at time.Time)

	places  chan struct{}
	count   atomic.Int64
	prompts atomic.Int64
	tokens  atomic.Int64
}

// fakeModel is the name of its model.
const fakeModel = "fake"

// Handler serves.
func (f *Fake) Handler() http.Handler {
	if f.Sequences > 0 {
		f.places = make(chan struct{}, f.Sequences)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		m := map[string]any{"id": fakeModel, "owned_by": string(f.Dialect)}
		for k, v := range f.Info {
			m[k] = v
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": []any{m}}) // a client that is gone hears nothing
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		for name, n := range map[string]*atomic.Int64{"prompt_tokens_total": &f.prompts, "generation_tokens_total": &f.tokens} {
			fmt.Fprintf(w, "%s:%s %d\n", f.Dialect, name, n.Load())
		}
	})
	mux.HandleFunc("POST "+completions, f.complete)
	return mux
}

// fakeRequest is what it reads of a request.
type fakeRequest struct {
	Prompt    any  `json:"prompt"`
	MaxTokens int  `json:"max_tokens"`
	IDs       bool `json:"return_token_ids"`
}

// complete answers a request.
func (f *Fake) complete(w http.ResponseWriter, r *http.Request) {
	var q fakeRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.MaxTokens < 1 {
		http.Error(w, `{"error": {"message": "no request"}}`, http.StatusBadRequest)
		return
	}
	if f.places != nil {
		select {
		case f.places <- struct{}{}:
			defer func() { <-f.places }()
		case <-r.Context().Done():
			return
		}
	}
	prompt := 0
	switch p := q.Prompt.(type) {
	case []any:
		prompt = len(p)
	case string:
		prompt = max(1, len(p)/4)
	}
	f.prompts.Add(int64(prompt))
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := w.(http.Flusher)
	flusher.Flush()
	id := strconv.FormatInt(f.count.Add(1), 10)
	next, timer := time.Now().Add(f.First), time.NewTimer(f.First)
	defer timer.Stop()
	var buf []byte
	for sent := 0; sent < q.MaxTokens; next = next.Add(f.Step) {
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
		n := min(f.PerStep, q.MaxTokens-sent)
		sent += n
		f.tokens.Add(int64(n))
		buf = f.chunk(buf[:0], &q, id, n, sent == q.MaxTokens)
		if _, err := w.Write(buf); err != nil {
			return
		}
		flusher.Flush()
		if f.Times != nil {
			f.Times(id, time.Now())
		}
	}
	fmt.Fprintf(w, "data: {\"id\":\"%s\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", id, prompt, q.MaxTokens)
}

// chunk makes the event of a step.
func (f *Fake) chunk(buf []byte, q *fakeRequest, id string, n int, last bool) []byte {
	buf = append(buf, `data: {"id":"`...)
	buf = append(buf, id...)
	buf = append(buf, `","choices":[{"index":0,"text":"`...)
	for range n {
		buf = append(buf, " token"...)
	}
	buf = append(buf, '"')
	if q.IDs {
		buf = append(buf, `,"token_ids":[`...)
		for i := range n {
			if i > 0 {
				buf = append(buf, ',')
			}
			buf = append(buf, "17"...)
		}
		buf = append(buf, ']')
	}
	if last {
		buf = append(buf, `,"finish_reason":"length"`...)
	}
	return append(buf, "}]}\n\n"...)
}
