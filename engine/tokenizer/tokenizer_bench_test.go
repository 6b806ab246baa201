package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchTexts gives about 1 MB of each kind of text, from what the repository
// holds: Go source, and the mixed strings of the goldens.
func benchTexts(b *testing.B) map[string]string {
	var code strings.Builder
	paths, err := filepath.Glob("*.go")
	require.NoError(b, err)
	for _, p := range paths {
		text, err := os.ReadFile(p)
		require.NoError(b, err)
		code.Write(text)
	}
	var mixed []string
	readGz(b, "testdata/strings.json.gz", &mixed)
	texts := map[string]string{"code": code.String(), "mixed": strings.Join(mixed, " ")}
	for name, text := range texts {
		texts[name] = strings.Repeat(text, 1+(1<<20)/len(text))
	}
	texts["one-word"] = strings.Repeat("abcdefghij", 100_000)
	return texts
}

// benchFile is a tokenizer.json to measure with: EXACTA_TOKENIZER, or that of
// the Qwen3.5 design.
func benchFile(b *testing.B) []byte {
	path := os.Getenv("EXACTA_TOKENIZER")
	if path == "" {
		path = "testdata/c_qwen35.json"
	}
	text, err := os.ReadFile(path)
	require.NoError(b, err)
	return text
}

func BenchmarkEncode(b *testing.B) {
	tok, err := Load(benchFile(b))
	require.NoError(b, err)
	for name, text := range benchTexts(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text, false)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	tok, err := Load(benchFile(b))
	require.NoError(b, err)
	text := benchTexts(b)["mixed"]
	ids := tok.Encode(text, false)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Decode(ids, false)
	}
}

func BenchmarkLoad(b *testing.B) {
	text := benchFile(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		_, err := Load(text)
		require.NoError(b, err)
	}
}
