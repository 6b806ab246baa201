package grammar

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// full is the library's own matcher of whole texts.
func full(t *testing.T, pattern string) *regexp.Regexp {
	t.Helper()
	re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	require.NoError(t, err)
	return re
}

// single is the vocabulary of all bytes, with token 256 as the end.
func single() *Vocabulary {
	tokens := make([][]byte, 257)
	for b := range 256 {
		tokens[b] = []byte{byte(b)}
	}
	tokens[256] = []byte("<end>")
	return NewVocabulary(tokens, []int32{256})
}

// after is the state after a text, byte by byte.
func after(g *Grammar, text string) State {
	s := g.Start()
	for i := range len(text) {
		s = g.Next(s, int32(text[i]))
	}
	return s
}

// Whole texts match exactly where the library's matcher says so.
func TestMatchesAsRegexp(t *testing.T) {
	patterns := []string{
		`abc`, `a|bc|`, `(ab)*`, `a+b?c*`, `[a-c]{2,4}`, `(?i)straße|k`, `.`, `(?s).*`, `\d+\.\d*`, `[^a]`, `\pL+`, `[\x{80}-\x{10ffff}]*`,
		`(?:é|ß|日本|😀)+`, `^ab$`, `\Aa\z`, `(^a|b)+`, `a(b$|c)`, `a(^b|c)`, `(a|b)*a(a|b){3}`, `"(?:[^"\\]|\\.)*"`, `x{0}`, `(?U)a+`, `[[:alpha:]]_`,
		`-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?`, `(?:)`, `\PL`, `[\x{d000}-\x{f000}]`,
	}
	alphabet := []string{"a", "b", "c", "A", "K", "k", "\u212a", "ß", "ẞ", "ſ", "t", "s", "r", "é", "日", "本", "😀", "\n", "0", "7", ".", "-", "e", "\"", "\\", "_", "", "\x00", "\u0080", "\uffff", "\U0010ffff", "\ud7ff", "\ue000"}
	r := rand.New(rand.NewPCG(1, 2))
	v := single()
	for _, pattern := range patterns {
		g, err := v.Compile(pattern)
		require.NoError(t, err, pattern)
		re := full(t, pattern)
		hits := 0
		check := func(text string) {
			want := re.MatchString(text)
			require.Equal(t, want, g.Matches(after(g, text)), "%s against %q", pattern, text)
			require.Equal(t, want, g.Allowed(after(g, text)).Has(256), "%s after %q", pattern, text)
			if want {
				hits++
			}
		}
		check("")
		for _, fixed := range []string{"abc", "ab", "STRASSE", "straße", "3.14", "1e+9", `"a\"b"`, "日本日本", "aaaa", "babb", "k_"} {
			check(fixed)
		}
		for range 3000 {
			var b strings.Builder
			for range r.IntN(6) {
				b.WriteString(alphabet[r.IntN(len(alphabet))])
			}
			check(b.String())
		}
		require.Positive(t, hits, pattern)
	}
}

// Text that is not UTF-8 never matches, and is not begun.
func TestOnlyUTF8(t *testing.T) {
	g, err := single().Compile(`(?s).*`)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(3, 4))
	valid := 0
	for range 200_000 {
		text := make([]byte, 1+r.IntN(4))
		for i := range text {
			text[i] = byte(r.IntN(256))
			if r.IntN(2) == 0 {
				text[i] = byte(0x80 + r.IntN(64))
			}
		}
		if r.IntN(2) == 0 {
			text[0] = byte(0xc0 + r.IntN(64))
		}
		s := after(g, string(text))
		require.Equal(t, utf8.Valid(text), g.Matches(s), "%x", text)
		if utf8.Valid(text) {
			valid++
		}
		begun := false // some valid text begins so
		for tail := range 4 {
			full := append(slices.Clone(text), slices.Repeat([]byte{0x80}, tail)...)
			other := append(slices.Clone(text), slices.Repeat([]byte{0xbf}, tail)...)
			begun = begun || utf8.Valid(full) || utf8.Valid(other)
		}
		require.Equal(t, begun, s != "", "%x", text)
	}
	require.Greater(t, valid, 5000)
}

