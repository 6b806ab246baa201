package outside

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMetricsText(t *testing.T) {
	m, err := ParseMetrics("# HELP a b\na 1\nb{x=\"y, \\\"}\\n\", z=\"\"} 2.5e3 1700000000\n\nc_total{position=\"1\"} 4\nc_total{position=\"0\"} 9\nd +Inf\ne{} NaN\n")
	require.NoError(t, err)
	require.Len(t, m, 6)
	require.Equal(t, "y, \"}\n", m[1].Labels["x"])
	require.Equal(t, []float64{9, 4}, m.Positions("c"))
	require.EqualValues(t, 13, *m.Sum("c"))
	require.Nil(t, m.Sum("missing"))
	require.Nil(t, m.Sum("d"), "an infinite counter is none")
	require.Nil(t, m.Sum("e"))
	for _, bad := range []string{"a", "a b", "a{x=y} 1", "a{x=\"y} 1", "a{x} 1", "1a 2", "a 1 2 3", "a{", "{x=\"y\"} 1", "a{x=\"\\"} {
		_, err := ParseMetrics("ok 1\n" + bad)
		require.ErrorContains(t, err, "line 2", bad)
	}
}

func TestUnitIsTheSpacingOfBF16(t *testing.T) {
	for _, v := range []float32{1, 1.5, 3, 15.9, 16, -40, 0.07} {
		next := math.Float32frombits(math.Float32bits(v)&^0xffff + 0x10000)
		want := math.Abs(float64(next) - float64(math.Float32frombits(math.Float32bits(v)&^0xffff)))
		require.Equal(t, want, unit(v), "%v", v)
	}
	require.Positive(t, unit(0))
}

func TestPlace(t *testing.T) {
	p := place([]float32{1, 16, 15.5, -2}, 2)
	require.Equal(t, position{token: 2, top: 1, gap: 4, runner: 4}, p)
	p = place([]float32{16, 16, 0}, 1)
	require.Equal(t, position{token: 1, top: 0}, p, "a tie goes to the lower id, with no gap")
	require.Equal(t, int32(2), place([]float32{1, 16, 15.5, -2}, 3, 2).token, "of several the best")
	require.Equal(t, position{}, place([]float32{3}, 0), "a vocabulary of one")
}

func readAll(r io.Reader) (out []string, err error) {
	es := events{r: r, now: func() time.Duration { return 0 }, left: 1 << 20}
	for {
		ev, err := es.next()
		if err != nil {
			return out, err
		}
		out = append(out, string(ev.Data))
	}
}

func TestEvents(t *testing.T) {
	const text = ": hello\n\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:two\ndata: lines\n\ndata: [DONE]\n\n"
	want := []string{`{"a":1}`, "two\nlines", "[DONE]"}
	for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.HalfReader(strings.NewReader(text))} {
		got, err := readAll(r)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, want, got)
	}
	_, err := readAll(strings.NewReader("data: {\"cut"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = readAll(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(text))))
	require.ErrorIs(t, err, iotest.ErrTimeout)
	es := events{r: bytes.NewReader(make([]byte, 100)), now: func() time.Duration { return 0 }, left: 10}
	_, err = es.next()
	require.ErrorContains(t, err, "longer than a body may be")
}

func TestEventsOfServers(t *testing.T) {
	a := &Answer{Used: -1, PromptUsed: -1}
	_, err := readOpenAI(a, []byte(`{"error": {"message": "out of memory"}}`))
	require.ErrorContains(t, err, "out of memory")
	_, err = readSGLang(a, []byte(`{"text": "x", "output_ids": [1], "meta_info": {"completion_tokens": 3}}`))
	require.ErrorContains(t, err, "output_ids has 1 tokens so far, completion_tokens says 3")
	_, err = readLlama(a, []byte(`[1]`))
	require.ErrorContains(t, err, "not the JSON that it should be")
	_, err = readOpenAI(a, []byte(`{"choices": [], "metrics": {"speculative_decoding": {"acceptance_histogram": {"x": 1}}}}`))
	require.ErrorContains(t, err, "acceptance_histogram")
}

