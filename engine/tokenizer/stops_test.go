package tokenizer_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/registry"
)

// Whatever way a text is cut into tokens, the first stop string is found where it
// begins, with the token that completes it.
func TestStops(t *testing.T) {
	e, err := registry.Open(registry.Embedded)
	require.NoError(t, err)
	defer e.Close()
	tok := e.Tokenizer
	text := "func main() {\n\tfmt.Println(\"größe €5 日本\")\n\treturn\n}\n\nfunc other() {}\n"
	r := rand.New(rand.NewPCG(1, 2))
	runes := []rune(text)
	for range 2000 {
		var ids []int32
		for rest := text; rest != ""; {
			n := min(len(rest), 1+r.IntN(4))
			ids = append(ids, tok.Encode(rest[:n], false)...)
			rest = rest[n:]
		}
		from := r.IntN(len(runes))
		var stop []string
		for range 1 + r.IntN(3) {
			stop = append(stop, string(runes[from:min(len(runes), from+1+r.IntN(12))]))
			from = r.IntN(len(runes))
		}
		s := tok.NewStops(stop, true)
		taken, ended := 0, false
		for !ended && taken < len(ids) {
			step := ids[taken:min(len(ids), taken+1+r.IntN(5))]
			var n int
			n, ended = s.Push(step)
			taken += n
		}
		require.True(t, ended, "%q in %q", stop, text)
		found, at := s.Found()
		require.Contains(t, stop, found)
		require.True(t, strings.HasPrefix(text[at:], found))
		have := string(tok.DecodeBytes(ids[:taken], true))
		less := string(tok.DecodeBytes(ids[:taken-1], true))
		require.Contains(t, have, found)
		for _, x := range stop {
			require.False(t, strings.Contains(less, x), "%q was there a token before", x)
			if i := strings.Index(have, x); i >= 0 {
				require.GreaterOrEqual(t, i, at)
			}
		}
	}
}

func TestStopsNone(t *testing.T) {
	e, err := registry.Open(registry.Embedded)
	require.NoError(t, err)
	defer e.Close()
	ids := e.Tokenizer.Encode("package main", false)
	s := e.Tokenizer.NewStops([]string{"never"}, true)
	n, ended := s.Push(ids)
	require.Equal(t, len(ids), n)
	require.False(t, ended)
	found, at := s.Found()
	require.Empty(t, found)
	require.Equal(t, -1, at)
}
