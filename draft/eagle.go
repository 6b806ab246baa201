package draft

import (
	"fmt"

	"exacta.dev/exacta/engine"
)

func init() {
	Register(Info{
		Name:    "eagle",
		Summary: "an EAGLE head: one layer over the target's last hidden state and the last token, applied to its own output for each further draft (Li et al. 2024, arXiv:2401.15077); as a chain, or with tree: true the dynamic trees of EAGLE-2 (arXiv:2406.16858)",
		New:     func() Strategy { return &Eagle{Width: 3, Depth: 5} },
	})
}

// Eagle configures the strategy that drafts with an EAGLE head (of the first and second
// version). The number of drafts is the request's.
type Eagle struct {
	// Head is the directory of the head: config.json and model.safetensors by
	// the tensor names of the reference code or of the speculators library.
	// Empty takes the head that comes with the model (its folder
	// heads/eagle), "model:NAME" another of that folder, "random" makes one of
	// random weights.
	Head string `yaml:"head" json:"head"`
	// Tree drafts dynamic trees of k tokens in place of chains.
	Tree bool `yaml:"tree" json:"tree"`
	// Width is the most drafts of a level of a tree that get children, and the
	// most children of each.
	Width int `yaml:"width" json:"width"`
	// Depth is the most drafts on a path of a tree.
	Depth int `yaml:"depth" json:"depth"`
	// Sample draws drafts as MTP.Sample and MTPTree.Sample do.
	Sample bool `yaml:"sample" json:"sample"`
}

// Validate implements Strategy.
func (c *Eagle) Validate() error {
	return treeShape{c.Width, c.Depth}.validate()
}

// Provision implements Strategy.
func (c *Eagle) Provision(env Env) (engine.Drafter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft eagle: %w", err)
	}
	head, err := env.Model.LoadEagle(c.Head)
	if err != nil {
		return nil, fmt.Errorf("draft eagle: %w", err)
	}
	made := chained{
		m: env.Model, layer: head.Layer(),
		open: func(rows, spans int) (network, error) { return head.New(rows, spans) },
	}
	if c.Tree {
		return newTree("eagle", head.Tokens(), made, env, treeShape{c.Width, c.Depth}, c.Sample), nil
	}
	return newChain("eagle", head.Tokens(), made, env, chainOptions{sampled: c.Sample}), nil
}
