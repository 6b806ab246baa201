package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/server"
)

type limitsOf = server.Limits

func limits(set func(l *limitsOf)) func(c *server.Config) {
	return func(c *server.Config) { set(&c.Limits) }
}

func jsonBody(text []byte) io.Reader { return bytes.NewReader(text) }

func containsLine(text []byte, line string) bool {
	return slices.Contains(strings.Split(string(text), "\n"), line)
}

// Keys let their holders in, each within its own limits.
func TestKeys(t *testing.T) {
	r := newRig(t, options{slow: time.Millisecond, change: func(c *server.Config) {
		c.Keys = []server.Key{
			{Name: "ann", Hash: sha256.Sum256([]byte("key-ann")), InFlight: 1},
			{Name: "bob", Hash: sha256.Sum256([]byte("key-bob")), TokensPerMinute: 60},
		}
	}})
	q := js{"prompt": code, "max_tokens": 40, "ignore_eos": true}
	post := func(key string, q any) (int, []byte, http.Header) {
		return r.do(http.MethodPost, "/v1/completions", q, "Authorization", key)
	}
	for _, key := range []string{"", "key-ann", "Bearer", "Bearer key-an", "Bearer key-annn", "Basic key-ann"} {
		status, text, h := post(key, q)
		require.Equal(t, 401, status, "%q: %s", key, text)
		require.NotContains(t, string(text), "ann")
		require.Equal(t, "Bearer", h.Get("WWW-Authenticate"))
	}
	status, _, _ := r.do("GET", "/v1/models", nil)
	require.Equal(t, 401, status)
	for _, open := range []string{"/health", "/ready", "/metrics", "/version"} {
		status, _, _ := r.do("GET", open, nil)
		require.Equal(t, 200, status, open)
	}
	status, text, _ := post("bearer key-ann", q)
	require.Equal(t, 200, status, "%s", text)

	var wg sync.WaitGroup
	codes := make(chan int, 8)
	for range 8 {
		wg.Go(func() {
			status, _, _, err := r.try(context.Background(), http.MethodPost, "/v1/completions", js{"prompt": code, "max_tokens": 200, "ignore_eos": true}, "Authorization", "Bearer key-ann")
			if err == nil {
				codes <- status
			}
		})
	}
	wg.Wait()
	close(codes)
	seen := map[int]int{}
	for c := range codes {
		seen[c]++
	}
	require.Positive(t, seen[200])
	require.Positive(t, seen[429])
	require.Equal(t, 8, seen[200]+seen[429])
	status, text, _ = post("Bearer key-ann", q)
	require.Equal(t, 200, status, "all slots are given back: %s", text)

	status, text, _ = post("Bearer key-bob", q) // 12 and 40 tokens
	require.Equal(t, 200, status, "%s", text)
	status, text, h := post("Bearer key-bob", q)
	require.Equal(t, 429, status, "%s", text)
	require.NotEmpty(t, h.Get("Retry-After"))
	status, text, _ = post("Bearer key-bob", js{"prompt": strings.Repeat("a b c ", 60), "max_tokens": 1})
	require.Equal(t, 429, status, "%s", text)
}

// Other origins are let in only where the server says so.
func TestCORS(t *testing.T) {
	r := newRig(t, options{})
	_, _, h := r.do("GET", "/v1/models", nil, "Origin", "http://evil.test")
	require.Empty(t, h.Get("Access-Control-Allow-Origin"))
	r = newRig(t, options{change: func(c *server.Config) { c.Origins = []string{"http://good.test"} }})
	_, _, h = r.do("GET", "/v1/models", nil, "Origin", "http://evil.test")
	require.Empty(t, h.Get("Access-Control-Allow-Origin"))
	status, _, h := r.do("OPTIONS", "/v1/completions", nil, "Origin", "http://good.test")
	require.Equal(t, 204, status)
	require.Equal(t, "http://good.test", h.Get("Access-Control-Allow-Origin"))
}

