package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
)

// mixed is request i of a mix of lengths, strategies, rules, seeds and formats.
func mixed(i int) js {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	ids := make([]int, 10+r.IntN(180))
	for j := range ids {
		ids[j] = 100 + r.IntN(3000)
	}
	if i%3 == 0 { // of a shared beginning
		for j := range min(len(ids), 128) {
			ids[j] = 200 + j
		}
	}
	q := js{"prompt": ids, "max_tokens": 4 + r.IntN(60), "return_token_ids": true, "seed": i, "ignore_eos": i%2 == 0}
	if i%2 == 1 {
		q["temperature"], q["top_p"] = 0.9, 0.95
	}
	if i%2 == 0 { // these grow, so that memory runs out
		q["prompt"], q["max_tokens"] = ids[:min(len(ids), 30)], 140
	}
	switch i % 5 {
	case 0:
		q["speculation"] = js{"strategy": "none"}
	case 1:
		q["speculation"] = js{"strategy": "ngram", "k": 5}
	case 2:
		q["speculation"] = js{"k": 1 + r.IntN(8)}
	}
	switch i % 7 {
	case 1:
		q["repetition_penalty"] = 1.2
	case 2:
		q["stop"] = []string{"\n", "}"}
	case 3:
		q["structured_outputs"] = js{"regex": `[a-z ]{5,40}`}
	}
	return q
}

// Whatever else a server does, every answer is that of the request alone: 200
// clients at a time, preemptions, cache hits, streams, and clients that go away.
func TestDeterminismUnderLoad(t *testing.T) {
	const clients, distinct = 200, 40
	r := newRig(t, options{gate: 150, engine: engine.Config{MaxSequences: 16, Pages: 9, ExpectedOutput: -1, PrefixCache: true, Chunk: 64, BatchTokens: 256}})
	answers := make([]js, clients)
	var wg sync.WaitGroup
	errs := make(chan error, clients)
	for c := range clients {
		wg.Go(func() {
			q := mixed(c % distinct)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			gone := c%9 == 8
			if gone {
				q["stream"] = true
				time.AfterFunc(time.Duration(c)*3*time.Millisecond, cancel)
			}
			status, text, _, err := r.try(ctx, http.MethodPost, "/v1/completions", q)
			switch {
			case gone:
			case err != nil:
				errs <- err
			case status != http.StatusOK:
				errs <- fmt.Errorf("%d: %s", status, text)
			default:
				var v js
				if err := json.Unmarshal(text, &v); err != nil {
					errs <- err
				}
				answers[c] = v
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	preempted, cached := int32(0), int32(0)
	r.log.mu.Lock()
	for _, rec := range r.log.records {
		preempted, cached = max(preempted, rec.Preemptions), max(cached, rec.Cached)
	}
	r.log.mu.Unlock()
	require.Positive(t, preempted, "the test is to preempt")
	require.Positive(t, cached, "the test is to hit the cache")
	for i := range distinct {
		alone := r.ask("/v1/completions", mixed(i))
		for c := i; c < clients; c += distinct {
			if a := answers[c]; a != nil {
				require.Equal(t, choice(alone, 0)["token_ids"], choice(a, 0)["token_ids"], "request %d of client %d", i, c)
				require.Equal(t, textOf(alone), textOf(a))
				require.Equal(t, choice(alone, 0)["finish_reason"], choice(a, 0)["finish_reason"])
			}
		}
	}
}

// A client that goes away has its request cancelled; the next one's is not touched.
func TestClientGone(t *testing.T) {
	r := newRig(t, options{slow: 2 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	body, err := json.Marshal(js{"prompt": code, "max_tokens": 480, "ignore_eos": true, "stream": true, "speculation": js{"strategy": "none"}})
	require.NoError(t, err)
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.http.URL+"/v1/completions", jsonBody(body))
	require.NoError(t, err)
	a, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	one := make([]byte, 10)
	_, err = a.Body.Read(one)
	require.NoError(t, err)
	cancel()
	a.Body.Close()
	require.Eventually(t, func() bool { return r.s.OpenAnswers() == 0 }, 20*time.Second, time.Millisecond)
	r.log.mu.Lock()
	require.Len(t, r.log.ended, 1)
	for _, e := range r.log.ended {
		require.Equal(t, engine.FinishCancel, e.Finish)
		require.Less(t, len(e.Output), 480)
		require.NotEmpty(t, e.Output)
	}
	r.log.mu.Unlock()
	require.Equal(t, "length", choice(r.ask("/v1/completions", js{"prompt": code, "max_tokens": 5, "ignore_eos": true}), 0)["finish_reason"])
}

// stuckWriter is a client that reads nothing after the header.
type stuckWriter struct {
	header http.Header
	free   chan struct{}
	writes chan int
}

func (w *stuckWriter) Header() http.Header { return w.header }
func (w *stuckWriter) WriteHeader(int)     {}
func (w *stuckWriter) Flush()              {}
func (w *stuckWriter) Write(p []byte) (int, error) {
	w.writes <- len(p)
	<-w.free
	return 0, context.Canceled
}

// A client that does not read has its request cancelled once it is too far behind,
// and nobody else notices.
func TestSlowReader(t *testing.T) {
	r := newRig(t, options{engine: engineOf(4), change: limits(func(l *limitsOf) { l.Buffer = 5 })})
	w := &stuckWriter{header: http.Header{}, free: make(chan struct{}), writes: make(chan int, 1)}
	body, err := json.Marshal(js{"prompt": code, "max_tokens": 400, "ignore_eos": true, "stream": true})
	require.NoError(t, err)
	q, err := http.NewRequest(http.MethodPost, "/v1/completions", jsonBody(body))
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.s.ServeHTTP(w, q)
	}()
	<-w.writes // it is stuck now
	other := r.ask("/v1/completions", js{"prompt": code, "max_tokens": 100, "ignore_eos": true})
	require.EqualValues(t, 100, other["usage"].(js)["completion_tokens"])
	require.Eventually(t, func() bool {
		_, text, _ := r.do("GET", "/metrics", nil)
		return containsLine(text, "exacta_slow_readers_total 1")
	}, 20*time.Second, 5*time.Millisecond)
	close(w.free)
	<-done
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	// The other answer was in every step from its first to its last: it waited for
	// nobody.
	last, steps := int64(-1), 0
	for _, rec := range r.log.records {
		if strings.TrimSuffix(rec.Request[strings.LastIndex(rec.Request, "/")+1:], "-0") == strings.TrimPrefix(other["id"].(string), "cmpl-") {
			require.True(t, last < 0 || rec.Step == last+1, "step %d after step %d", rec.Step, last)
			last = rec.Step
			steps++
		}
	}
	require.Positive(t, steps)
	cut := 0
	for _, e := range r.log.ended {
		if e.Finish == engine.FinishCancel {
			cut++
			require.Less(t, len(e.Output), 100)
		}
	}
	require.Equal(t, 1, cut)
}
