package draft

import "exacta.dev/exacta/engine"

func init() {
	Register(Info{
		Name:    "none",
		Summary: "no drafts: plain decoding, one token a step",
		New:     func() Strategy { return &None{} },
	})
}

// None configures plain decoding. It has no settings.
type None struct{}

// Validate implements Strategy.
func (*None) Validate() error { return nil }

// Provision implements Strategy: there is no drafter.
func (*None) Provision(Env) (engine.Drafter, error) { return nil, nil }
