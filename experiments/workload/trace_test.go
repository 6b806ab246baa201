package workload

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

const mooncakeText = `{"timestamp": 1000, "input_length": 1100, "output_length": 30, "hash_ids": [5, 6, 7]}
{"timestamp": 1500, "input_length": 1030, "output_length": 0, "hash_ids": [5, 6]}

{"timestamp": 4000, "input_length": 9000, "output_length": 10, "hash_ids": [8]}
`

// Shared blocks are shared tokens, lengths are exact, times are kept.
func TestMooncake(t *testing.T) {
	file := write(t, "m.jsonl", mooncakeText)
	p, err := Make(&Mooncake{File: file, Shrink: 1}, &Trace{Speed: 1}, env(3))
	require.NoError(t, err)
	require.Len(t, p.Sessions, 3)
	a, b := p.Sessions[0].Requests[0], p.Sessions[1].Requests[0]
	require.Len(t, a.Tokens, 1100)
	require.Len(t, b.Tokens, 1030)
	require.Equal(t, a.Tokens[:1024], b.Tokens[:1024])
	require.NotEqual(t, a.Tokens[1024:1030], b.Tokens[1024:])
	require.Equal(t, 1, b.MaxTokens, "an output of nothing is one token")
	require.Equal(t, []time.Duration{0, 500 * time.Millisecond, 3 * time.Second}, []time.Duration{p.Sessions[0].At, p.Sessions[1].At, p.Sessions[2].At})
	p, err = Make(&Mooncake{File: file, Shrink: 4, MaxTokens: 300}, &Trace{Speed: 1}, env(3))
	require.NoError(t, err)
	require.Len(t, p.Sessions, 2)
	require.Equal(t, 275, len(p.Sessions[0].Requests[0].Tokens))
	require.Equal(t, p.Sessions[0].Requests[0].Tokens[:256], p.Sessions[1].Requests[0].Tokens[:256])
	require.Equal(t, 7, p.Sessions[0].Requests[0].MaxTokens)

	for text, want := range map[string]string{
		"":  "m: no requests",
		"x": "m:1: ",
		`{"input_length": 5, "output_length": 1}`:                                     "m:1: timestamp is missing",
		`{"timestamp": -1, "input_length": 5, "output_length": 1}`:                    "m:1: timestamp is missing",
		`{"timestamp": 0, "input_length": 0, "output_length": 1}`:                     "m:1: input_length 0",
		`{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]}`: "m:1: 2 hash_ids for an input of 5 tokens",
		mooncakeText + `{"timestamp": 3, "input_length": 5, "output_length": 1}`:      "m:5: timestamp is before the first one",
	} {
		_, err := parseMooncake("m", []byte(text))
		require.ErrorContains(t, err, want)
	}
}

// Lengths and reuse of the published traces, where they are at hand: METRICS has
// means of 15,325 and 149 tokens and a reuse of 64.0 % for the synthetic one.
func TestPublishedMooncake(t *testing.T) {
	file := shared(t, "mooncake_synthetic.jsonl")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines, err := parseMooncake(file, text)
	require.NoError(t, err)
	require.Len(t, lines, 3993)
	in, out, blocks, reused := 0, 0, 0, 0
	seen := map[int64]bool{}
	for _, l := range lines {
		in, out = in+l.Input, out+l.Output
		leading := true
		for _, id := range l.Blocks {
			blocks++
			if leading = leading && seen[id]; leading {
				reused++
			}
		}
		for _, id := range l.Blocks {
			seen[id] = true
		}
	}
	require.InDelta(t, 15_325, float64(in)/float64(len(lines)), 1)
	require.InDelta(t, 149, float64(out)/float64(len(lines)), 1)
	require.InDelta(t, 0.640, float64(reused)/float64(blocks), 0.001)
}

