package checkpoint

import "strings"

// NormalName gives the name under which a tensor of a file is known here, and
// whether it is one that the engine uses. "language_model." is dropped where a
// multimodal wrapper put it, "model.mtp." becomes "mtp.", and the vision tower
// ("model.visual.", "visual.") and stored rotary tables
// ("rotary_emb.inv_freq", which follow from the config) are not used.
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
	switch {
	case strings.HasPrefix(name, "model.visual."), strings.HasPrefix(name, "visual."):
		return name, false
	case strings.HasSuffix(name, ".rotary_emb.inv_freq"):
		return name, false
	}
	return name, true
}
