package checkpoint

import "strings"

// NormalName gives the name under which a tensor of a file is known here, and
// whether it is one that the engine uses. "language_model." is dropped where a
// multimodal wrapper put it, "model.mtp." becomes "mtp.", and the towers of other
// media with their projectors ("model.visual.", "vision_tower." and so on) and stored
// rotary tables ("rotary_emb.inv_freq", which follow from the config) are not used.
func NormalName(source string) (name string, used bool) {
	name = source
	switch {
	case strings.HasPrefix(name, "model.language_model."):
		name = "model." + strings.TrimPrefix(name, "model.language_model.")
	case strings.HasPrefix(name, "language_model."):
		name = strings.TrimPrefix(name, "language_model.")
	}
	if rest, ok := strings.CutPrefix(name, "model.mtp."); ok {
		name = "mtp." + rest
	}
	if strings.HasSuffix(name, ".rotary_emb.inv_freq") {
		return name, false
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(name, "model."), ".")
	return name, !otherMedia[first]
}

// otherMedia are the modules beside the language model in multimodal checkpoints.
var otherMedia = map[string]bool{
	"visual": true, "vision_tower": true, "vision_model": true, "vision_encoder": true, "vision_embed_tokens": true,
	"audio_tower": true, "audio_model": true, "embed_vision": true, "embed_audio": true, "image_newline": true,
	"vision": true, "aligner": true, "image_start": true, "image_end": true, // DeepSeek-V4.1
	"multi_modal_projector": true, "mm_projector": true, "vit_large_projector": true,
}