// A session with two subagents that worked side by side before the second turn, and
// one that was still at work at the third. Times of subagents are those of their
// ends, as in the published corpus.
const wekaText = `{"id": "t1", "block_size": 4, "tool_tokens": 6, "system_tokens": 2, "requests": [
 {"t": 0, "type": "n", "in": 14, "out": 10, "hash_ids": [1, 2, 3], "api_time": 5, "think_time": 0},
 {"t": 30, "type": "subagent", "agent_id": "x", "duration_ms": 20000, "tool_tokens": 4, "system_tokens": 0, "requests": [
  {"t": 0, "type": "n", "in": 9, "out": 3, "hash_ids": [50, 51], "api_time": 4},
  {"t": 12, "type": "n", "in": 13, "out": 3, "hash_ids": [50, 51, 52], "api_time": 8, "think_time": 8}]},
 {"t": 40, "type": "subagent", "agent_id": "y", "duration_ms": 34000, "tool_tokens": 4, "requests": [
  {"t": 0, "type": "n", "in": 8, "out": 6, "hash_ids": [50, 60], "api_time": 34}]},
 {"t": 47, "type": "n", "in": 22, "out": 8, "hash_ids": [1, 2, 3, 4, 5], "api_time": 3, "think_time": 42},
 {"t": 90, "type": "subagent", "agent_id": "z", "duration_ms": 39000, "requests": [
  {"t": 0, "type": "n", "in": 4, "out": 6, "hash_ids": [70], "api_time": 39}]},
 {"t": 60, "type": "s", "in": 30, "out": 2, "hash_ids": [1, 2, 9, 10], "api_time": 1, "ttft": 0.5, "think_time": 10}
]}`

func weka(t *testing.T, change func(*Weka)) []Session {
	t.Helper()
	s := &Weka{Path: write(t, "t1.json", wekaText), Shrink: 1, Pauses: 1}
	if change != nil {
		change(s)
	}
	p, err := Make(s, &Closed{Count: 2}, env(3))
	require.NoError(t, err)
	return p.Sessions
}

func TestWekaTree(t *testing.T) {
	s := weka(t, nil)[0]
	var got []string
	for _, r := range s.Requests {
		got = append(got, strings.TrimPrefix(r.ID, "t1-0/"))
	}
	require.Equal(t, []string{"0", "0/x", "1/x", "0/y", "1", "0/z", "2"}, got)
	for i, want := range []struct {
		after []int
		pause time.Duration
	}{
		{nil, 0}, {[]int{0}, 5 * time.Second}, {[]int{1}, 8 * time.Second}, {[]int{0}, time.Second},
		{[]int{0, 2, 3}, 7 * time.Second}, // joined: from the end of the last subagent
		{[]int{4}, time.Second},           // began at 51
		{[]int{4}, 10 * time.Second},      // z was still at work, and gates nothing
	} {
		require.Equal(t, want.after, s.Requests[i].After, "request %d", i)
		require.Equal(t, want.pause, s.Requests[i].Pause, "request %d", i)
	}
	r := s.Requests
	require.Equal(t, []int{14, 9, 13, 8, 22, 4, 30}, []int{len(r[0].Tokens), len(r[1].Tokens), len(r[2].Tokens), len(r[3].Tokens), len(r[4].Tokens), len(r[5].Tokens), len(r[6].Tokens)})
	require.Equal(t, r[0].Tokens, r[4].Tokens[:14], "a turn continues the one before it, beyond the last whole block")
	require.Equal(t, r[0].Tokens[:8], r[6].Tokens[:8])
	require.NotEqual(t, r[0].Tokens[8:12], r[6].Tokens[8:12], "the context was rewritten from the third block on")
	require.Equal(t, r[1].Tokens[:4], r[3].Tokens[:4], "subagents share their tools")
	require.Equal(t, r[1].Tokens, r[2].Tokens[:9])
	require.Equal(t, []int{10, 3, 3, 6, 8, 6, 2}, []int{r[0].MaxTokens, r[1].MaxTokens, r[2].MaxTokens, r[3].MaxTokens, r[4].MaxTokens, r[5].MaxTokens, r[6].MaxTokens})
}

// Plays of one trace share its tools and system prompt, and nothing behind them.
func TestWekaPlays(t *testing.T) {
	s := weka(t, func(w *Weka) { w.Sessions = 3 })
	require.Len(t, s, 3)
	a, b := s[0].Requests[4].Tokens, s[1].Requests[4].Tokens
	require.Equal(t, a[:8], b[:8])
	require.NotEqual(t, a[8:12], b[8:12])
	again := weka(t, func(w *Weka) { w.Sessions = 3 })
	require.Equal(t, s, again)
}

func TestWekaStart(t *testing.T) {
	s := weka(t, func(w *Weka) { w.Start, w.Sessions = []float64{0.4, 0.4}, 3 })
	// Two lanes begin at turn 1 of 3, with turn 0 as warm-up and without its subagents.
	for _, lane := range s[:2] {
		require.Len(t, lane.Requests, 4)
		require.True(t, lane.Requests[0].Warm)
		require.Equal(t, 1, lane.Requests[1].Turn)
		require.False(t, lane.Requests[1].Warm)
		require.Equal(t, []int{0}, lane.Requests[1].After)
	}
	require.Len(t, s[2].Requests, 7, "a lane that is used again begins at the first turn")
}

