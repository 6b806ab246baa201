package engine_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
)

// family returns the tiny shape of a family, with random weights.
func family(t *testing.T, name string) model.Random {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("model/testdata", name, "config.json"))
	require.NoError(t, err)
	c, err := checkpoint.ParseConfig(text)
	require.NoError(t, err)
	c.MTPLayers = 1
	return model.Random{ShapeName: name, Shape: c, Seed: 3}
}

// Two and three ranks give the tokens and logits of one: experts, blocks of latent
// attention and indexes included.
func TestFamiliesInTandem(t *testing.T) {
	for _, name := range []string{"qwen3_5_moe", "glm_moe_dsa", "qwen4_exp", "deepseek_v4"} {
		t.Run(name, func(t *testing.T) {
			src := family(t, name)
			var want map[string]*outcome
			for size := 1; size <= 3; size++ {
				x := &tandem{
					size: size, source: func() (model.Source, error) { return src, nil },
					cfg: engine.Config{MaxTokens: context, MaxSequences: 3},
					reqs: []engine.Request{
						{ID: "a", Prompt: prompt(50, 5), MaxNew: 40, Drafter: "mtp", K: 3, IgnoreStop: true},
						{ID: "b", Prompt: prompt(63, 6), MaxNew: 40, Drafter: "ngram", K: 4, IgnoreStop: true},
						{ID: "c", Prompt: prompt(20, 7), MaxNew: 40, IgnoreStop: true},
					},
				}
				require.NoError(t, x.run())
				if size == 1 {
					want = x.out
					continue
				}
				x.twinned(t)
				for id, o := range want {
					require.Equal(t, o.tokens, x.out[id].tokens, "%s on %d ranks", id, size)
					require.Equal(t, o.hashes, x.out[id].hashes, "%s on %d ranks", id, size)
				}
			}
		})
	}
}
