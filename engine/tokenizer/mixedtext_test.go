package tokenizer

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// mixedDocuments and mixedMean fix the size of the mixed text: about 2 MB.
const mixedDocuments, mixedMean = 2000, 1100

// lot is a generator of random numbers (splitmix64) whose stream no release of
// Go can change, since goldens hang on it.
type lot uint64

func (l *lot) next() uint64 {
	*l += 0x9e3779b97f4a7c15
	z := uint64(*l)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (l *lot) n(n int) int          { return int(l.next() >> 11 % uint64(n)) }
func (l *lot) upTo(low, hi int) int { return low + l.n(hi-low+1) }

func oneOf[T any](l *lot, list []T) T { return list[l.n(len(list))] }

// scripts are ranges of code points, one or more for each script.
var scripts = [][2]rune{
	{'A', 'z'}, {0xc0, 0x24f}, {0x250, 0x2af}, {0x370, 0x3ff}, {0x400, 0x52f}, {0x531, 0x58f}, {0x591, 0x5f4}, {0x600, 0x6ff},
	{0x700, 0x74f}, {0x780, 0x7b1}, {0x7c0, 0x7fa}, {0x800, 0x83e}, {0x840, 0x85e}, {0x8a0, 0x8ff}, {0x900, 0x97f}, {0x980, 0x9fe},
	{0xa01, 0xa76}, {0xa81, 0xaff}, {0xb01, 0xb77}, {0xb82, 0xbfa}, {0xc00, 0xc7f}, {0xc80, 0xcf2}, {0xd00, 0xd7f}, {0xd81, 0xdf4},
	{0xe01, 0xe5b}, {0xe81, 0xedf}, {0xf00, 0xfda}, {0x1000, 0x109f}, {0x10a0, 0x10ff}, {0x1100, 0x11ff}, {0x1200, 0x137c}, {0x13a0, 0x13fd},
	{0x1400, 0x167f}, {0x1680, 0x169c}, {0x16a0, 0x16f8}, {0x1700, 0x1714}, {0x1780, 0x17f9}, {0x1800, 0x18aa}, {0x1950, 0x1974}, {0x1980, 0x19df},
	{0x1a00, 0x1a1f}, {0x1b00, 0x1b7c}, {0x1c00, 0x1c49}, {0x1e00, 0x1eff}, {0x1f00, 0x1fff}, {0x2c00, 0x2c7f}, {0x2d30, 0x2d7f}, {0x3041, 0x3096},
	{0x30a0, 0x30ff}, {0x3105, 0x312f}, {0x3131, 0x318e}, {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xa000, 0xa48c}, {0xa4d0, 0xa4ff}, {0xa500, 0xa62b},
	{0xa840, 0xa877}, {0xa980, 0xa9df}, {0xaa00, 0xaa5f}, {0xabc0, 0xabf9}, {0xac00, 0xd7a3}, {0xf900, 0xfad9}, {0xfb00, 0xfb4f}, {0xfe70, 0xfefc},
	{0xff01, 0xffdc}, {0x10000, 0x100fa}, {0x10280, 0x1029c}, {0x10330, 0x1034a}, {0x10400, 0x1044f}, {0x10480, 0x104a9}, {0x10900, 0x1091f},
	{0x10a00, 0x10a58}, {0x11000, 0x1106f}, {0x11103, 0x11147}, {0x12000, 0x12399}, {0x13000, 0x1342e}, {0x16800, 0x16a38}, {0x1b000, 0x1b122},
	{0x1d400, 0x1d7ff}, {0x1e900, 0x1e95f}, {0x1ee00, 0x1eebb}, {0x20000, 0x2a6df}, {0x2190, 0x23ff}, {0x2500, 0x27bf}, {0x1f300, 0x1faff},
}

var mixedWords = strings.Fields(`The quick brown fox jumps over the lazy dog and it's what they're saying we've I'm you'll he'd DON'T
	Größe Straße über Fuchs où bibliothèque s'il plaît niño piñas mañana coração não Привет мир быстрая лиса Γειά κόσμε γρήγορη
	שלום עולם مرحبا بالعالم السريع नमस्ते दुनिया तेज สวัสดีชาวโลก 你好世界 今天天气很好 敏捷的棕色狐狸 こんにちは世界 カタカナ ひらがな 漢字かな交じり文
	안녕하세요 세계 빠른 갈색 여우 Xin chào thế giới ḍīrgha e` + "\u0301" + `te` + "\u0301" + ` naïve café İstanbul ııı ŉ ſharp ﬁnal ½ ² Ⅷ ①②③ ａｂｃ １２３`)

var mixedEmoji = []string{
	"👍", "👍🏽", "👨\u200d👩\u200d👧\u200d👦", "🏳\ufe0f\u200d🌈", "🇩🇪", "🇫🇷🇯🇵", "❤\ufe0f", "☺", "1\ufe0f\u20e3", "🧑🏿\u200d🚀", "🤖", "\u200d", "👩\u200d❤\ufe0f\u200d💋\u200d👨", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
}

var mixedCode = []string{
	"func (t *%s) %s(x []int32) (int, error) {\n\tif len(x) == 0 {\n\t\treturn 0, fmt.Errorf(\"empty %%q\", x)\n\t}\n\treturn x[%d], nil\n}\n\n",
	"def %s(self, %s=None, *args):\n    for i, v in enumerate(range(%d)):\n        yield {'i': i, \"v\": v ** 2}  # comment\n\n\n",
	"<div class=\"%s\">\n  <a href='https://example.com/%s?id=%d&x=%%20'>&nbsp;</a>\n</div>\r\n",
	"{\"%s\": [1, 2.5e-3, null, true], \"%s\": {\"n\": -%d, \"s\": \"\\u00e9\\n\"}}\n",
	"SELECT %s, COUNT(*) FROM %s WHERE id >= %d AND name LIKE '%%x%%';\n-- done\n",
	"#include <%s.h>\nstatic inline uint64_t %s(void) { return 0x%xULL << 3; }\n",
	"$ grep -rn '%s' ./%s | awk '{print $%d}' > /dev/null 2>&1 && echo \"ok\"\n",
	"\\begin{%s} \\frac{%s}{%d} \\leq \\sum_{i=0}^{\\infty} x_i^2 \\end{}\n",
}

var mixedSpaces = []string{" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\u00a0", "\u3000", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\u200b", "\u202f", " \n", "\n ", "\t\t\n"}

var mixedMarks = []string{
	"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "[gMASK]<sop>", "<s>", "</s>", "<unk>",
	"<bos>", "<start_of_turn>", "<|im_", "|>", "<think>\n", "</think>", "<tool_call>", "[MASK]", " [MASK] ", "[LEFT]", "[RIGHT]", "word", "<0x0A>", "▁", "▁▁", "Ġ", "Ċ", "<tool>",
}

// mixedBad are parts of byte sequences that are no valid UTF-8.
var mixedBad = []string{"\xff", "\xfe\xff", "\xc0\x80", "\xed\xa0\x80", "\xf0\x9f\x98", "\xe4\xbd", "\xe4\xbdA", "\x80", "\xf4\x90\x80\x80", "\xc3", "\xf8\x88\x80\x80\x80", "\xf0\x9f\x98\xf0\x9f\x98\x80"}

// name makes an identifier.
func (l *lot) name() string {
	parts := []string{"get", "Value", "index", "_", "HTTP", "foo", "bar2", "x", "i", "Buffer", "naïve", "size_t", "K", "tmp"}
	var out strings.Builder
	for range l.upTo(1, 3) {
		out.WriteString(oneOf(l, parts))
	}
	return out.String()
}

// mixedAtom makes one piece of text of a kind.
func (l *lot) mixedAtom(kind int) string {
	var out strings.Builder
	switch kind {
	case 0, 1: // prose
		for range l.upTo(1, 12) {
			out.WriteString(oneOf(l, mixedWords) + oneOf(l, []string{" ", " ", " ", ", ", ". ", "; ", "—", "'s ", "…\n", "! "}))
		}
	case 2, 3: // letters of one script
		s := oneOf(l, scripts)
		for range l.upTo(1, 6) {
			for range l.upTo(1, 9) {
				out.WriteRune(s[0] + rune(l.n(int(s[1]-s[0])+1)))
			}
			out.WriteString(oneOf(l, []string{" ", "", ". ", "\u0301", "1", "\n"}))
		}
	case 4:
		out.WriteString(fmt.Sprintf(oneOf(l, mixedCode), l.name(), l.name(), l.n(100000)))
	case 5:
		for range l.upTo(1, 5) {
			out.WriteString(oneOf(l, mixedEmoji))
		}
	case 6: // runs of spaces
		for range l.upTo(1, 3) {
			out.WriteString(strings.Repeat(oneOf(l, mixedSpaces), l.upTo(1, 20)))
		}
	case 7: // numbers
		for range l.upTo(1, 4) {
			out.WriteString(oneOf(l, []string{"-", "", "$", " ", "٣", "1,000,", "0x", "½"}) + fmt.Sprint(l.next()>>uint(l.n(60))) + oneOf(l, []string{" ", ".5", "%", "e-9", "\n"}))
		}
	case 8:
		out.WriteString(oneOf(l, mixedMarks))
	case 9: // punctuation, contractions
		out.WriteString(strings.Repeat(oneOf(l, strings.Split("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¿€™±«»、。", "")), l.upTo(1, 8)))
		out.WriteString(oneOf(l, []string{"", "'S", "'ll", "'RE", "'ſ", "'", "’s", "\n\n"}))
	case 10: // any code point
		for range l.upTo(1, 6) {
			if r := rune(l.n(0x110000)); utf8.ValidRune(r) {
				out.WriteRune(r)
			}
		}
	case 11:
		out.WriteString(oneOf(l, mixedBad))
	case 12: // marks in long and disordered runs
		out.WriteString(oneOf(l, []string{"a", "e", "क", "ᄒ", "ㅎ", "Å", " "}))
		for range l.upTo(1, 40) {
			out.WriteString(oneOf(l, []string{"\u0301", "\u0323", "\u0308", "\u0345", "\u094d", "\u1161", "\u11ab", "\u05b8", "\u20dd"}))
		}
	default: // words without an end
		raw := make([]byte, l.upTo(10, 120))
		for i := range raw {
			raw[i] = byte(l.next())
		}
		out.WriteString(oneOf(l, []string{base64.StdEncoding.EncodeToString(raw), strings.Repeat(oneOf(l, []string{"a", "-", "=", "ab", "é", "漢", "9", "_"}), len(raw))}))
	}
	return out.String()
}

// mixedText makes the documents of the mixed text: all scripts, emoji with
// joiners, code, runs of spaces, special tokens, and bytes that are no valid
// UTF-8.
func mixedText() []string {
	l := lot(2026)
	docs := make([]string, mixedDocuments)
	for i := range docs {
		var out strings.Builder
		size := l.upTo(0, 2*mixedMean)
		kind := l.n(14)
		for out.Len() < size {
			if l.n(3) == 0 { // runs of one kind are as in life
				kind = l.n(14)
			}
			out.WriteString(l.mixedAtom(kind))
		}
		docs[i] = out.String()
	}
	return docs
}

// TestMixedText checks that the text is what it is said to be, and writes it
// for testdata/make_mixed.py where EXACTA_WRITE_MIXED names a file: documents
// with a zero byte behind each, their own zero bytes and bad bytes as they are.
func TestMixedText(t *testing.T) {
	docs := mixedText()
	all := strings.Join(docs, "")
	require.Greater(t, len(all), 2_000_000)
	require.Less(t, len(all), 2_600_000)
	require.NotContains(t, all, "\x00")
	require.False(t, utf8.ValidString(all))
	for _, s := range scripts {
		require.True(t, strings.ContainsFunc(all, func(r rune) bool { return r >= s[0] && r <= s[1] }), "%x", s)
	}
	if path := os.Getenv("EXACTA_WRITE_MIXED"); path != "" {
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(docs, "\x00")), 0o644))
	}
}
