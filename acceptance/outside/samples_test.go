package outside

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sample reads a response that was recorded from a real server.
func sample(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "recorded", name))
	require.NoError(t, err)
	return text
}

// replay reads a recorded stream as that of a dialect.
func replay(t *testing.T, text []byte, read func(*Answer, []byte) (int, error)) *Answer {
	t.Helper()
	es := events{r: bytes.NewReader(text), now: func() time.Duration { return 0 }, left: 1 << 20}
	a := &Answer{Used: -1, PromptUsed: -1}
	for {
		ev, err := es.next()
		if errors.Is(err, io.EOF) {
			return a
		}
		require.NoError(t, err)
		if bytes.Equal(ev.Data, done) {
			continue
		}
		n, err := read(a, ev.Data)
		require.NoError(t, err)
		if n != 0 {
			a.Pieces = append(a.Pieces, Piece{ev.At, n})
		}
	}
}

func TestRecordedStreams(t *testing.T) {
	for _, name := range []string{"vllm-ngram", "vllm-nospec", "llama-ngram-mod", "llama-nospec"} {
		a := replay(t, sample(t, name+".completions.stream.txt"), readOpenAI)
		var whole struct {
			Choices []struct {
				Text string `json:"text"`
			} `json:"choices"`
		}
		require.NoError(t, json.Unmarshal(sample(t, name+".completions.json"), &whole))
		require.Equal(t, whole.Choices[0].Text, a.Text, name)
		require.Equal(t, "length", a.Finish)
		require.Equal(t, 48, a.Used)
		require.Equal(t, 769, a.PromptUsed)
		switch name {
		case "vllm-ngram":
			require.Len(t, a.Pieces, 41, "pieces of several tokens are accepted drafts")
		case "llama-ngram-mod":
			require.Len(t, a.Pieces, 48, "llama-server sends each token by itself")
			require.EqualValues(t, 36, *a.Stated.Proposed)
			require.EqualValues(t, 35, *a.Stated.Accepted)
		case "llama-nospec":
			require.Zero(t, *a.Stated.Proposed)
		}
	}
}

func TestRecordedBodies(t *testing.T) {
	first := []int32{56, 17404, 18623, 506, 3292, 2202, 6612, 418}
	for name, ids := range map[string]int{
		"vllm-ngram.completions.token_ids.json": 16, "llama-ngram-mod.completions.token_ids.json": 16, "llama-nospec.completions.logprobs.json": 8,
	} {
		a := &Answer{Used: -1, PromptUsed: -1}
		_, err := readOpenAI(a, sample(t, name))
		require.NoError(t, err, name)
		require.Len(t, a.IDs, ids, name)
		require.Equal(t, first, a.IDs[:8], name)
	}
}

// TestRecordedCounters holds counters of real servers, from their start on, to
// the identities.
func TestRecordedCounters(t *testing.T) {
	m, err := ParseMetrics(string(sample(t, "vllm-ngram.metrics.txt")))
	require.NoError(t, err)
	require.Equal(t, VLLM, dialectOf(m, ""))
	c := VLLM.Read(m)
	require.EqualValues(t, 1648, *c.Steps)
	require.EqualValues(t, 178, *c.Requests)
	require.Equal(t, []float64{1395, 1238, 1127}, c.ByPosition)
	audit := func(d Dialect, c *Counters, requests, tokens int) *countsAudit {
		l := &Level{Concurrency: 1, Mode: AsServed, Counters: c}
		tt := &totals{requests: requests, tokens: tokens, counters: c, known: true}
		tt.claims()
		s := &Server{Dialect: d}
		tt.findK(s, Options{})
		a := &countsAudit{ledger: newLedger("counts", ""), ev: &Evidence{Server: s}, l: l, t: tt}
		a.shape()
		a.positions()
		a.conservation()
		return a
	}
	a := audit(VLLM, c, 178, 12797)
	require.Empty(t, a.report.Findings)
	require.Len(t, a.report.Checks, 7)
	*c.Accepted *= 1.2
	require.NotEmpty(t, audit(VLLM, c, 178, 12797).report.Findings)

	m, err = ParseMetrics(string(sample(t, "llama-ngram-mod.metrics.txt")))
	require.NoError(t, err)
	require.Equal(t, LlamaCpp, dialectOf(m, ""))
	c = LlamaCpp.Read(m)
	// 2,666 tokens are the passes and the accepted drafts; the number of
	// requests isn't counted, and cancels out but for what ends cut off.
	a = audit(LlamaCpp, c, 20, 2666)
	require.Empty(t, a.report.Findings)
	require.EqualValues(t, *c.Accepted, 2666-*c.Passes)
	*c.Accepted *= 1.2
	require.NotEmpty(t, audit(LlamaCpp, c, 20, 2666).report.Findings)
}
