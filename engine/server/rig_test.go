package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/chat"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/engine/server"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is the embedded model's files, for all tests.
var entry = sync.OnceValue(func() *registry.Entry {
	e, err := registry.Open(registry.Embedded)
	if err != nil {
		panic(err)
	}
	return e
})

// words are the embedded model's tokens, for grammars.
var words = sync.OnceValue(func() *grammar.Vocabulary {
	t := entry().Tokenizer
	tokens := make([][]byte, entry().Vocab())
	for id := range tokens {
		if id := int32(id); t.Known(id) && !t.IsSpecial(id) {
			tokens[id] = t.TokenBytes(id)
		}
	}
	return grammar.NewVocabulary(tokens, entry().Source.Config().EOS)
})

// rig is a server on the embedded model.
type rig struct {
	t    testing.TB
	s    *server.Server
	http *httptest.Server
	log  *memory
	dead bool // the engine is to have failed
}

// memory is a log that keeps all, with the records.
type memory struct {
	mu      sync.Mutex
	asked   map[string]*server.Asked
	ended   map[string]*server.Ended
	records []*engine.Record
	fail    error // of the next record
}

func (m *memory) Asked(a *server.Asked) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[a.Request.ID] = a
}

func (m *memory) Ended(e *server.Ended) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[e.ID] = e
}

func (m *memory) Record(r *engine.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
	return m.fail
}

// wait waits until n requests were asked.
func (m *memory) wait(n int) {
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		enough := len(m.asked) >= n || len(m.records) > 0
		m.mu.Unlock()
		if enough {
			return
		}
	}
}

// options of a rig.
type options struct {
	engine   engine.Config
	template string // a file of testdata
	change   func(c *server.Config)
	slow     time.Duration // of each step
	gate     int           // the first step ends when so many requests were asked
}

func newRig(t testing.TB, o options) *rig {
	t.Helper()
	e := entry()
	be, err := cpu.New(cpu.Options{Threads: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	if o.engine.MaxTokens == 0 {
		o.engine.MaxTokens = 512
	}
	m, err := model.Load(be, e.Source, model.Options{MaxTokens: o.engine.MaxTokens, MTP: true})
	require.NoError(t, err)
	r := &rig{t: t, log: &memory{asked: map[string]*server.Asked{}, ended: map[string]*server.Ended{}}}
	o.engine.Vocab = e.Vocab()
	cfg := server.Config{
		Model: server.Model{
			Name: "embedded", Tokenizer: e.Tokenizer, EOS: e.Source.Config().EOS, Tokens: words(), Vocab: e.Vocab(),
			Defaults: sample.Params{TopP: 1, RepetitionPenalty: 1},
		},
		Rule:    func(name string, _ int) (engine.Verifier, error) { return verify.New(name) },
		Default: server.Speculation{Strategy: "mtp", K: 3, Rule: "coupled"},
		Log:     r.log, Version: "test",
		Open: func(l engine.Listener) (*engine.Engine, error) {
			drafters := map[string]engine.Drafter{}
			for _, name := range []string{"mtp", "ngram"} {
				st, err := draft.New(name)
				if err != nil {
					return nil, err
				}
				if drafters[name], err = st.Provision(draft.Env{Backend: be, Model: m, Vocab: e.Vocab(), Tokenizer: e.Tokenizer}); err != nil {
					return nil, err
				}
			}
			rule, err := verify.New("coupled")
			if err != nil {
				return nil, err
			}
			rec := engine.RecorderFunc(func(rec *engine.Record) error {
				time.Sleep(o.slow)
				r.log.wait(o.gate)
				return r.log.Record(rec)
			})
			return engine.New(m, o.engine, drafters, rule, rec, l)
		},
	}
	if o.template != "" {
		text, err := os.ReadFile("testdata/" + o.template)
		require.NoError(t, err)
		tmpl, err := chat.Parse(o.template, string(text), nil)
		require.NoError(t, err)
		cfg.Model.Chat = chat.NewSet(tmpl)
	}
	if o.change != nil {
		o.change(&cfg)
	}
	r.s, err = server.New(cfg)
	require.NoError(t, err)
	r.http = httptest.NewServer(r.s)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, r.s.Drain(ctx), "answers are stuck")
		r.http.CloseClientConnections()
		r.http.Close()
		if err := r.s.Close(); !r.dead {
			require.NoError(t, err)
		}
		http.DefaultClient.CloseIdleConnections()
		require.Len(t, r.log.ended, len(r.log.asked), "every request that was asked has its end")
	})
	return r
}

