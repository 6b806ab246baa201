package checkpoint

import "strconv"

// Bounds of what drafts blocks: the width of a Markov head, and the rows of a block.
const (
	maxMarkov     = 4096
	maxDraftBlock = 64
)

// parseBlock reads the configuration of a head that drafts blocks: dflash, dspark.
// The keys of the block stand in dflash_config, or, of a DSpark head, at the top.
func (c *HeadConfig) parseBlock(top, body *fields) {
	c.widths(top, body)
	c.Block = top.integer("block_size", 1, maxDraftBlock)
	d := top.object("dflash_config")
	if d == nil {
		if c.Kind == HeadDFlash {
			top.fail("dflash_config", "", "it must be an object with mask_token_id and target_layer_ids")
			return
		}
		d = top
	}
	c.Mask = int32(d.integer("mask_token_id", 0, c.Layer.VocabSize-1))
	if !d.boolean("causal", false) && !top.boolean("causal", false) {
		d.fail("causal", "false", "attention inside the block must be causal (true)")
	}
	switch {
	case top.has("aux_hidden_state_layer_ids"): // as the speculators library counts
		c.taps(top, "aux_hidden_state_layer_ids", 0)
	case d.has("target_layer_ids"):
		c.taps(d, "target_layer_ids", 1)
	default:
		c.taps(top, "target_layer_ids", 1)
	}
	if c.Taps == nil {
		d.fail("target_layer_ids", "", "it must list the target's layers whose outputs the head reads")
	}
	if c.Kind == HeadDSpark {
		c.parseDSpark(top)
	}
	if c.Block < 2 && !c.Anchor {
		top.fail("block_size", strconv.Itoa(c.Block), "a block has the last token and at least one masked place")
	}
}

// parseDSpark reads what a DSpark head has beside its DFlash backbone.
func (c *HeadConfig) parseDSpark(top *fields) {
	c.MarkovRank = top.integer("markov_rank", 1, maxMarkov)
	if t := top.text("markov_head_type", "vanilla"); t != "vanilla" {
		top.fail("markov_head_type", strconv.Quote(t), `only "vanilla" is supported`)
	}
	c.Anchor = top.boolean("sample_from_anchor", !top.has("speculators_model_type"))
	c.Confidence = top.boolean("enable_confidence_head", true)
	c.ConfidenceMarkov = top.boolean("confidence_head_with_markov", true)
	if r, ok := top.optInteger("draft_adapter_rank", 0, maxWidth); ok && r > 0 {
		top.fail("draft_adapter_rank", strconv.Itoa(r), "an adapter in front of the LM head is not supported")
	}
}
