package sample

import (
	"fmt"
	"math"

	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/kernels"
)

// Params are a request's sampling parameters, as vLLM and the OpenAI surface
// name them. The zero value with RepetitionPenalty 1 and TopP 1 is greedy.
type Params struct {
	Temperature       float32 // 0 is greedy
	TopK              int     // 0 or -1 is off
	TopP              float32 // 1 is off; 0 means 1
	MinP              float32 // 0 is off
	RepetitionPenalty float32 // 1 is off; 0 means 1
	PresencePenalty   float32
	FrequencyPenalty  float32
	Seed              uint64
	Choice            uint32 // index among n > 1 answers
	// LogitBias is added to logits: "id:bias,...", see FormatBias. Text, so
	// that parameters can be compared and stored.
	LogitBias string
	// Grammar is a pattern that the whole output matches (package grammar);
	// empty is off. The sampler needs it compiled: Sampler.Constrain.
	Grammar string
}

// Greedy reports whether the choice is an argmax.
func (p Params) Greedy() bool { return p.Temperature == 0 }

// Plain reports whether the choice is the argmax of the raw logits, so that a
// device can take it without the host seeing a logit.
func (p Params) Plain() bool {
	return p.Greedy() && p.LogitBias == "" && p.Grammar == "" && (p.RepetitionPenalty == 0 || p.RepetitionPenalty == 1) && p.PresencePenalty == 0 && p.FrequencyPenalty == 0
}

// Drawn reports whether tokens are drawn from all of a row, or from those that min-p
// leaves, by the logits as they are: a device can then draw them without the host
// seeing a logit.
func (p Params) Drawn() bool {
	raw := p
	raw.Temperature = 0
	return !p.Greedy() && raw.Plain() && p.TopK <= 0 && (p.TopP <= 0 || p.TopP >= 1)
}

// Drawing is the row that tells a device how to draw; see kernels.DrawRow.
func (p Params) Drawing() (row [kernels.DrawCols]int32) {
	row[kernels.DrawTemperature], row[kernels.DrawMinP] = int32(math.Float32bits(p.Temperature)), int32(math.Float32bits(p.MinP))
	row[kernels.DrawSeedLo], row[kernels.DrawSeedHi], row[kernels.DrawChoice] = int32(uint32(p.Seed)), int32(uint32(p.Seed>>32)), int32(p.Choice)
	return row
}

// Validate names the first parameter out of range. Whether token ids are in the
// vocabulary is for ValidateFor.
func (p Params) Validate() error { return p.ValidateFor(math.MaxInt32) }

// ValidateFor is Validate for a vocabulary of so many tokens.
func (p Params) ValidateFor(vocab int) error {
	switch {
	case !(p.Temperature >= 0 && p.Temperature <= 100):
		return fmt.Errorf("temperature %v is out of range 0..100", p.Temperature)
	case p.TopK < -1:
		return fmt.Errorf("top_k %d is out of range: -1 or 0 (off) or a positive number", p.TopK)
	case !(p.TopP >= 0 && p.TopP <= 1):
		return fmt.Errorf("top_p %v is out of range 0..1", p.TopP)
	case !(p.MinP >= 0 && p.MinP <= 1):
		return fmt.Errorf("min_p %v is out of range 0..1", p.MinP)
	case !(p.RepetitionPenalty >= 0 && p.RepetitionPenalty <= 10):
		return fmt.Errorf("repetition_penalty %v is out of range 0..10", p.RepetitionPenalty)
	case !(p.PresencePenalty >= -2 && p.PresencePenalty <= 2):
		return fmt.Errorf("presence_penalty %v is out of range -2..2", p.PresencePenalty)
	case !(p.FrequencyPenalty >= -2 && p.FrequencyPenalty <= 2):
		return fmt.Errorf("frequency_penalty %v is out of range -2..2", p.FrequencyPenalty)
	}
	biases, err := parseBias(p.LogitBias)
	if err != nil {
		return err
	}
	if n := len(biases); n > 0 && int(biases[n-1].id) >= vocab {
		return fmt.Errorf("logit_bias of token %d; the vocabulary is 0..%d", biases[n-1].id, vocab-1)
	}
	if p.Grammar == "" {
		return nil
	}
	return grammar.Check(p.Grammar)
}
