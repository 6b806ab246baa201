package draft

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCascadeValidate(t *testing.T) {
	good := func() Cascade {
		return Cascade{Stages: []Stage{{Drafter: "ngram", MinExpected: 1, Config: map[string]any{"min_match": 3}}, {Drafter: "mtp"}}}
	}
	c := good()
	require.NoError(t, c.Validate())
	for want, spoil := range map[string]func(c *Cascade){
		"stages has 1 entries":                  func(c *Cascade) { c.Stages = c.Stages[:1] },
		"stages[1].drafter is none":             func(c *Cascade) { c.Stages[1].Drafter = "none" },
		"stages[0].drafter is cascade":          func(c *Cascade) { c.Stages[0].Drafter = "cascade" },
		`stages[1]: unknown drafter "x"`:        func(c *Cascade) { c.Stages[1].Drafter = "x" },
		"stages[0].min_expected is -1":          func(c *Cascade) { c.Stages[0].MinExpected = -1 },
		"stages[0]: config of ngram: min_match": func(c *Cascade) { c.Stages[0].Config["min_match"] = 99 },
		"stages[0]: config of ngram: [1:1] unkn": func(c *Cascade) {
			c.Stages[0].Config = map[string]any{"luck": 1}
		},
	} {
		c := good()
		spoil(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
}