// A server that drains finishes what it has, takes no more, and is alive but not
// ready; one that closes cancels the rest.
func TestDrain(t *testing.T) {
	r := newRig(t, options{slow: time.Millisecond})
	answer := make(chan js, 1)
	go func() {
		status, text, _, err := r.try(context.Background(), http.MethodPost, "/v1/completions", js{"prompt": code, "max_tokens": 300, "ignore_eos": true})
		answer <- js{"status": status, "text": string(text), "err": err}
	}()
	require.Eventually(t, func() bool { return r.s.OpenAnswers() == 1 }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.s.Drain(ctx), context.DeadlineExceeded)
	status, _, _ := r.do("GET", "/ready", nil)
	require.Equal(t, 503, status)
	status, _, _ = r.do("GET", "/health", nil)
	require.Equal(t, 200, status)
	status, _, h := r.do(http.MethodPost, "/v1/completions", js{"prompt": code})
	require.Equal(t, 503, status)
	require.NotEmpty(t, h.Get("Retry-After"))
	require.NoError(t, r.s.Drain(context.Background()))
	require.Equal(t, 200, (<-answer)["status"])

	r = newRig(t, options{slow: time.Millisecond})
	go func() {
		status, text, _, err := r.try(context.Background(), http.MethodPost, "/v1/completions", js{"prompt": code, "max_tokens": 480, "ignore_eos": true})
		answer <- js{"status": status, "text": string(text), "err": err}
	}()
	require.Eventually(t, func() bool { return r.s.OpenAnswers() == 1 }, 10*time.Second, time.Millisecond)
	require.NoError(t, r.s.Close())
	got := <-answer
	require.Equal(t, 503, got["status"], "%v", got)
	require.Contains(t, got["text"], "shutting down")
}

// An engine that fails takes the server down in order: every client is told, and so
// is who watches.
func TestEngineFails(t *testing.T) {
	r := newRig(t, options{})
	r.log.mu.Lock()
	r.log.fail = errors.New("disk on fire at /secret/path")
	r.log.mu.Unlock()
	status, text, _ := r.do(http.MethodPost, "/v1/completions", js{"prompt": code, "max_tokens": 20})
	require.Equal(t, 503, status)
	require.NotContains(t, string(text), "secret")
	<-r.s.Dead()
	for _, path := range []string{"/health", "/ready"} {
		status, _, _ = r.do("GET", path, nil)
		require.Equal(t, 503, status)
	}
	status, _, _ = r.do(http.MethodPost, "/v1/completions", js{"prompt": code, "max_tokens": 20})
	require.Equal(t, 503, status)
	r.dead = true
}

// The log has a line for each request, without its text unless asked.
func TestLog(t *testing.T) {
	for _, text := range []bool{false, true} {
		var out bytes.Buffer
		var mu sync.Mutex
		r := newRig(t, options{change: func(c *server.Config) {
			c.Logger, c.LogText = slog.New(slog.NewJSONHandler(lockedWriter{&mu, &out}, nil)), text
		}})
		r.ask("/v1/completions", js{"prompt": "package xylophone", "max_tokens": 4})
		r.refuse("/v1/completions", js{"prompt": "package xylophone", "n": -1}, 400, "n")
		mu.Lock()
		require.Equal(t, 1, strings.Count(out.String(), `"msg":"request"`), out.String())
		require.Equal(t, text, strings.Contains(out.String(), "xylophone"), out.String())
		require.Contains(t, out.String(), `"answer_tokens":4`)
		mu.Unlock()
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// The trace of a request is a child of the caller's, with queue, prefill and
// decoding, and an event for each step.
func TestTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	r := newRig(t, options{change: func(c *server.Config) { c.Tracer = p.Tracer("test") }})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	status, _, _ := r.do(http.MethodPost, "/v1/completions", js{"prompt": code, "max_tokens": 20, "ignore_eos": true}, "traceparent", parent)
	require.Equal(t, 200, status)
	require.Eventually(t, func() bool { return len(spans.Ended()) == 5 }, 10*time.Second, time.Millisecond)
	names := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		names[s.Name()] = s
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", s.SpanContext().TraceID().String())
	}
	root := names["POST /v1/completions"]
	require.Equal(t, "b7ad6b7169203331", root.Parent().SpanID().String())
	require.Equal(t, root.SpanContext().SpanID(), names["answer"].Parent().SpanID())
	for _, part := range []string{"queue", "prefill", "decode"} {
		require.Equal(t, names["answer"].SpanContext().SpanID(), names[part].Parent().SpanID())
		require.False(t, names[part].EndTime().Before(names[part].StartTime()))
	}
	require.Greater(t, len(names["decode"].Events()), 4)
}

