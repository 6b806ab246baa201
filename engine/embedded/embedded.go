//go:build !noembed

package embedded

import (
	"embed"
	"io/fs"
)

//go:embed config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json prompts.jsonl MODEL_CARD.md heads
var assets embed.FS

// FS returns the embedded model folder. Its root holds config.json, generation_config.json, model.safetensors,
// tokenizer.json, tokenizer_config.json, prompts.jsonl, MODEL_CARD.md and the folder heads. The error is always nil in this build; a build
// with the tag `noembed` returns ErrAbsent.
func FS() (fs.FS, error) {
	return assets, nil
}
