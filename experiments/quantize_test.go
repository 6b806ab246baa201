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

// TestQuantize makes heads of 4 bits of all that come with the embedded model and holds
// them to their size, to nearly the acceptance of the BF16 head, and to the same output.
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
		"eagle3":       {func(o *QuantizeOptions) { o.Head, o.Limit, o.Tokens = "eagle3", 3, 24 }, 0.27, 0.9, 3072},
		"medusa": {func(o *QuantizeOptions) {
			o.Head, o.Method, o.Limit, o.Tokens, o.Vocab, o.Corpus = "medusa", "rtn", 1, 24, 1024, corpus
		}, 0.13, 0.3, 1024},
		"dflash": {func(o *QuantizeOptions) {
			o.Head, o.K, o.Limit, o.Tokens, o.Vocab, o.Corpus = "dflash", 9, 2, 24, 2048, corpus
		}, 0.22, 0.3, 2048},
	} {
		o := QuantizeOptions{
			Head: "mtp", Model: registry.Embedded, Backend: "cpu", Group: 64, Method: "gptq", Pieces: 16, K: 3, Tokens: 48, Limit: 8, Out: filepath.Join(t.TempDir(), "head"),
		}
		c.change(&o)
		r, err := Quantize(t.Context(), o, func(string) {})
		require.NoError(t, err, name)
		require.True(t, r.Exact, "%s: other tokens than with the BF16 head", name)
		require.LessOrEqual(t, r.Bytes.Ratio, c.size, name)
		require.GreaterOrEqual(t, r.Accepted.Ratio, c.accepted, "%s: %+v", name, r)
		require.Equal(t, c.vocab, r.Vocab, name)
		require.LessOrEqual(t, r.K, o.K, name)
	}
}

func TestQuantizeRefuses(t *testing.T) {
	good := QuantizeOptions{Head: "mtp", Model: "random:embedded", Backend: "cpu", Group: 64, Method: "rtn", K: 3, Tokens: 8, Out: t.TempDir()}
	for want, change := range map[string]func(o *QuantizeOptions){
		`quantize "lm"`:                       func(o *QuantizeOptions) { o.Head = "lm" },
		"has random weights":                  func(o *QuantizeOptions) { o.Head = "medusa" },
		"quantize eagle3: open head /nowhere": func(o *QuantizeOptions) { o.Head, o.From = "eagle3", "/nowhere" },
		`method "awq"`:                        func(o *QuantizeOptions) { o.Method = "awq" },
		"group 48":                            func(o *QuantizeOptions) { o.Group = 48 },
		"name the directory":                  func(o *QuantizeOptions) { o.Out = "" },
		"k 0":                                 func(o *QuantizeOptions) { o.K = 0 },
		"tokens must":                         func(o *QuantizeOptions) { o.Tokens = 0 },
		"pieces 0":                            func(o *QuantizeOptions) { o.Corpus = "corpus.txt" },
		"a corpus is needed":                  func(o *QuantizeOptions) { o.Vocab = 100 },
		"unknown shape":                       func(o *QuantizeOptions) { o.Model = "random:none" },
		"group 128 does not divide the 192 columns": func(o *QuantizeOptions) { o.Model, o.Group = registry.Embedded, 128 },
	} {
		o := good
		change(&o)
		_, err := Quantize(t.Context(), o, func(string) {})
		require.ErrorContains(t, err, want, want)
	}
}
