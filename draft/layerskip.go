package draft

import (
	"fmt"

	"exacta.dev/exacta/engine"
)

func init() {
	Register(Info{
		Name:    "layerskip",
		Summary: "self-speculation: the target's first layers, under its own final norm and LM head, in its own caches (LayerSkip, Elhoushi et al. 2024, arXiv:2404.16710)",
		New:     func() Strategy { return &LayerSkip{} },
	})
}

// LayerSkip configures the strategy that drafts with the target's first layers. It
// needs no weights and no memory for keys of its own: the layers read and write the
// target's caches behind what is committed, and the target's pass over the draft
// overwrites what they wrote. The number of drafts is the request's.
type LayerSkip struct {
	// Layers is the number of layers that draft, below that of the target. 0
	// takes half of them.
	Layers int `yaml:"layers" json:"layers"`
	// Sample draws drafts as MTP.Sample does.
	Sample bool `yaml:"sample" json:"sample"`
}

// Validate implements Strategy.
func (c *LayerSkip) Validate() error {
	if c.Layers < 0 {
		return fmt.Errorf("layers is %d; it must be at least 1, or 0 for half of the target's", c.Layers)
	}
	return nil
}

// Provision implements Strategy.
func (c *LayerSkip) Provision(env Env) (engine.Drafter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft layerskip: %w", err)
	}
	all, n := len(env.Model.Layers()), c.Layers
	if n == 0 {
		n = max(1, all/2)
	}
	if n >= all {
		return nil, fmt.Errorf("draft layerskip: layers is %d; model %s has %d, and a draft takes fewer", n, env.Model.Name, all)
	}
	return newRecursive("layerskip", trunk{m: env.Model, layers: n}, env, c.Sample), nil
}
