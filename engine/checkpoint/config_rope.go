package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// ropeDefaults is what a family takes where its config is silent; theta 0
// means that the key is required.
type ropeDefaults struct {
	theta   float64
	partial float64
	mrope   bool // the three position rows of a multimodal model are accepted
	yarn    bool // so is this scaling
	any     bool // partial is 1, and a file may say another share
}

// parseRope reads the rotary embedding from rope_parameters (newer files), or
// from rope_theta, rope_scaling and partial_rotary_factor at the level of the
// model (older ones). A key that is given twice must have one value.
func (c *Config) parseRope(f *fields, def ropeDefaults) {
	scaling := f.mergeRope()
	c.Rope.Theta = def.theta
	if v, ok := scaling.optNumber("rope_theta", 0, 1e12); ok {
		c.Rope.Theta = v
	} else if def.theta == 0 {
		f.fail("rope_theta", "", "it must be given, here or in rope_parameters")
	}
	c.Rope.PartialFactor = def.partial
	if v, ok := scaling.optNumber("partial_rotary_factor", 0, 1); ok {
		c.Rope.PartialFactor = v
	}
	if def.partial == 1 && !def.any && c.Rope.PartialFactor != 1 {
		scaling.fail("partial_rotary_factor", strconv.FormatFloat(c.Rope.PartialFactor, 'g', -1, 64), "models of this type rotate whole heads")
	}
	dim := float64(c.HeadDim) * c.Rope.PartialFactor
	if dim < 2 || math.Mod(dim, 2) != 0 {
		f.fail("head_dim", strconv.Itoa(c.HeadDim), fmt.Sprintf("the rotated part, %g of it, must be an even number of channels", c.Rope.PartialFactor))
	}
	c.parseRopeType(scaling, def)
	for _, key := range []string{"mrope_section", "mrope_interleaved"} {
		if scaling.has(key) && !def.mrope {
			scaling.fail(key, string(scaling.m[key]), "models of this type have one row of positions")
		}
	}
	if left := scaling.unread(nil); len(left) > 0 {
		key := left[0][len(scaling.path):]
		scaling.fail(key, string(scaling.m[key]), "this rotary option is not known")
	}
}

func (c *Config) parseRopeType(s *fields, def ropeDefaults) {
	name := s.text("rope_type", "")
	if legacy := s.text("type", ""); name == "" {
		name = legacy
	}
	switch {
	case name == "", name == string(RopeDefault), name == "mrope" && def.mrope:
		c.Rope.Type = RopeDefault
	case name == string(RopeLinear):
		c.Rope.Type = RopeLinear
		c.Rope.Factor = s.number("factor", 0, 1e6)
	case name == string(RopeLlama3):
		c.Rope.Type = RopeLlama3
		c.Rope.Factor = s.number("factor", 0, 1e6)
		c.Rope.LowFreq = s.number("low_freq_factor", 0, 1e6)
		c.Rope.HighFreq = s.number("high_freq_factor", 0, 1e6)
		c.Rope.OriginalSize = s.integer("original_max_position_embeddings", 1, maxPositions)
		if c.Rope.HighFreq <= c.Rope.LowFreq {
			s.fail("high_freq_factor", strconv.FormatFloat(c.Rope.HighFreq, 'g', -1, 64), fmt.Sprintf("it must be above low_freq_factor, which is %g", c.Rope.LowFreq))
		}
	case name == string(RopeYaRN) && def.yarn:
		c.parseYaRN(s)
	default:
		known := "known are default, linear, llama3"
		if def.yarn {
			known += ", yarn"
		}
		s.fail("rope_type", strconv.Quote(name), known)
	}
}

// mergeRope gathers the rotary keys of both layouts in one object.
func (f *fields) mergeRope() *fields {
	out := &fields{file: f.file, path: f.path + "rope_parameters.", m: map[string]json.RawMessage{}, used: map[string]bool{}, err: f.err}
	if !f.has("rope_parameters") {
		out.path = f.path + "rope_scaling."
	}
	add := func(from *fields, key, label string) {
		v := from.raw(key)
		if v == nil {
			return
		}
		if old, ok := out.m[key]; ok && !sameJSON(old, v) {
			from.fail(key, string(v), fmt.Sprintf("%s gives %s; the two must agree", label, shorten(string(old))))
			return
		}
		out.m[key] = v
	}
	label := f.path + "rope_parameters"
	for _, name := range []string{"rope_parameters", "rope_scaling"} {
		if sub := f.object(name); sub != nil {
			for _, key := range slices.Sorted(maps.Keys(sub.m)) {
				add(sub, key, label)
			}
			label = sub.path[:len(sub.path)-1]
		}
	}
	for _, key := range []string{"rope_theta", "partial_rotary_factor"} {
		add(f, key, label)
	}
	return out
}

// sameJSON compares two JSON values, numbers by value.
func sameJSON(a, b json.RawMessage) bool {
	var x, y float64
	if json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil {
		return x == y
	}
	return bytes.Equal(bytes.Join(bytes.Fields(a), nil), bytes.Join(bytes.Fields(b), nil))
}
