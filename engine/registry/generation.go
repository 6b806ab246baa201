package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"exacta.dev/exacta/engine/sample"
)

// generationFile has the sampling parameters that a model was published with.
const generationFile = "generation_config.json"

// Sampling returns the sampling parameters that the model's generation_config.json
// recommends, as serving engines take them: temperature 1 and nothing else where it
// says nothing.
func (e *Entry) Sampling() (sample.Params, error) {
	p := sample.Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1}
	if e.ck == nil {
		return p, nil
	}
	text, err := e.ck.ReadFile(generationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("model %s: %w", e.Name, err)
	}
	var g struct {
		Temperature       *float32 `json:"temperature"`
		TopP              *float32 `json:"top_p"`
		TopK              *int     `json:"top_k"`
		MinP              *float32 `json:"min_p"`
		RepetitionPenalty *float32 `json:"repetition_penalty"`
	}
	if err := json.Unmarshal(text, &g); err != nil {
		return p, fmt.Errorf("model %s: %s: %w", e.Name, generationFile, err)
	}
	for _, f := range []struct{ from, to *float32 }{
		{g.Temperature, &p.Temperature}, {g.TopP, &p.TopP}, {g.MinP, &p.MinP}, {g.RepetitionPenalty, &p.RepetitionPenalty},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if g.TopK != nil {
		p.TopK = *g.TopK
	}
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("model %s: %s: %w", e.Name, generationFile, err)
	}
	return p, nil
}
