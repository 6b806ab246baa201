package draft

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSuffixValidate(t *testing.T) {
	good := Suffix{MaxDepth: 24, MaxFactor: 1, MinProb: 0.1, Branches: 1, MaxRequests: 10, MemoryMB: 1}
	require.NoError(t, good.Validate())
	for key, spoil := range map[string]func(c *Suffix){
		"max_depth":    func(c *Suffix) { c.MaxDepth = 1 },
		"max_factor":   func(c *Suffix) { c.MaxFactor = 0 },
		"min_prob":     func(c *Suffix) { c.MinProb = 1.5 },
		"branches":     func(c *Suffix) { c.Branches = 17 },
		"max_requests": func(c *Suffix) { c.MaxRequests = -1 },
		"memory_mb":    func(c *Suffix) { c.MemoryMB = 0 },
	} {
		c := good
		spoil(&c)
		require.ErrorContains(t, c.Validate(), key)
		_, err := c.Provision(Env{})
		require.ErrorContains(t, err, "draft suffix: "+key)
	}
}
