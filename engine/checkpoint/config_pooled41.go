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
	c.sharedLayers(f)
	c.parseHyper(f)
	c.parsePooledMoE(f)
	c.experts(f)
	if v, ok := f.optNumber("gate_temp", 0, 1e6); ok && v != 1 {
		f.fail("gate_temp", strconv.FormatFloat(v, 'g', -1, 64), "logits of routers must be taken as they are (1)")
	}
	c.parseEngram(f)
	c.parseSpark(f)
}

// Spark is the shape of the draft module of DeepSeek-V4.1 (DSpark): layers like those of
// the trunk, with a window alone, that fill in a block of tokens together.
type Spark struct {
	Stages            int // layers; 0: no module
	Block             int // tokens of a block: the last one, and masked ones
	Mask              int32
	Taps              []int // layers of the trunk whose inputs it reads, ascending
	Rank              int   // width of the Markov head
	Experts, PerToken int
}

// parseSpark reads the draft module.
func (c *Config) parseSpark(f *fields) {
	stages, _ := f.optInteger("num_nextn_predict_layers", 0, maxLayers)
	if f.raw("dspark_block_size") == nil || stages == 0 {
		return
	}
	s := Spark{
		Stages: stages, Block: f.integer("dspark_block_size", 1, maxDraftBlock), Mask: int32(f.integer("dspark_noise_token_id", 0, c.VocabSize-1)),
		Rank: f.integer("dspark_markov_rank", 1, maxMarkov), Experts: c.MoE.Experts, PerToken: c.MoE.PerToken,
	}
	if n, ok := f.optInteger("dspark_n_routed_experts", 1, maxExperts); ok {
		s.Experts = n
	}
	if n, ok := f.optInteger("dspark_num_experts_per_tok", 1, maxExperts); ok {
		s.PerToken = n
	}
	if s.PerToken > s.Experts {
		f.fail("dspark_num_experts_per_tok", strconv.Itoa(s.PerToken), fmt.Sprintf("it can't be above dspark_n_routed_experts, which is %d", s.Experts))
	}
	f.decode("dspark_target_layer_ids", &s.Taps, "a list of layer numbers")
	if len(s.Taps) == 0 || !slices.IsSorted(s.Taps) {
		f.fail("dspark_target_layer_ids", fmt.Sprint(s.Taps), "it must list layers in ascending order")
	}
	for i, n := range s.Taps {
		switch {
		case n < 0 || n >= c.NumLayers:
			f.fail(fmt.Sprintf("dspark_target_layer_ids[%d]", i), strconv.Itoa(n), fmt.Sprintf("layers are 0 to %d", c.NumLayers-1))
		case slices.Contains(c.Grams.Layers, n): // read behind its n-grams, which nothing taps
			f.fail(fmt.Sprintf("dspark_target_layer_ids[%d]", i), strconv.Itoa(n), "a layer of engram_layer_ids can't be read")
		}
	}
	c.Spark = s
}

// parseEngram reads the tables of n-grams.
func (c *Config) parseEngram(f *fields) {
	var ids []int
	if !f.decode("engram_layer_ids", &ids, "a list of layer numbers") || len(ids) == 0 {
		return
	}
	if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) || ids[0] < 0 || ids[len(ids)-1] >= c.NumLayers {
		f.fail("engram_layer_ids", fmt.Sprint(ids), fmt.Sprintf("layers are 0 to %d, each once and in ascending order", c.NumLayers-1))
		return
	}
	g := Grams{
		Layers: ids, Size: f.integer("engram_max_ngram_size", 2, maxGram), Heads: f.integer("engram_n_heads", 1, maxHashes),
		Base: f.integer("engram_vocab_size", 2, maxRows), Alike: f.integer("engram_compressed_vocab_size", 1, maxVocab), Pad: 2,
	}
	g.Width = g.Columns() * f.integer("engram_head_dim", 2, maxWidth)
	for _, key := range []string{"engram_pad_token_id", "engram_pad_id"} {
		if n, ok := f.optInteger(key, 0, c.VocabSize-1); ok {
			g.Pad = int32(n)
		}
	}
	f.decode("engram_num_embeddings", &g.Rows, "a list of the rows of each table")
	switch n := g.Columns(); {
	case len(g.Rows) != len(ids):
		f.fail("engram_num_embeddings", fmt.Sprintf("a list of %d", len(g.Rows)), fmt.Sprintf("it must have an entry for each of the %d layers of engram_layer_ids", len(ids)))
	case n > maxHashes:
		f.fail("engram_n_heads", strconv.Itoa(g.Heads), fmt.Sprintf("with engram_max_ngram_size %d a token has %d hashes; there may be %d", g.Size, n, maxHashes))
	case g.Width%2 != 0 || g.Width > maxWidth:
		f.fail("engram_head_dim", strconv.Itoa(g.Width/max(1, n)), fmt.Sprintf("the embeddings of %d hashes together must be even and at most %d", n, maxWidth))
	case slices.Max(g.Rows) > maxRows || slices.Min(g.Rows) < 1:
		f.fail("engram_num_embeddings", fmt.Sprint(g.Rows), fmt.Sprintf("a table has 1 to %d rows", maxRows))
	}
	c.Grams = g
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
	if g := c.Grams; len(g.Layers) > 0 {
		out["engram_layer_ids"], out["engram_max_ngram_size"], out["engram_n_heads"], out["engram_vocab_size"] = g.Layers, g.Size, g.Heads, g.Base
		out["engram_head_dim"], out["engram_num_embeddings"] = g.Width/g.Columns(), g.Rows
		out["engram_compressed_vocab_size"], out["engram_pad_token_id"] = g.Alike, g.Pad
	}
	if d := c.Spark; d.Stages > 0 {
		out["num_nextn_predict_layers"], out["dspark_block_size"], out["dspark_noise_token_id"] = d.Stages, d.Block, d.Mask
		out["dspark_target_layer_ids"], out["dspark_markov_rank"] = d.Taps, d.Rank
		out["dspark_n_routed_experts"], out["dspark_num_experts_per_tok"] = d.Experts, d.PerToken
	}
}
