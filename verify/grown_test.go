package verify

import (
	"testing"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"

	"github.com/stretchr/testify/require"
)

// adaptive grows a tree whose shape depends on what was drawn before: two tokens,
// then two more behind the one with the higher id, and one behind those if the first
// of all is 0; no second token if the first is 2.
func adaptive(d *engine.Draft) int32 {
	x := d.Tokens
	switch {
	case len(x) < 1 || len(x) < 2 && x[0] != 2:
		return -1
	case len(x) == 1: // 2 alone
		return 0
	case x[0] == 2:
		return -2
	case len(x) < 4 && x[1] > x[0]:
		return 1
	case len(x) < 4:
		return 0
	case len(x) == 4 && x[0] == 0:
		return 2
	}
	return -2
}

// So it is where the shape of the tree depends on what was drawn before.
func TestGrownTreesEnumerated(t *testing.T) {
	for _, c := range []struct {
		how drawing
		c   enumerated
	}{
		{withReplacement, enumerated{vocab: 3, depth: 3, params: uniform, noise: 1, scale: 1}},
		{withoutReplacement, enumerated{vocab: 4, depth: 3, params: sample.Params{Temperature: 0.8, RepetitionPenalty: 1.3}, noise: 2, scale: 1}},
	} {
		for name, rule := range map[string]noisy{"rejection": newRejection(), "block": newBlock()} {
			tv := grownVariation(t, rule, c.c, adaptive, c.how, 3)
			t.Logf("%s: total variation %.2g", name, tv)
			require.Less(t, tv, 1e-12, name)
		}
		require.Greater(t, grownVariation(t, longestBlock{newBlock()}, c.c, adaptive, c.how, 3), 1e-4, "the longest branch is one of lucky tokens")
	}
}

// longestBlock is block verification of the longest branch of drawn trees: wrong.
type longestBlock struct{ *block }

func (b longestBlock) Verify(v *engine.Verification) (engine.Verdict, error) {
	chain, along := branch(v, v.Draft.Branch())
	d, err := b.block.Verify(chain)
	return along(d), err
}
