package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
)

// PooledShare says which layers share groups and choices (DeepSeek-V4.1).
type PooledShare struct {
	// Source is, by layer, the layer whose groups it sees, itself or an earlier
	// one; -1: it has none.
	Source []int
	// Candidates is the layer whose index also chooses the Blocks best blocks of
	// BlockSize groups, within which the indexes behind it choose; -1: none.
	Candidates, Blocks, BlockSize int
}

// parseDeepseekV41 reads the fields of DeepSeek-V4.1, text part.
func parseDeepseekV41(f *fields, c *Config) {
	c.parsePooled(f)
	c.LayerTypes = slices.Repeat([]LayerKind{FullAttention}, c.NumLayers)
	c.pooledRopes(f)
	c.Index = Index{
		Heads: f.integer("index_n_heads", 1, maxHeads),
		Dim:   f.integer("index_head_dim", 2, maxHeadDim),
		TopK:  f.integer("index_topk", 1, maxPositions),
	}
	if c.Index.Dim%2 != 0 || c.Index.Dim < c.Pooled.Rope {
		f.fail("index_head_dim", strconv.Itoa(c.Index.Dim), fmt.Sprintf("it must be even and at least the %d channels that are rotated", c.Pooled.Rope))
	}
	f.has("num_nextn_predict_layers") // stages of a draft, which is not run
	c.sharedLayers(f)
	c.parseHyper(f)
	c.parsePooledMoE(f)
	c.experts(f)
	if v, ok := f.optNumber("gate_temp", 0, 1e6); ok && v != 1 {
		f.fail("gate_temp", strconv.FormatFloat(v, 'g', -1, 64), "logits of routers must be taken as they are (1)")
	}
	if v := f.raw("engram_layer_ids"); v != nil && string(v) != "[]" {
		f.fail("engram_layer_ids", string(v), "the n-gram tables of this family are not supported ([] would be right)")
	}
}

// sharedLayers reads the groups of each layer, and which layers make them and choose.
func (c *Config) sharedLayers(f *fields) {
	var ratios, sources, indexes []int
	if !f.decode("compress_ratios", &ratios, "a list of integers") || len(ratios) < c.NumLayers {
		f.fail("compress_ratios", fmt.Sprintf("a list of %d", len(ratios)), fmt.Sprintf("it must have an entry for each of num_hidden_layers = %d layers", c.NumLayers))
		return
	}
	ratios = ratios[:c.NumLayers] // those of draft layers stand behind
	f.decode("kv_source_layer_ids", &sources, "a list of layer numbers")
	f.decode("index_source_layer_ids", &indexes, "a list of layer numbers")
	p := &c.Pooled
	p.Ratios, p.Overlap = ratios, make([]bool, c.NumLayers)
	p.Share = &PooledShare{Source: make([]int, c.NumLayers), Candidates: -1}
	c.Index.Own = make([]bool, c.NumLayers)
	source := -1
	for i, n := range ratios {
		p.Share.Source[i] = -1
		if n < 0 || n > maxGroup {
			f.fail(fmt.Sprintf("compress_ratios[%d]", i), strconv.Itoa(n), fmt.Sprintf("it must be from 0 to %d", maxGroup))
			return
		}
		makes, chooses := slices.Contains(sources, i), slices.Contains(indexes, i)
		if makes {
			source = i
		}
		switch {
		case n == 0 && (makes || chooses):
			f.fail(fmt.Sprintf("compress_ratios[%d]", i), "0", "a layer of kv_source_layer_ids or index_source_layer_ids must have groups")
			return
		case n == 0:
			continue
		case source < 0 || ratios[source] != n:
			f.fail(fmt.Sprintf("compress_ratios[%d]", i), strconv.Itoa(n), "a layer with groups must stand at or behind one of kv_source_layer_ids of the same ratio")
			return
		case makes && !chooses:
			f.fail("index_source_layer_ids", fmt.Sprint(indexes), fmt.Sprintf("it must have layer %d, which is one of kv_source_layer_ids", i))
			return
		}
		p.Share.Source[i], c.Index.Own[i] = source, chooses
	}
	if at, ok := f.optInteger("candidate_source_layer_id", -1, maxLayers); ok && at >= 0 {
		if at >= c.NumLayers || !c.Index.Own[at] {
			f.fail("candidate_source_layer_id", strconv.Itoa(at), "it must be one of index_source_layer_ids, or -1")
			return
		}
		p.Share.Candidates = at
		p.Share.Blocks = f.integer("candidate_topk_blocks", 1, maxPositions)
		p.Share.BlockSize = f.integer("candidate_block_size", 1, maxPositions)
	}
}

// sharedJSON adds the keys of DeepSeek-V4.1, in the publisher's layout.
func (c Config) sharedJSON(out map[string]any) {
	s := c.Pooled.Share
	delete(out, "layer_types")
	delete(out, "compress_rates")
	delete(out, "mlp_layer_types")
	var sources, indexes []int
	for i, at := range s.Source {
		if at == i {
			sources = append(sources, i)
		}
		if c.Index.Own[i] {
			indexes = append(indexes, i)
		}
	}
	out["compress_ratios"], out["kv_source_layer_ids"], out["index_source_layer_ids"] = c.Pooled.Ratios, sources, indexes
	out["candidate_source_layer_id"], out["norm_topk_prob"] = s.Candidates, c.MoE.Normalize
	if s.Candidates >= 0 {
		out["candidate_topk_blocks"], out["candidate_block_size"] = s.Blocks, s.BlockSize
	}
}