func TestWekaCuts(t *testing.T) {
	s := weka(t, func(w *Weka) { w.MaxTokens = 24 })[0] // leaves out turns 1 and 2, of 30 and 32 tokens
	require.Len(t, s.Requests, 5)
	require.Equal(t, []int{0, 2, 3}, s.Requests[4].After, "z waits for what the turn that is left out waited for")
	s = weka(t, func(w *Weka) { w.Shrink, w.Pauses, w.MaxTurns = 2, 0.5, 2 })[0]
	require.Len(t, s.Requests, 6)
	require.Len(t, s.Requests[4].Tokens, 11)
	require.Equal(t, s.Requests[0].Tokens, s.Requests[4].Tokens[:7])
	require.Equal(t, 3500*time.Millisecond, s.Requests[4].Pause)
	_, err := Make(&Weka{Path: write(t, "t.json", wekaText), Shrink: 1, MaxTokens: 3}, &Closed{Count: 1}, env(1))
	require.ErrorContains(t, err, "trace t1: no request of it has at most 3 tokens")
}

func TestWekaBad(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                         "w: ",
		`{}`:                         "w: it has no id",
		`{"id":"a"}`:                 "w: block_size is 0",
		`{"id":"a","block_size":64}`: "w: no requests",
		`{"id":"a","block_size":64,"requests":[{"type":"subagent"}]}`:                                                             "w: requests[0]: a subagent before any request",
		`{"id":"a","block_size":64,"requests":[{"type":"n","in":0}]}`:                                                             "w: requests[0]: in is 0",
		`{"id":"a","block_size":64,"requests":[{"type":"n","in":64,"hash_ids":[1,2]}]}`:                                           "w: requests[0]: 2 hash_ids of 64 tokens each for an input of 64",
		`{"id":"a","block_size":64,"requests":[{"type":"n","in":64,"t":-1}]}`:                                                     "w: requests[0]: t, api_time or think_time is negative",
		`{"id":"a","block_size":64,"requests":[{"type":"n","in":1},{"type":"subagent","duration_ms":-1}]}`:                        "w: requests[1]: t or duration_ms is negative",
		`{"id":"a","block_size":64,"requests":[{"type":"n","in":1},{"type":"subagent","requests":[{"type":"subagent","in":1}]}]}`: "w: requests[1].requests[0]: subagents of subagents",
	} {
		_, err := parseWeka("w", []byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

// The published sessions, where they are at hand: their subagents were at work side
// by side, and each turn's prompt shares what the recording shared.
func TestPublishedWeka(t *testing.T) {
	dir := shared(t, "weka")
	p, err := Make(&Weka{Path: dir, Shrink: 64, Pauses: 1}, &Closed{Count: 2}, env(3))
	require.NoError(t, err)
	require.Len(t, p.Sessions, 5)
	i := slices.IndexFunc(p.Sessions, func(s Session) bool { return strings.HasPrefix(s.ID, "trace_0277") })
	s := p.Sessions[i]
	firsts, joined := 0, 0
	for _, r := range s.Requests {
		if r.Agent != "" && r.Turn == 0 && slices.Equal(r.After, []int{0}) {
			firsts++
		}
		if r.Agent == "" {
			joined = max(joined, len(r.After))
		}
	}
	require.Equal(t, 3, firsts, "three subagents began behind the first turn")
	require.Equal(t, 4, joined, "the second turn waited for them")
}

func FuzzTraces(f *testing.F) {
	f.Add([]byte(wekaText), false)
	f.Add([]byte(mooncakeText), true)
	f.Add([]byte(`{"id":"a","block_size":1,"requests":[{"type":"n","in":4,"hash_ids":[1]},{"type":"subagent","t":5,"duration_ms":1e9,"requests":[]},{"t":1e6,"in":1}]}`), false)
	f.Fuzz(func(t *testing.T, text []byte, mooncake bool) {
		if mooncake {
			if _, err := parseMooncake("f", text); err != nil {
				require.True(t, strings.HasPrefix(err.Error(), "f"), err)
			}
			return
		}
		trace, err := parseWeka("f", text)
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "f: "), err)
			return
		}
		w, e := Weka{Shrink: 1 << 12, Pauses: 1}, env(1)
		s := w.play(&e, trace, 0, 0.5)
		if len(s.Requests) > 0 {
			ids := map[string]bool{}
			for _, r := range s.Requests {
				if ids[r.ID] {
					return // agents of one name: Make says so
				}
				ids[r.ID] = true
			}
			require.NoError(t, (&Plan{Sessions: []Session{s}}).check())
		}
	})
}
