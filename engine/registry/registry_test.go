package registry

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tokenizer that a GGUF file's vocabulary makes gives the ids of the library
// tokenizers (checkpoint/testdata/make_gguf.py).
func TestGGUFTokenizer(t *testing.T) {
	e, err := Open("../checkpoint/testdata/llama.gguf")
	require.NoError(t, err)
	defer e.Close()
	raw, err := os.ReadFile("../checkpoint/testdata/llama-gguf.json")
	require.NoError(t, err)
	var list []struct {
		Text string
		IDs  []int32
	}
	require.NoError(t, json.Unmarshal(raw, &list))
	require.NotEmpty(t, list)
	for _, c := range list {
		require.Equal(t, c.IDs, e.Tokenizer.Encode(c.Text, false), c.Text)
		require.Equal(t, append([]int32{1}, c.IDs...), e.Tokenizer.Encode(c.Text, true), "the file asks for a token at the beginning")
		require.Equal(t, c.Text, e.Tokenizer.Decode(c.IDs, false))
	}
	require.True(t, e.Tokenizer.IsSpecial(1))
	id, ok := e.Tokenizer.ID("<tool>")
	require.True(t, ok)
	require.False(t, e.Tokenizer.IsSpecial(id))
	_, ok = e.Tokenizer.ID("[PAD0]")
	require.False(t, ok, "unused ids have no token")
	prompts, err := e.Prompts()
	require.NoError(t, err)
	require.Empty(t, prompts)
}

func TestOpenUnknown(t *testing.T) {
	_, err := Open("no/such/model")
	require.ErrorContains(t, err, "no such file or directory")
}