// language lists the texts that match, of at most n letters of an alphabet.
func language(re *regexp.Regexp, alphabet []string, n int) (texts []string) {
	var extend func(text string, left int)
	extend = func(text string, left int) {
		if re.MatchString(text) {
			texts = append(texts, text)
		}
		if left > 0 {
			for _, a := range alphabet {
				extend(text+a, left-1)
			}
		}
	}
	extend("", n)
	return texts
}

// randomPattern makes a pattern over an alphabet that matches finitely many
// texts, of at most long letters.
func randomPattern(r *rand.Rand, alphabet []string, long int) string {
	if long <= 1 || r.IntN(4) == 0 {
		switch r.IntN(5) {
		case 0:
			return "[" + strings.Join(alphabet[:1+r.IntN(len(alphabet))], "") + "]"
		case 1:
			return alphabet[r.IntN(len(alphabet))] + "?"
		default:
			return alphabet[r.IntN(len(alphabet))]
		}
	}
	half := long / 2
	switch r.IntN(5) {
	case 0:
		return "(?:" + randomPattern(r, alphabet, long) + "|" + randomPattern(r, alphabet, long-1) + ")"
	case 1:
		return "(?:" + randomPattern(r, alphabet, half) + "){0,2}"
	case 2:
		return "(?:" + randomPattern(r, alphabet, long) + ")?"
	default:
		return randomPattern(r, alphabet, half) + randomPattern(r, alphabet, long-half)
	}
}

// A token is allowed exactly if some text that matches goes on with it: by
// listing all texts, over vocabularies whose tokens begin and end inside runes.
func TestAllowedByEnumeration(t *testing.T) {
	alphabet := []string{"a", "b", "é", "日"}
	r := rand.New(rand.NewPCG(5, 6))
	allowed, refused := 0, 0
	for range 250 {
		pattern := randomPattern(r, alphabet, 5)
		texts := language(full(t, pattern), alphabet, 6)
		tokens := [][]byte{nil, []byte("<end>"), {}}
		for range 3 + r.IntN(30) {
			text := ""
			for range 1 + r.IntN(3) {
				text += alphabet[r.IntN(len(alphabet))]
			}
			from := r.IntN(len(text))
			tokens = append(tokens, []byte(text[from:from+1+r.IntN(len(text)-from)]))
		}
		g, err := NewVocabulary(tokens, []int32{1}).Compile(pattern)
		require.NoError(t, err)
		for range 6 {
			s, output := g.Start(), ""
			for s != "" {
				mask := g.Allowed(s)
				var next []int32
				for id, token := range tokens {
					id := int32(id)
					want := len(token) > 0 && slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(text, output+string(token)) })
					if id == 1 {
						want = slices.Contains(texts, output)
					}
					require.Equal(t, want, mask.Has(id), "%s: %q then %q", pattern, output, token)
					require.Equal(t, want, g.Next(s, id) != "", "%s: %q then %q", pattern, output, token)
					if want {
						next, allowed = append(next, id), allowed+1
					} else {
						refused++
					}
				}
				if len(next) == 0 {
					require.True(t, mask.Empty())
					break
				}
				id := next[r.IntN(len(next))]
				s = g.Next(s, id)
				if id == 1 {
					require.True(t, g.Matches(s))
					require.True(t, g.Allowed(s).Has(1))
					require.False(t, g.Allowed(s).Has(3))
					break
				}
				output += string(tokens[id])
			}
		}
	}
	require.Greater(t, allowed, 5000)
	require.Greater(t, refused, 5000)
}

