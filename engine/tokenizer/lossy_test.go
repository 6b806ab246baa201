package tokenizer

import (
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestLossyTable holds the cases in which the usual ways in Go differ from the
// reference.
func TestLossyTable(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"a\u00e9\u6f22\U0001f44d":      "a\u00e9\u6f22\U0001f44d",
		"\ufffd":                       "\ufffd",
		"\xf0\x9f\x98":                 "\ufffd",
		"\xff\xff":                     "\ufffd\ufffd",
		"\xed\xa0\x80":                 "\ufffd\ufffd\ufffd",
		"\xe4\xbdA":                    "\ufffdA",
		"\xc0\x80":                     "\ufffd\ufffd",
		"\xe0\x80\x80":                 "\ufffd\ufffd\ufffd",
		"\xf0\x80\x80\x80":             "\ufffd\ufffd\ufffd\ufffd",
		"\xf4\x90\x80\x80":             "\ufffd\ufffd\ufffd\ufffd",
		"\xf5\x80":                     "\ufffd\ufffd",
		"\xf1\x80\x80\xe4\xbd\xa0":     "\ufffd\u4f60",
		"\x80":                         "\ufffd",
		"\xc3":                         "\ufffd",
		"\xf0\x9f\x98\xf0\x9f\x98\x80": "\ufffd\U0001f600",
	} {
		out, n := appendLossy(nil, []byte(in), true)
		require.Equal(t, want, string(out), "%q", in)
		require.Equal(t, len(in), n)
	}
}

// TestDecoderEqualsDecode streams random bytes in random order of ids: joined,
// the pieces are the text of all ids, each piece is valid, and nothing is held
// back that is already certain.
func TestDecoderEqualsDecode(t *testing.T) {
	tok := loadValue(t, minimal())
	r := rand.New(rand.NewPCG(7, 8))
	alphabet := []int32{'a', 0x80, 0xbf, 0xc3, 0xa9, 0xe4, 0xbd, 0xa0, 0xed, 0xf0, 0x9f, 0x98, 0xf4, 0x90, 0xff, 256, 258}
	for range 20_000 {
		d := tok.NewDecoder(true)
		var ids []int32
		got := ""
		for range r.IntN(12) {
			id := alphabet[r.IntN(len(alphabet))]
			ids = append(ids, id)
			piece := d.Push(id)
			require.True(t, utf8.ValidString(piece))
			got += piece
			require.Less(t, len(d.tail), utf8.UTFMax)
		}
		got += d.Flush()
		require.Equal(t, tok.Decode(ids, true), got, "ids %v", ids)
	}
}

func TestDecoderHoldsBack(t *testing.T) {
	d := loadValue(t, minimal()).NewDecoder(false)
	require.Equal(t, "", d.Push(0xf0))
	require.Equal(t, "", d.Push(0x9f))
	require.Equal(t, "", d.Push(0x91))
	require.Equal(t, "\U0001f44d", d.Push(0x8d))
	require.Equal(t, "", d.Push(0xe4))
	require.Equal(t, "\ufffda", d.Push('a'), "certainly invalid is emitted at once")
	require.Equal(t, "<end>", d.Push(258))
	require.Equal(t, "", d.Push(0xc3))
	require.Equal(t, "\ufffd", d.Flush())
	require.Equal(t, "", d.Flush())
}