func TestSGLangPieces(t *testing.T) {
	for name, lines := range map[string][]string{
		"so far": {
			`{"text": "a", "output_ids": [1], "meta_info": {"completion_tokens": 1, "prompt_tokens": 7, "finish_reason": null}}`,
			`{"text": "abc", "output_ids": [1,2,3], "meta_info": {"completion_tokens": 3, "finish_reason": {"type": "length", "length": 3}}}`,
		},
		"only new": {
			`{"text": "a", "output_ids": [1], "meta_info": {"completion_tokens": 1, "prompt_tokens": 7, "finish_reason": null}}`,
			`{"text": "bc", "output_ids": [2,3], "meta_info": {"completion_tokens": 3, "finish_reason": "length"}}`,
		},
	} {
		a := &Answer{Used: -1, PromptUsed: -1}
		var sizes []int
		for _, l := range lines {
			n, err := readSGLang(a, []byte(l))
			require.NoError(t, err)
			sizes = append(sizes, n)
		}
		require.Equal(t, []int{1, 2}, sizes, name)
		require.Equal(t, []int32{1, 2, 3}, a.IDs, name)
		require.Equal(t, "abc", a.Text, name)
		require.Equal(t, "length", a.Finish, name)
		require.Equal(t, 7, a.PromptUsed, name)
	}
}

func TestTokenIDsOfLogprobs(t *testing.T) {
	a := &Answer{Used: -1, PromptUsed: -1}
	n, err := readOpenAI(a, []byte(`{"choices": [{"text": "x", "logprobs": {"tokens": ["token_id:5", "token_id:9"]}}]}`))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []int32{5, 9}, a.IDs)
	require.Nil(t, logprobIDs([]string{"a"}))
	require.Nil(t, logprobIDs([]string{"token_id:x"}))
}

func FuzzMetrics(f *testing.F) {
	f.Add("a{x=\"y\"} 1 2\nvllm:spec_decode_num_drafts_total{engine=\"0\"} 16\n")
	f.Add("a{x=\"\\n\\\"\"} NaN")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMetrics(text)
		if err != nil {
			return
		}
		for _, s := range m {
			require.True(t, metricName(s.Name))
		}
		for _, d := range []Dialect{VLLM, SGLang, LlamaCpp} {
			c := d.Read(m)
			delta, _ := c.Since(c)
			require.NotNil(t, delta)
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {\"a\":1}\r\n\r\ndata: x\n\n"))
	f.Add([]byte(": c\n\n\ndata:\ndata:b\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		whole, err := readAll(bytes.NewReader(text))
		bytewise, err2 := readAll(iotest.OneByteReader(bytes.NewReader(text)))
		require.Equal(t, errors.Is(err, io.EOF), errors.Is(err2, io.EOF))
		require.Equal(t, whole, bytewise, "how the bytes come may not matter")
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"choices": [{"text": "x", "token_ids": [1, 2], "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}`))
	f.Add([]byte(`{"text": "x", "output_ids": [1], "meta_info": {"completion_tokens": 1, "spec_verify_ct": 4, "spec_correct_drafts_histogram": [1, 3]}}`))
	f.Add([]byte(`{"content": "x", "tokens": [3], "stop": true, "stop_type": "eos", "timings": {"draft_n": 3, "predicted_ms": 0}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for d, read := range map[Dialect]func(*Answer, []byte) (int, error){VLLM: readOpenAI, SGLang: readSGLang, LlamaCpp: readLlama} {
			a := &Answer{Used: -1, PromptUsed: -1}
			if _, err := read(a, data); err != nil {
				continue
			}
			_, _ = read(a, data)
			ev := &Evidence{Server: &Server{Dialect: d}, MaxTokens: 4, Levels: []*Level{{Concurrency: 1, Mode: AsServed, Answers: []*Answer{a}}}}
			Counts(ev, Options{Lookup: true, Declared: 2})
			Work(ev, Options{})
		}
	})
}

// A server that closes a connection which has idled, just as the next request comes, is
// asked again; one that has begun to answer is not.
func TestConnectionThatIdled(t *testing.T) {
	served := map[string]int{} // requests by connection
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if served[r.RemoteAddr]++; served[r.RemoteAddr] > 1 {
			panic(http.ErrAbortHandler)
		}
		require.Empty(t, r.Header.Values("X-Idempotency-Key"))
		_, _ = io.WriteString(w, `{"tokens":[1]}`)
	}))
	defer s.Close()
	c, err := NewClient(s.URL)
	require.NoError(t, err)
	defer c.Close()
	for range 3 {
		text, err := c.text(t.Context(), http.MethodPost, "/tokenize", map[string]string{"content": "x"})
		require.NoError(t, err)
		require.JSONEq(t, `{"tokens":[1]}`, string(text))
	}
	require.Len(t, served, 3)
}
