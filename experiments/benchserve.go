package experiments

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"exacta.dev/exacta/engine"
)

// BenchServeOptions say what exacta bench serve measures.
type BenchServeOptions struct {
	// URL of a server; empty starts one in this process, with Config.
	URL    string
	Config ServeConfig
	// Requests are asked over so many Connections, each asking one at a time.
	Requests, Connections int
	// PromptTokens and NewTokens of a request.
	PromptTokens, NewTokens int

	first int           // request, of all that there could be
	ended *atomic.Int64 // requests so far
}

// BenchServe is what was measured.
type BenchServe struct {
	URL         string  `json:"url"`
	Requests    int     `json:"requests"`
	Connections int     `json:"connections"`
	Errors      int     `json:"errors"`
	FirstError  string  `json:"first_error,omitempty"`
	Seconds     float64 `json:"seconds"`
	RequestsS   float64 `json:"requests_per_s"`
	TokS        float64 `json:"tok_s"` // of answers
	// TTFT and Latency are those of requests in milliseconds: median, 90 and 99
	// percent, and the largest.
	TTFT    [4]float64 `json:"ttft_ms"`
	Latency [4]float64 `json:"latency_ms"`
	// Passed are the requests that ended between one's asking and its first token:
	// median, 90 and 99 percent, most. Where they are admitted in order of arrival
	// it is fewer than Connections, however slow the machine.
	Passed [4]float64 `json:"ended_before_first_token"`
	// Of a server in this process: heap in use and goroutines after a tenth of
	// the requests and in the end, the clients' included; and goroutines when
	// server and clients have ended, less those before.
	HeapMB     [2]float64 `json:"heap_mb"`
	Goroutines [2]int     `json:"goroutines"`
	Left       int        `json:"goroutines_left"`
	// OfflineTokS is the rate of the same requests on an engine alone, with as
	// many sequences at once, and Ratio TokS over it.
	OfflineTokS float64 `json:"offline_tok_s"`
	Ratio       float64 `json:"ratio_to_offline"`
}

// answered is what a client saw of one request.
type answered struct {
	ttft, total time.Duration
	tokens      int
	passed      int64 // requests that ended before its first token
	err         error
}

// RunBenchServe puts load on a server and measures what its clients see.
func RunBenchServe(ctx context.Context, o BenchServeOptions, progress func(string)) (res *BenchServe, err error) {
	if o.Requests < 1 || o.Connections < 1 || o.PromptTokens < 1 || o.NewTokens < 1 {
		return nil, errors.New("bench serve: requests, connections, prompt and new tokens must be at least 1")
	}
	res = &BenchServe{URL: o.URL, Requests: o.Requests, Connections: min(o.Connections, o.Requests)}
	if o.URL != "" {
		return res, res.load(ctx, o, false, progress)
	}
	before := runtime.NumGoroutine()
	s, err := Serve(o.Config, ServeOptions{Version: "bench", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, s.Close())
		}
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	web := &http.Server{Handler: s}
	go func() { _ = web.Serve(l) }() // until it is closed
	o.URL, res.URL = "http://"+l.Addr().String(), "in this process"
	err = res.load(ctx, o, true, progress)
	err = errors.Join(err, web.Close(), s.Close())
	closed = true
	for wait := time.Now(); runtime.NumGoroutine() > before && time.Since(wait) < 5*time.Second; {
		time.Sleep(10 * time.Millisecond)
	}
	res.Left = max(0, runtime.NumGoroutine()-before) // fewer, where others ended meanwhile
	if err != nil {
		return nil, err
	}
	progress("the same requests on an engine alone")
	if res.OfflineTokS, err = offline(ctx, o); err != nil {
		return nil, err
	}
	res.Ratio = res.TokS / res.OfflineTokS
	return res, nil
}

// load asks all requests. inside says that the server is in this process.
func (res *BenchServe) load(ctx context.Context, o BenchServeOptions, inside bool, progress func(string)) error {
	transport := &http.Transport{MaxIdleConnsPerHost: res.Connections, MaxIdleConns: res.Connections}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	all := make([]answered, o.Requests)
	var next, done atomic.Int64
	o.ended = &atomic.Int64{}
	var clients sync.WaitGroup
	start := time.Now()
	for range res.Connections {
		clients.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= o.Requests || ctx.Err() != nil {
					return
				}
				all[i] = o.ask(ctx, client, i)
				n := int(done.Add(1))
				if n%500 == 0 {
					progress(fmt.Sprintf("%d of %d requests", n, o.Requests))
				}
				if at := slices.Index([]int{max(1, o.Requests/10), o.Requests - res.Connections/2}, n); at >= 0 && inside {
					res.HeapMB[at], res.Goroutines[at] = footprint()
				}
			}
		})
	}
	clients.Wait()
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	res.Seconds = time.Since(start).Seconds()
	res.sum(all)
	return nil
}

