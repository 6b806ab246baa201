package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

// TestNFCLongMarks has more marks on one letter than x/text keeps together.
func TestNFCLongMarks(t *testing.T) {
	for in, want := range map[string]string{
		"e" + strings.Repeat("\u0301", 40):                           "\u00e9" + strings.Repeat("\u0301", 39),
		"e" + strings.Repeat("\u0301", 40) + "\u0323":                "\u1eb9" + strings.Repeat("\u0301", 40),
		strings.Repeat("\u0301\u0323", 20):                           strings.Repeat("\u0323", 20) + strings.Repeat("\u0301", 20),
		"x" + strings.Repeat("\u0345\u0301", 20) + "e\u0301":         "x" + strings.Repeat("\u0301", 20) + strings.Repeat("\u0345", 20) + "\u00e9",
		"\u1112" + strings.Repeat("\u1161", 20):                      "\ud558" + strings.Repeat("\u1161", 19),
		"\u212b" + strings.Repeat("\u0301", 35) + "\u1100\u1161\xff": "\u01fa" + strings.Repeat("\u0301", 34) + "\uac00\xff",
	} {
		require.Equal(t, want, nfc(in), "%+q", in)
	}
	bad := "\xff" + strings.Repeat("\u0301", 20) + "e\u0301"
	require.Equal(t, "\xff"+strings.Repeat("\u0301", 20)+"\u00e9", nfc(bad), "bad bytes stay")
}

// TestNFCLate has marks that are newer than the reference's NFC.
func TestNFCLate(t *testing.T) {
	for in, want := range map[string]string{
		"a\u0345\u0898":             "a\u0345\u0898", // ccc 230 after 240, of Unicode 14: stays
		"e\u0898\u0323":             "e\u0898\u0323",
		"e\u0301\u0898\u0345\u0301": "\u00e9\u0898\u0301\u0345",
		"\U00011935\U00011930":      "\U00011935\U00011930", // a composition of Unicode 13
	} {
		require.Equal(t, want, nfc(in), "%+q", in)
	}
}

// TestNFCAgreesWithXText compares with norm.NFC over random texts that hold
// neither long runs of marks nor late ones.
func TestNFCAgreesWithXText(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	alphabet := []rune("aeo\u0301\u0308\u0323\u0345\u212b\u1112\u1161\u11a8\uac00\u0958\u0f73\u1e9b\u00e9\ufb1d ")
	changed := 0
	for range 20_000 {
		var in []rune
		for range r.IntN(20) {
			in = append(in, alphabet[r.IntN(len(alphabet))])
		}
		want := norm.NFC.String(string(in))
		require.Equal(t, want, nfc(string(in)), "%+q", string(in))
		require.Equal(t, want, string(compose(nil, decompose(nil, string(in)))), "slow: %+q", string(in))
		if want != string(in) {
			changed++
		}
	}
	require.Greater(t, changed, 5000)
}
