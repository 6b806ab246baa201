package experiments

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/embedded"
	"exacta.dev/exacta/engine/registry"
)

// TestQuantize makes heads of the embedded model's module and holds them to their
// size, to nearly the acceptance of the BF16 head, and to the same output.
func TestQuantize(t *testing.T) {
	e, err := registry.Open(registry.Embedded)
	if errors.Is(err, embedded.ErrAbsent) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, e.Close())
	corpus := filepath.Join(t.TempDir(), "corpus.txt")
	var text []byte
	for range 40 {
		text = append(text, "func (s *Server) Close() error {\n\tif err := s.err; err != nil {\n\t\treturn err\n\t}\n\treturn nil\n}\n\n"...)
	}
	require.NoError(t, os.WriteFile(corpus, text, 0o600))
	for name, c := range map[string]struct {
		change   func(o *QuantizeOptions)
		size     float64
		accepted float64
		vocab    int
	}{
		"gptq":         {func(o *QuantizeOptions) { o.Group, o.ZeroPoints = 32, true }, 0.30, 0.96, 4096},
		"rtn":          {func(o *QuantizeOptions) { o.Method = "rtn" }, 0.27, 0.92, 4096},
		"vocabulary":   {func(o *QuantizeOptions) { o.Vocab, o.Corpus = 2048, corpus }, 0.20, 0.3, 2048},
		"one sequence": {func(o *QuantizeOptions) { o.K, o.Limit, o.Method = 7, 2, "rtn" }, 0.27, 0.5, 4096},
	} {
		o := QuantizeOptions{
			Head: "mtp", Model: registry.Embedded, Backend: "cpu", Group: 64, Method: "gptq", K: 3, Tokens: 48, Limit: 8, Out: filepath.Join(t.TempDir(), "head"),
		}
		c.change(&o)
		r, err := Quantize(t.Context(), o, func(string) {})
		require.NoError(t, err, name)
		require.True(t, r.Exact, "%s: other tokens than with the BF16 head", name)
		require.LessOrEqual(t, r.Bytes.Ratio, c.size, name)
		require.GreaterOrEqual(t, r.Accepted.Ratio, c.accepted, "%s: %+v", name, r)
		require.Equal(t, c.vocab, r.Vocab, name)
	}
}

func TestQuantizeRefuses(t *testing.T) {
	good := QuantizeOptions{Head: "mtp", Model: "random:qwen3-0.6b", Backend: "cpu", Group: 64, Method: "rtn", K: 3, Tokens: 8, Out: t.TempDir()}
	for want, change := range map[string]func(o *QuantizeOptions){
		`quantize "lm"`:      func(o *QuantizeOptions) { o.Head = "lm" },
		`method "awq"`:       func(o *QuantizeOptions) { o.Method = "awq" },
		"group 48":           func(o *QuantizeOptions) { o.Group = 48 },
		"name the directory": func(o *QuantizeOptions) { o.Out = "" },
		"k 0":                func(o *QuantizeOptions) { o.K = 0 },
		"tokens must":        func(o *QuantizeOptions) { o.Tokens = 0 },
		"a corpus is needed": func(o *QuantizeOptions) { o.Vocab = 100 },
		"unknown shape":      func(o *QuantizeOptions) { o.Model = "random:none" },
		"group 128 does not divide the 192 columns": func(o *QuantizeOptions) { o.Model, o.Group = registry.Embedded, 128 },
	} {
		o := good
		change(&o)
		_, err := Quantize(t.Context(), o, func(string) {})
		require.ErrorContains(t, err, want)
	}
}
