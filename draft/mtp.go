package draft

import (
	"fmt"

	"exacta.dev/exacta/engine"
)

func init() {
	Register(Info{
		Name:    "mtp",
		Summary: "the model's own multi-token-prediction layer, applied to its own hidden state for each further draft (DeepSeek-V3, arXiv:2412.19437; Qwen3.5)",
		New:     func() Strategy { return &MTP{} },
	})
}

// MTP configures the strategy that drafts with the model's multi-token
// prediction module. The number of drafts is the request's.
type MTP struct {
	// Head is the directory of a module that takes the place of the model's
	// own, such as one of 4 bits that exacta quantize made; "model:NAME" is
	// one in the model's folder heads, as the embedded model has mtp-int4.
	// Empty takes the model's.
	Head string `yaml:"head" json:"head"`
	// Sample draws the drafts of requests with a temperature from the
	// module's own distribution, processed as the request asks, instead of
	// taking its argmax. The rejection and block rules then know the true
	// distribution of each draft; under the coupled rule drafts are drawn
	// with the target's own noise. Requests at temperature 0 don't notice.
	Sample bool `yaml:"sample" json:"sample"`
	// MinConfidence ends a draft with the first token that, by the module's
	// two largest logits, is accepted with a lower probability: the product,
	// along the draft, of the likelier token's share of both. 0 never does;
	// requests that draw their drafts don't notice.
	MinConfidence float64 `yaml:"min_confidence" json:"min_confidence"`
}

// Validate implements Strategy.
func (c *MTP) Validate() error { return validConfidence(c.MinConfidence) }

// Provision implements Strategy. The model must have been loaded with its MTP
// module, unless Head names one.
func (c *MTP) Provision(env Env) (engine.Drafter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft mtp: %w", err)
	}
	head, err := env.Model.LoadMTP(c.Head)
	if err != nil {
		return nil, fmt.Errorf("draft mtp: %w", err)
	}
	return newChain("mtp", head.Tokens(), chained{
		m: env.Model, layer: head.Layer(), taps: head.Taps(),
		open: func(rows, spans int) (network, error) { return head.New(rows, spans) },
	}, env, chainOptions{sampled: c.Sample, least: c.MinConfidence}), nil
}
