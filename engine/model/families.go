package model

import (
	"fmt"

	"exacta.dev/exacta/engine/checkpoint"
)

// families maps a family to its traits; each entry stands in a file of its own
// with what the family is.
var families = map[checkpoint.Family]traits{
	checkpoint.Llama:   llamaTraits,
	checkpoint.Qwen3:   qwen3Traits,
	checkpoint.Qwen3_5: qwen35Traits,
}

func traitsOf(c checkpoint.Config) (traits, error) {
	t, ok := families[c.Family]
	if !ok {
		return t, fmt.Errorf("config.json: no model code for family %q", c.Family)
	}
	return t, nil
}
