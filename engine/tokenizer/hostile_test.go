package tokenizer

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ends runs f, whose work is in proportion to its input: seconds, however busy the
// machine is. What grows with the square takes days, and fails.
func ends(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(8 * time.Minute):
		require.FailNow(t, "it does not end")
	}
}

// TestHostileFiles has files that would cost much if they were believed. Each is
// refused, with memory and allocations in proportion to the file.
func TestHostileFiles(t *testing.T) {
	model := func(vocab, merges string) string {
		return `{"model": {"type": "BPE", "vocab": ` + vocab + `, "merges": ` + merges + `}, "decoder": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}`
	}
	var small, chain, added strings.Builder
	for i := range 1<<20 + 1 {
		fmt.Fprintf(&small, `"%x":%d,`, i, i%7)
	}
	for i := range 5000 {
		fmt.Fprintf(&added, `{"id":%d,"content":"%04x%s","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},`, i+300, i, strings.Repeat("x", 300))
	}
	for range 1<<21 + 1 {
		chain.WriteString(`"a a",`)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nested lists":    {strings.Repeat("[", 10<<20), "tokenizer.json: "},
		"nested objects":  {strings.Repeat(`{"model":`, 2<<20), "tokenizer.json: "},
		"nested in model": {`{"model": {"type": "BPE", "vocab": ` + strings.Repeat("[", 4<<20) + "}}", "tokenizer.json: "},
		"nested merge":    {model(`{"a": 0}`, strings.Repeat("[", 5000)+strings.Repeat("]", 5000)), "tokenizer.json: model: merges: merge 0 must be a pair of texts"},
		"many tokens":     {model("{"+strings.TrimSuffix(small.String(), ",")+"}", "[]"), "tokenizer.json: model: vocab has more than 1048576 entries"},
		"many merges":     {model(`{"a": 0, "aa": 1}`, "["+strings.TrimSuffix(chain.String(), ",")+"]"), "tokenizer.json: model: merges: there are more than 2097152"},
		"far id":          {model(`{"a": 2147483647}`, "[]"), `tokenizer.json: model: token "a" has id 2147483647; ids are 0 to 1048575`},
		"long contents":   {strings.Replace(model(`{"a": 0}`, "[]"), `{"model"`, `{"added_tokens": [`+strings.TrimSuffix(added.String(), ",")+`], "model"`, 1), "tokenizer.json: added_tokens: their contents have more than 1048576 bytes"},
		"merge of itself": {model(`{"a": 0}`, `["a a"]`), `tokenizer.json: model: merges: merge 0 ("a" "a"): "aa" is not in vocab`},
		"merge to a part": {model(`{"a": 0, "": 1}`, `[["a", ""]]`), `tokenizer.json: model: merges: merge 0 ("a" ""): "a" is not in vocab`},
		"too long":        {strings.Repeat(" ", maxFile+1), "tokenizer.json: the file has 167772161 bytes; at most 167772160 are read"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var err error
			ends(t, func() { _, err = Load([]byte(c.text)) })
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			require.True(t, strings.HasPrefix(err.Error(), c.want), err.Error()[:min(200, len(err.Error()))])
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(512<<20+32*len(c.text)))
			require.Less(t, after.Mallocs-before.Mallocs, uint64(1<<20+2*len(c.text)))
		})
	}
}

// TestCyclicMerges has merges in which each rank makes what a lower one takes
// apart in another way; whatever the file says, a merge makes a word shorter.
func TestCyclicMerges(t *testing.T) {
	m := minimal()
	v := m["model"].(obj)["vocab"].(obj)
	id := 300
	var merges []any
	for _, s := range []string{"abab", "ba", "aba", "bab", "baba", "ababab"} {
		v[s] = id
		id++
	}
	for _, p := range [][2]string{{"aba", "b"}, {"ba", "b"}, {"a", "b"}, {"ab", "a"}, {"a", "bab"}, {"b", "a"}, {"ab", "ab"}, {"ab", "abab"}, {"abab", "ab"}, {"a", "b"}} {
		merges = append(merges, []any{p[0], p[1]})
	}
	m["model"].(obj)["merges"] = merges
	tok := loadValue(t, m)
	text := strings.Repeat("ab", 1<<19)
	var back string
	ends(t, func() { back = tok.Decode(tok.Encode(text, false), false) })
	require.True(t, text == back)
}
