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
	// Sample draws the drafts of requests with a temperature from the
	// module's own distribution, processed as the request asks, instead of
	// taking its argmax. The rejection and block rules then know the true
	// distribution of each draft; under the coupled rule drafts are drawn
	// with the target's own noise. Requests at temperature 0 don't notice.
	Sample bool `yaml:"sample" json:"sample"`
}

// Validate implements Strategy.
func (*MTP) Validate() error { return nil }

// Provision implements Strategy. The model must have been loaded with its MTP
// module.
func (c *MTP) Provision(env Env) (engine.Drafter, error) {
	if _, ok := env.Model.MTPLayer(); !ok {
		return nil, fmt.Errorf("draft mtp: model %s has no MTP module (mtp.* tensors); use another strategy", env.Model.Name)
	}
	layer, _ := env.Model.MTPLayer()
	return newChain("mtp", nil, chained{
		m: env.Model, layer: layer,
		open: func(rows, spans int) (network, error) { return env.Model.MTP(rows, spans) },
	}, env, c.Sample), nil
}