// footprint is the heap in use after a collection, in MB, and the goroutines.
func footprint() (float64, int) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6, runtime.NumGoroutine()
}

// sum works the figures out.
func (res *BenchServe) sum(all []answered) {
	var ttft, total, passed []float64
	tokens := 0
	for _, a := range all {
		if a.err != nil {
			if res.Errors++; res.FirstError == "" {
				res.FirstError = oneLine(a.err.Error())
			}
			continue
		}
		tokens += a.tokens
		ttft, total = append(ttft, a.ttft.Seconds()*1000), append(total, a.total.Seconds()*1000)
		passed = append(passed, float64(a.passed))
	}
	res.RequestsS, res.TokS = float64(len(total))/res.Seconds, float64(tokens)/res.Seconds
	res.TTFT, res.Latency, res.Passed = quantiles(ttft), quantiles(total), quantiles(passed)
}

// quantiles are the median, 90 and 99 percent, and the largest.
func quantiles(v []float64) (q [4]float64) {
	if len(v) == 0 {
		return q
	}
	slices.Sort(v)
	for i, share := range []float64{0.5, 0.9, 0.99, 1} {
		q[i] = v[int(share*float64(len(v)-1))]
	}
	return q
}

// prompt is the prompt of request i, of ids that every vocabulary has.
func (o *BenchServeOptions) prompt(i int) []int32 {
	ids := make([]int32, o.PromptTokens)
	x := uint32(o.first+i)*2654435761 + 1
	for j := range ids {
		x = x*1664525 + 1013904223
		ids[j] = 100 + int32(x>>16)%1000
	}
	return ids
}

// ask sends request i and reads its stream.
func (o *BenchServeOptions) ask(ctx context.Context, client *http.Client, i int) (a answered) {
	body, err := json.Marshal(map[string]any{
		"prompt": o.prompt(i), "max_tokens": o.NewTokens, "ignore_eos": true, "temperature": 0, "stream": true,
		"stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		return answered{err: err}
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(o.URL, "/")+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return answered{err: err}
	}
	q.Header.Set("Content-Type", "application/json")
	start, ended := time.Now(), o.ended.Load()
	r, err := client.Do(q)
	if err != nil {
		return answered{err: err}
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 300))
		return answered{err: fmt.Errorf("status %d: %s", r.StatusCode, text)}
	}
	in, done := bufio.NewScanner(r.Body), false
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			done = true
		default:
			if a.ttft == 0 {
				a.ttft, a.passed = time.Since(start), o.ended.Load()-ended
			}
			a.err = errors.Join(a.err, a.count(data))
		}
	}
	a.total = time.Since(start)
	o.ended.Add(1)
	switch {
	case a.err != nil:
	case in.Err() != nil:
		a.err = in.Err()
	case !done || a.tokens != o.NewTokens:
		a.err = fmt.Errorf("request %d: %d tokens of %d, ended: %v", i, a.tokens, o.NewTokens, done)
	}
	return a
}

// count takes the tokens of an answer from the event that tells its usage: with
// some servers the last piece, with others one more.
func (a *answered) count(data string) error {
	if !strings.Contains(data, `"usage":{`) {
		return nil
	}
	var v struct {
		Usage struct {
			Tokens int `json:"completion_tokens"`
		} `json:"usage"`
	}
	err := json.Unmarshal([]byte(data), &v)
	a.tokens = v.Usage.Tokens
	return err
}

// offline runs the same requests on an engine alone and returns its tokens per second.
func offline(ctx context.Context, o BenchServeOptions) (rate float64, err error) {
	cfg := o.Config
	s, err := openServe(&cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	served := &Served{session: s}
	tokens := 0
	e, err := served.engine(&cfg, engine.Listener{Emitted: func(_ *engine.Sequence, r *engine.Record) { tokens += int(r.Emitted()) }})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	first := cfg.strategy()
	drafter := first.Drafter
	if drafter == "none" {
		drafter = ""
	}
	start := time.Now()
	for i := range o.Requests {
		if _, err := e.Submit(engine.Request{ID: fmt.Sprint(i), Prompt: o.prompt(i), MaxNew: o.NewTokens, Drafter: drafter, K: first.K, IgnoreStop: true}); err != nil {
			return 0, err
		}
	}
	if err := e.Run(func() bool { return ctx.Err() != nil }); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, ErrInterrupted
	}
	return float64(tokens) / time.Since(start).Seconds(), nil
}
