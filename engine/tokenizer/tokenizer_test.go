package tokenizer

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLookups(t *testing.T) {
	tok := loadValue(t, minimal())
	require.Equal(t, 259, tok.VocabSize())
	require.Equal(t, 259, tok.Count())
	id, ok := tok.ID("<end>")
	require.True(t, ok)
	require.Equal(t, int32(258), id)
	require.True(t, tok.IsSpecial(258))
	require.False(t, tok.IsSpecial('a'))
	require.False(t, tok.IsSpecial(-1))
	require.Equal(t, []AddedToken{{ID: 258, Content: "<end>", Special: true}}, tok.Added())
	require.Equal(t, " ", tok.TokenText(' '))
	require.Equal(t, "Ġ", tok.Spelling(' '))
	require.Equal(t, "\ufffd", tok.TokenText(0xe4))
	require.Equal(t, []byte{0xe4}, tok.TokenBytes(0xe4))
	require.Empty(t, tok.Spelling(4000))
	_, ok = tok.ID("nothing")
	require.False(t, ok)
}

func TestCheckNamesBothSizes(t *testing.T) {
	tok := loadValue(t, minimal())
	require.NoError(t, tok.Check(259))
	require.NoError(t, tok.Check(300))
	require.EqualError(t, tok.Check(258),
		`tokenizer has ids up to 258 ("<end>"), but the model's vocabulary has 258: they are not of the same model`)
}

func TestIDsWithHoles(t *testing.T) {
	m := minimal()
	m["added_tokens"] = []any{added(300, "<far>", nil)}
	tok := loadValue(t, m)
	require.Equal(t, 301, tok.VocabSize())
	require.Equal(t, 259, tok.Count())
	require.False(t, tok.Known(299))
	require.Equal(t, "a<far>", tok.Decode([]int32{'a', 299, 300, 301, -5}, false))
}

func TestEncodeInvalidUTF8(t *testing.T) {
	tok := loadValue(t, minimal())
	require.Equal(t, []int32{'a', 0xff, 'b', 0xe4, 0xbd}, tok.Encode("a\xffb\xe4\xbd", false))
	_, err := tok.EncodeStrict("ab\u00e9\xffb", false)
	require.EqualError(t, err, "text is not valid UTF-8: byte 0xff at offset 4")
	_, err = tok.EncodeStrict("\ufffd", false)
	require.NoError(t, err, "U+FFFD itself is valid")
}

// A vocabulary without some bytes: the reference drops them, or puts unk_token
// in their place.
func TestMissingBytes(t *testing.T) {
	m := minimal()
	delete(m["model"].(obj)["vocab"].(obj), "Z")
	tok := loadValue(t, m)
	require.Equal(t, []int32{'x', 'y'}, tok.Encode("xZy", false))
	require.Empty(t, tok.Encode("Z", false))
	_, err := tok.EncodeStrict("xZy", false)
	require.EqualError(t, err, "the tokenizer has no token for byte 0x5a at offset 1")

	m["model"].(obj)["unk_token"] = "U"
	require.Equal(t, []int32{'x', 'U', 'y'}, loadValue(t, m).Encode("xZy", false))
}

func TestConcurrentEncode(t *testing.T) {
	tok := design(t, "c_qwen35")
	texts, g := goldens(t, "c_qwen35")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for range 2000 {
				i := r.IntN(len(texts))
				if got := tok.Encode(texts[i], true); !equal(got, g.IDs[i]) {
					t.Errorf("%q differs under concurrency", texts[i])
					return
				}
			}
		})
	}
	wg.Wait()
}

func equal(a, b []int32) bool { return string(raw(a)) == string(raw(b)) }

// Words beyond the bounds of the cache give the same ids as others, and a
// long word without a split point is no quadratic affair: this one would take
// hours.
func TestLongWord(t *testing.T) {
	tok := loadValue(t, minimal())
	ids := tok.Encode(strings.Repeat("abc", 1<<20), false)
	require.Len(t, ids, 1<<20)
	require.Equal(t, int32(257), ids[1<<19])
}

func TestCacheIsBounded(t *testing.T) {
	tok := loadValue(t, minimal())
	long := strings.Repeat("a", cacheMaxWord+1)
	tok.Encode(long, false)
	for i := range 4 * cacheSlots {
		tok.Encode("w"+strings.Repeat("x", i%60), false)
	}
	require.Len(t, tok.cache.slots, cacheSlots)
	for i := range tok.cache.slots {
		if e := tok.cache.slots[i].Load(); e != nil {
			require.LessOrEqual(t, len(e.word), cacheMaxWord)
		}
	}
}