// More answers than the server holds are refused at once.
func TestOverload(t *testing.T) {
	r := newRig(t, options{slow: time.Millisecond, change: limits(func(l *limitsOf) { l.Open = 2 })})
	codes := make(chan int, 6)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			status, _, _, err := r.try(context.Background(), http.MethodPost, "/v1/completions", js{"prompt": code, "max_tokens": 100, "ignore_eos": true})
			if err == nil {
				codes <- status
			}
		})
	}
	wg.Wait()
	close(codes)
	seen := map[int]int{}
	for c := range codes {
		seen[c]++
	}
	require.Positive(t, seen[200])
	require.Equal(t, 6, seen[200]+seen[503])
	r.ask("/v1/completions", js{"prompt": code, "max_tokens": 3})
}

// Keys have caches of their own, unless they are shared; a salt separates within.
func TestCacheSalt(t *testing.T) {
	for _, share := range []bool{false, true} {
		r := newRig(t, options{engine: engine.Config{PrefixCache: true}, change: func(c *server.Config) {
			c.ShareCache = share
			c.Keys = []server.Key{{Name: "a", Hash: sha256.Sum256([]byte("a"))}, {Name: "b", Hash: sha256.Sum256([]byte("b"))}}
		}})
		cached := func(key, salt string) float64 {
			status, text, _ := r.do(http.MethodPost, "/v1/completions", js{"prompt": strings.Repeat(code, 12), "max_tokens": 2, "cache_salt": salt}, "Authorization", "Bearer "+key)
			require.Equal(t, 200, status, "%s", text)
			return decode(t, text)["usage"].(js)["prompt_tokens_details"].(js)["cached_tokens"].(float64)
		}
		require.Zero(t, cached("a", ""))
		require.Positive(t, cached("a", ""))
		require.Equal(t, share, cached("b", "") > 0)
		require.Zero(t, cached("a", "s"))
		require.Positive(t, cached("a", "s"))
	}
}

// What a session's request computed outlives that of strangers who came after it.
func TestSessionKeepsItsPages(t *testing.T) {
	for _, session := range []string{"", "talk"} {
		r := newRig(t, options{engine: engine.Config{MaxSequences: 2, PrefixCache: true, Snapshots: 4}})
		cached := func(prompt, session string) float64 {
			answer := r.ask("/v1/completions", js{"prompt": prompt, "max_tokens": 2, "session_id": session, "priority": 3})
			return answer["usage"].(js)["prompt_tokens_details"].(js)["cached_tokens"].(float64)
		}
		require.Zero(t, cached(strings.Repeat(code, 12), session))
		for i := range 6 {
			require.Zero(t, cached(strings.Repeat(strconv.Itoa(i)+code, 12), ""))
		}
		require.Equal(t, session != "", cached(strings.Repeat(code, 12), session) > 0)
	}
}

// Answers may take longer than the time that a server has for reading requests, and
// for writing to a client, and connections may be idle between.
func TestTimeouts(t *testing.T) {
	r := newRig(t, options{slow: 3 * time.Millisecond, change: limits(func(l *limitsOf) { l.Write = 60 * time.Millisecond })})
	web := httptest.NewUnstartedServer(r.s)
	web.Config.ReadTimeout = 50 * time.Millisecond
	web.Start()
	defer web.Close()
	plain := r.http
	r.http = web
	defer func() { r.http = plain }()
	for _, stream := range []bool{false, true, false} {
		status, text, _ := r.do(http.MethodPost, "/v1/completions", js{"prompt": code, "max_tokens": 100, "ignore_eos": true, "stream": stream, "speculation": js{"strategy": "none"}})
		require.Equal(t, 200, status, "%s", text)
		if stream {
			list, err := events(text)
			require.NoError(t, err)
			_, finish, _ := joined(list, 0)
			require.Equal(t, "length", finish)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A clock that jumps, forwards and back, changes no answer and leaves the metrics
// numbers.
func TestClockJumps(t *testing.T) {
	q := js{"prompt": code, "max_tokens": 40, "ignore_eos": true, "temperature": 0.7, "seed": 4}
	want := textOf(newRig(t, options{}).ask("/v1/completions", q))
	var now atomic.Int64
	jumps := rand.New(rand.NewPCG(1, 2))
	r := newRig(t, options{engine: engine.Config{Now: func() int64 { return now.Add(jumps.Int64N(int64(2*time.Hour)) - int64(time.Hour)) }}})
	for range 3 {
		require.Equal(t, want, textOf(r.ask("/v1/completions", q)))
	}
	_, text, _ := r.do("GET", "/metrics", nil)
	require.NotContains(t, string(text), "NaN")
	require.True(t, containsLine(text, `vllm:request_success_total{engine="0",finished_reason="length",model_name="embedded"} 3`))
}