// What is kept changes nothing: masks and states with full caches are those of
// fresh ones, and a state outlives the grammar object that made it.
func TestCachesChangeNothing(t *testing.T) {
	const pattern = `(a|b)*a(a|b){14}`
	v := single()
	g, err := v.Compile(pattern)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(7, 8))
	seen := map[State]bool{}
	for range 400 {
		s := g.Start()
		text := ""
		for range 60 {
			b := int32("ab"[r.IntN(2)])
			s = g.Next(s, b)
			text += string(rune(b))
			seen[s] = true
		}
		fresh, err := v.Compile(pattern)
		require.NoError(t, err)
		require.Equal(t, s, after(fresh, text))
		require.Equal(t, fresh.Allowed(s), g.Allowed(s))
		require.LessOrEqual(t, len(g.auto.states), maxStates)
	}
	require.Greater(t, len(seen), maxStates)
}

func TestPatternErrors(t *testing.T) {
	for pattern, want := range map[string]string{
		`a(b`:                             "grammar \"a(b\", column 3: missing closing )",
		`ab)c`:                            "grammar \"ab)c\", column 3: unexpected )",
		`x[a-`:                            "grammar \"x[a-\", column 2: missing closing ]: `[a-`",
		`ab**c`:                           "grammar \"ab**c\", column 3: invalid nested repetition operator: `**`",
		`a{2,1}`:                          "grammar \"a{2,1}\", column 2: invalid repeat count: `{2,1}`",
		`a{1001}`:                         "grammar \"a{1001}\", column 2: invalid repeat count: `{1001}`",
		`ab\8`:                            "grammar \"ab\\\\8\", column 3: invalid escape sequence: `\\8`",
		`a\bc`:                            "grammar \"a\\\\bc\", column 3: \\b is not supported; a pattern matches the whole output",
		`(?m)a$`:                          "grammar \"(?m)a$\", column 6: $ as the end of a line is not supported; a pattern matches the whole output",
		"a\xff":                           "grammar \"a\\xff\", column 2: invalid UTF-8: `\xff`",
		`a$b`:                             "grammar \"a$b\", column 1: it matches no text",
		`[^\x00-\x{10ffff}]`:              "grammar \"[^\\\\x00-\\\\x{10ffff}]\", column 1: it matches no text",
		strings.Repeat("a", maxPattern+1): fmt.Sprintf("grammar %q..., column 16385: 16385 bytes; a pattern has at most 16384", strings.Repeat("a", 60)),
		`(?:\pL\pN\pS){60}`:               "grammar \"(?:\\\\pL\\\\pN\\\\pS){60}\", column 1: more than 131072 states; use smaller repetitions or classes",
	} {
		_, err := single().Compile(pattern)
		require.EqualError(t, err, want)
		require.ErrorAs(t, err, new(*PatternError))
	}
	require.NoError(t, Check(`a*`))
	require.Error(t, Check(`a(`))
}

func FuzzCompile(f *testing.F) {
	f.Add(`a(b|[^c])*\d{2,3}`, "ab12")
	f.Add(`(?i)\pL+$`, "Ünter")
	f.Add(`(?s).^x`, "日")
	v := single()
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 60 || len(text) > 60 || !utf8.ValidString(text) {
			return
		}
		re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
		g, mine := v.Compile(pattern)
		if mine != nil {
			require.NotEmpty(t, mine.Error())
			return
		}
		if err == nil && !strings.Contains(pattern, "(?") {
			require.Equal(t, re.MatchString(text), g.Matches(after(g, text)), "%q against %q", pattern, text)
		}
	})
}

func BenchmarkAllowed(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	tokens := make([][]byte, 150_000)
	for i := range tokens {
		for range 1 + r.IntN(9) {
			tokens[i] = append(tokens[i], byte('a'+r.IntN(26)))
		}
	}
	v := NewVocabulary(tokens, nil)
	for b.Loop() {
		g, err := v.Compile(`\{"name": "[a-z ]{1,20}", "age": \d+\}|[a-z]+`)
		if err != nil {
			b.Fatal(err)
		}
		g.Allowed(g.Start())
	}
}