// js is a JSON object.
type js = map[string]any

// do sends a request and returns status and body.
func (r *rig) do(method, path string, body any, headers ...string) (int, []byte, http.Header) {
	r.t.Helper()
	status, text, header, err := r.try(context.Background(), method, path, body, headers...)
	require.NoError(r.t, err)
	return status, text, header
}

// try is do for other goroutines than the test's.
func (r *rig) try(ctx context.Context, method, path string, body any, headers ...string) (int, []byte, http.Header, error) {
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		in = bytes.NewReader(b)
	case string:
		in = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return 0, nil, nil, err
		}
		in = bytes.NewReader(text)
	}
	q, err := http.NewRequestWithContext(ctx, method, r.http.URL+path, in)
	if err != nil {
		return 0, nil, nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, nil, nil, err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	return a.StatusCode, text, a.Header, err
}

// ask posts and wants success.
func (r *rig) ask(path string, body any) js {
	r.t.Helper()
	status, text, _ := r.do(http.MethodPost, path, body)
	require.Equal(r.t, http.StatusOK, status, "%s", text)
	var v js
	require.NoError(r.t, json.Unmarshal(text, &v))
	return v
}

// refuse posts and wants an error in OpenAI's shape about a field.
func (r *rig) refuse(path string, body any, status int, param string) string {
	r.t.Helper()
	got, text, _ := r.do(http.MethodPost, path, body)
	require.Equal(r.t, status, got, "%s", text)
	var v struct {
		Error struct {
			Message, Type string
			Param, Code   *string
		}
	}
	require.NoError(r.t, json.Unmarshal(text, &v), "%s", text)
	require.NotEmpty(r.t, v.Error.Message)
	require.NotEmpty(r.t, v.Error.Type)
	if param != "" {
		require.NotNil(r.t, v.Error.Param, "%s", text)
		require.Equal(r.t, param, *v.Error.Param)
	}
	return v.Error.Message
}

// stream posts and returns the events.
func (r *rig) stream(path string, body js) []js {
	r.t.Helper()
	body["stream"] = true
	status, text, h := r.do(http.MethodPost, path, body)
	require.Equal(r.t, http.StatusOK, status, "%s", text)
	require.Contains(r.t, h.Get("Content-Type"), "text/event-stream")
	events, err := events(text)
	require.NoError(r.t, err)
	return events
}

// events reads a whole stream of server-sent events.
func events(text []byte) (list []js, err error) {
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, 16<<20)
	done := false
	for in.Scan() {
		line := in.Text()
		if line == "" {
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || done {
			return nil, fmt.Errorf("line %q", line)
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var v js
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if !done {
		return nil, errors.New("the stream has no end")
	}
	return list, in.Err()
}

// choice is a choice of an answer or a chunk.
func choice(v js, i int) js { return v["choices"].([]any)[i].(js) }

// textOf is the text of the first choice of a text completion.
func textOf(v js) string { return choice(v, 0)["text"].(string) }

// joined is the text of a stream's choice, and why it ended.
func joined(list []js, index int) (text, finish string, stop any) {
	for _, v := range list {
		for _, c := range v["choices"].([]any) {
			c := c.(js)
			if int(c["index"].(float64)) != index {
				continue
			}
			if t, ok := c["text"].(string); ok {
				text += t
			}
			if d, ok := c["delta"].(js); ok {
				if t, ok := d["content"].(string); ok {
					text += t
				}
			}
			if f, ok := c["finish_reason"].(string); ok {
				finish, stop = f, c["stop_reason"]
			}
		}
	}
	return text, finish, stop
}

// draftUsage is usage.speculation.
func draftUsage(v js) js { return v["usage"].(js)["speculation"].(js) }

// engineOf is an engine of n sequences.
func engineOf(n int) engine.Config { return engine.Config{MaxSequences: n} }

// fuzzRig is a server whose answers are short.
func fuzzRig(t testing.TB) *rig {
	return newRig(t, options{engine: engineOf(64), template: "chatml.jinja", change: func(c *server.Config) {
		c.Limits.Open = 4096
		c.Limits.NewTokens, c.Limits.Choices, c.Limits.Prompts, c.Limits.States = 3, 3, 3, 500
	}})
}

// decode reads a JSON object.
func decode(t testing.TB, text []byte) (v js) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}
