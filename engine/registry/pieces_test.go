package registry

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func readGz(t *testing.T, path string, out any) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(out))
}

// A SentencePiece vocabulary in a GGUF file gives the ids of the C++ library
// (tokenizer/testdata/make_pieces.py, checkpoint/testdata/make_gguf_pieces.py).
func TestGGUFPieces(t *testing.T) {
	e, err := Open("../checkpoint/testdata/pieces.gguf")
	require.NoError(t, err)
	defer e.Close()
	var texts []string
	var golden struct{ IDs [][]int32 }
	readGz(t, "../tokenizer/testdata/strings.json.gz", &texts)
	readGz(t, "../tokenizer/testdata/m_pieces.golden.json.gz", &golden)
	require.Len(t, golden.IDs, len(texts))
	require.Greater(t, len(texts), 2000)
	for i, text := range texts {
		require.Equal(t, append([]int32{1}, golden.IDs[i]...), e.Tokenizer.Encode(text, true), "%q; llama.cpp puts <s> before a text unless the file says no", text)
	}
	require.Equal(t, "Hello wörld 日本 👍", e.Tokenizer.Decode(e.Tokenizer.Encode("Hello wörld 日本 👍", true), true))
	tokens, err := e.SpecialTokens()
	require.NoError(t, err)
	require.Equal(t, "<s>", tokens["bos_token"])
}
