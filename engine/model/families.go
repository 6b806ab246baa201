package model

import (
	"fmt"

	"exacta.dev/exacta/engine/checkpoint"
)

// families maps a family to its traits; each entry stands in a file of its own
// with what the family is.
var families = map[checkpoint.Family]traits{
	checkpoint.Llama:       llamaTraits,
	checkpoint.Qwen3:       qwen3Traits,
	checkpoint.Qwen3MoE:    qwen3MoETraits,
	checkpoint.Qwen3Next:   qwen3NextTraits,
	checkpoint.Qwen3_5:     qwen35Traits,
	checkpoint.Qwen3_5MoE:  qwen35MoETraits,
	checkpoint.GLM4MoE:     glm4MoETraits,
	checkpoint.DeepseekV3:  deepseekV3Traits,
	checkpoint.DeepseekV32: deepseekV32Traits,
	checkpoint.GLMMoEDSA:   glmMoEDSATraits,
	checkpoint.Qwen4Exp:    qwen4ExpTraits,
	checkpoint.DeepseekV4:  deepseekV4Traits,
	checkpoint.DeepseekV41: deepseekV41Traits,
}

func traitsOf(c checkpoint.Config) (traits, error) {
	t, ok := families[c.Family]
	if !ok {
		return t, fmt.Errorf("config.json: no model code for family %q", c.Family)
	}
	return t, nil
}
