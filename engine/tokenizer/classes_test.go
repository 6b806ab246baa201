package tokenizer

import (
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// TestClassesAgreeWithGo compares the tables with those of Go's unicode
// package, whose version may differ from the reference's: code points that it
// does not know are skipped, and few others may differ.
func TestClassesAgreeWithGo(t *testing.T) {
	compared, differ := 0, 0
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co) {
			continue
		}
		c := classOf(r)
		want := []bool{unicode.IsLetter(r), unicode.IsMark(r), unicode.IsNumber(r), unicode.Is(unicode.White_Space, r),
			unicode.IsPunct(r) || unicode.IsSymbol(r), r == '\r' || r == '\n',
			unicode.In(r, unicode.L, unicode.M, unicode.Nl, unicode.Nd, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control),
			unicode.IsNumber(r)}
		compared++
		for i, w := range want {
			if (c&(1<<i) != 0) != w {
				differ++
				t.Logf("%U bit %d: table %v, unicode %s %v", r, i, !w, unicode.Version, w)
			}
		}
	}
	require.Greater(t, compared, 280_000)
	require.LessOrEqual(t, differ, 20)
}

func TestSpellingIsInvertible(t *testing.T) {
	seen := map[rune]bool{}
	for b := range 256 {
		text := string([]byte{byte(b)})
		r := byteRune[b]
		require.False(t, seen[r])
		seen[r] = true
		back, ok := unspell(spell(text))
		require.True(t, ok)
		require.Equal(t, text, back)
	}
	text, ok := unspell("a b")
	require.False(t, ok, "a space spells no byte")
	require.Equal(t, "a b", text)
}
