package draft

import (
	"fmt"

	"exacta.dev/exacta/engine"
)

func init() {
	Register(Info{
		Name:    "mtp-tree",
		Summary: "dynamic trees (EAGLE-2, arXiv:2406.16858) drafted with the model's own multi-token-prediction layer",
		New:     func() Strategy { return &MTPTree{Width: 3, Depth: 5} },
	})
	Register(Info{
		Name:    "eagle3-tree",
		Summary: "dynamic trees (EAGLE-2, arXiv:2406.16858) drafted with an EAGLE-3 head",
		New:     func() Strategy { return &Eagle3Tree{Width: 3, Depth: 5} },
	})
}

// MTPTree configures the strategy that drafts trees with the model's multi-token
// prediction module.
type MTPTree struct {
	// Head is the module, as MTP.Head.
	Head string `yaml:"head" json:"head"`
	// Width is the most drafts of a level of the tree that get children, and
	// the most children of each.
	Width int `yaml:"width" json:"width"`
	// Depth is the most drafts on a path of the tree.
	Depth int `yaml:"depth" json:"depth"`
	// Sample draws the tokens of trees, of requests with a temperature, from
	// the module's own distribution, siblings without replacement, so that
	// the rejection rule knows what each was drawn from; under the coupled
	// rule with the target's own noise. The shape of such a tree depends on
	// k, width and depth alone. Requests at temperature 0 don't notice.
	Sample bool `yaml:"sample" json:"sample"`
}

// Validate implements Strategy.
func (c *MTPTree) Validate() error { return treeShape{c.Width, c.Depth}.validate() }

// Provision implements Strategy. The model must have been loaded with its MTP
// module, unless Head names one.
func (c *MTPTree) Provision(env Env) (engine.Drafter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft mtp-tree: %w", err)
	}
	head, err := env.Model.LoadMTP(c.Head)
	if err != nil {
		return nil, fmt.Errorf("draft mtp-tree: %w", err)
	}
	return newTree("mtp-tree", head.Tokens(), chained{
		m: env.Model, layer: head.Layer(), taps: head.Taps(),
		open: func(rows, spans int) (network, error) { return head.New(rows, spans) },
	}, env, treeShape{c.Width, c.Depth}, c.Sample), nil
}

// Eagle3Tree configures the strategy that drafts trees with an EAGLE-3 head.
type Eagle3Tree struct {
	// Head is the head, as Eagle3.Head.
	Head string `yaml:"head" json:"head"`
	// Width is the most drafts of a level of the tree that get children, and
	// the most children of each.
	Width int `yaml:"width" json:"width"`
	// Depth is the most drafts on a path of the tree.
	Depth int `yaml:"depth" json:"depth"`
	// Sample draws the tokens of trees as MTPTree.Sample does.
	Sample bool `yaml:"sample" json:"sample"`
}

// Validate implements Strategy.
func (c *Eagle3Tree) Validate() error { return treeShape{c.Width, c.Depth}.validate() }

// Provision implements Strategy.
func (c *Eagle3Tree) Provision(env Env) (engine.Drafter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft eagle3-tree: %w", err)
	}
	head, err := env.Model.LoadEagle3(c.Head)
	if err != nil {
		return nil, fmt.Errorf("draft eagle3-tree: %w", err)
	}
	return newTree("eagle3-tree", head.Tokens(), chained{
		m: env.Model, layer: head.Layer(), taps: head.Taps(),
		open: func(rows, spans int) (network, error) { return head.New(rows, spans) },
	}, env, treeShape{c.Width, c.Depth}, c.Sample), nil
}
