package experiments

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/embedded"
	"exacta.dev/exacta/engine/registry"
)

// TestBenchDraft measures heads of files and of random weights, in both forms.
func TestBenchDraft(t *testing.T) {
	o := DraftBenchOptions{Model: "random:embedded", Backend: "cpu", Group: 32, K: 3, Prompt: 8, Rounds: 2, Steps: 2}
	for _, c := range []struct {
		model string
		heads []string
		want  []string
	}{{"random:embedded", nil, QuantizeHeads}, {registry.Embedded, []string{"mtp", "medusa"}, []string{"mtp", "medusa"}}} {
		o.Model, o.Heads = c.model, c.heads
		r, err := BenchDraft(t.Context(), o, func(string) {})
		if errors.Is(err, embedded.ErrAbsent) {
			continue
		}
		require.NoError(t, err)
		require.Positive(t, r.StepMs)
		require.Len(t, r.Heads, len(c.want))
		for _, kind := range c.want {
			h := r.Heads[kind]
			for _, x := range []float64{h.Ms.BF16, h.Ms.Int4, h.StepShare.BF16, h.StepShare.Int4, h.Ms.Ratio} {
				require.Positive(t, x, kind)
			}
		}
	}
	for want, change := range map[string]func(o *DraftBenchOptions){
		`head "lm"`:     func(o *DraftBenchOptions) { o.Heads = []string{"lm"} },
		"rounds is 0":   func(o *DraftBenchOptions) { o.Rounds = 0 },
		"k is 64":       func(o *DraftBenchOptions) { o.K = 64 },
		"group 16":      func(o *DraftBenchOptions) { o.Group = 16 },
		"unknown shape": func(o *DraftBenchOptions) { o.Model = "random:none" },
	} {
		bad := DraftBenchOptions{Model: "random:embedded", Backend: "cpu", Group: 32, K: 3, Prompt: 8, Rounds: 1, Steps: 1}
		change(&bad)
		_, err := BenchDraft(t.Context(), bad, func(string) {})
		require.ErrorContains(t, err, want, want)
	}
}
