package draft

import (
	"fmt"

	"exacta.dev/exacta/engine"
)

func init() {
	Register(Info{
		Name:    "eagle3",
		Summary: "an EAGLE-3 head: one layer over three of the target's hidden states and the last token, applied to its own output for each further draft, over a reduced vocabulary (Li et al. 2025, arXiv:2503.01840)",
		New:     func() Strategy { return &Eagle3{} },
	})
}

// Eagle3 configures the strategy that drafts with an EAGLE-3 head, as a chain.
// The number of drafts is the request's.
type Eagle3 struct {
	// Head is the directory of the head: config.json and model.safetensors by
	// the tensor names of the reference code or of the speculators library.
	// Empty takes the head that comes with the model (its folder
	// heads/eagle3, as the embedded model has it), "model:NAME" another of
	// that folder; "random" and "random:int4" make one of random weights, in
	// BF16 and in 4 bits, to see what drafting costs.
	Head string `yaml:"head" json:"head"`
	// Sample draws drafts as MTP.Sample does.
	Sample bool `yaml:"sample" json:"sample"`
	// MinConfidence ends a draft with the first token that, by the head's
	// two largest logits, is accepted with a lower probability: the product,
	// along the draft, of the likelier token's share of both. 0 never does;
	// requests that draw their drafts don't notice.
	MinConfidence float64 `yaml:"min_confidence" json:"min_confidence"`
}

// Validate implements Strategy.
func (c *Eagle3) Validate() error { return validConfidence(c.MinConfidence) }

// Provision implements Strategy.
func (c *Eagle3) Provision(env Env) (engine.Drafter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft eagle3: %w", err)
	}
	head, err := env.Model.LoadEagle3(c.Head)
	if err != nil {
		return nil, fmt.Errorf("draft eagle3: %w", err)
	}
	return newChain("eagle3", head.Tokens(), chained{
		m: env.Model, layer: head.Layer(), taps: head.Taps(),
		open: func(rows, spans int) (network, error) { return head.New(rows, spans) },
	}, env, chainOptions{sampled: c.Sample, least: c.MinConfidence}), nil
}
