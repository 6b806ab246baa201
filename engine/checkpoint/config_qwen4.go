package checkpoint

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Streams are residual streams (hyper-connections, arXiv:2409.19606).
type Streams struct {
	Count int // of a token; 0: one plain residual
	Rank  int // of what mixes them (Qwen4Exp)
	// Of DeepSeek-V4: normalisations of the matrix that mixes them, and what is
	// added in it.
	Iters int
	Eps   float64
}

// Grams is the shape of the tables of hashed n-gram embeddings (Engram,
// arXiv:2601.07372).
type Grams struct {
	Layers []int // that have one, ascending
	Size   int   // tokens of the longest n-gram
	Heads  int   // hashes of each length from 2 on
	Width  int   // of all embeddings of a token together
	Base   int   // rows of a hash: the primes from here on
	// Of Qwen4Exp: of which the rows of a table are a multiple, the tensors that it lies
	// in, the taps of the convolution behind it, and the seed of the hashes.
	Multiple, Parts, Taps, Seed int
	// Of DeepseekV41: the rows of each layer's table, the numbers that tokens have by
	// what they say (tokenizer.Tokenizer.Alike), and the token that stands where there
	// is none.
	Rows  []int
	Alike int
	Pad   int32
}

// Columns is the number of hashes of a token.
func (g Grams) Columns() int { return (g.Size - 1) * g.Heads }

// Bounds of n-gram tables: the rows of one are numbered by 31 bits.
const (
	maxStreams    = 16
	maxGram       = 8
	maxHashes     = 64
	maxRows       = math.MaxInt32
	maxGramLayers = 64
)

// parseQwen4Exp reads the fields of Qwen4-Exp, text part.
func parseQwen4Exp(f *fields, c *Config) {
	c.parseHybrid(f)
	c.blockLayers(f)
	c.parseGDN(f)
	c.parseRope(f, ropeDefaults{theta: 10000, partial: 1, any: true, mrope: true})
	if !c.AttnOutputGate {
		f.fail("attn_output_gate", "false", "attention of this family has an output gate (true)")
	}
	c.parseSharedMoE(f)
	c.experts(f)
	if slices.Contains(c.Sparse, false) {
		f.fail("mlp_only_layers", string(f.m["mlp_only_layers"]), "all layers of this family are mixtures")
	}
	c.Streams = Streams{Count: 4, Rank: 320}
	if n, ok := f.optInteger("hc_count", 2, maxStreams); ok {
		c.Streams.Count = n
	}
	if n, ok := f.optInteger("hc_lowrank", 2, maxWidth); ok {
		c.Streams.Rank = n
	}
	if c.Streams.Rank%2 != 0 {
		f.fail("hc_lowrank", strconv.Itoa(c.Streams.Rank), "it must be even")
	}
	c.parseBlockIndex(f)
	c.parsePLE(f)
}

// blockLayers reads layer_types, in which newer versions of transformers write names of
// their own for attention to chosen blocks.
func (c *Config) blockLayers(f *fields) {
	const sparse, indexed LayerKind = "qwen_sparse_attention", "indexed_attention"
	c.layerTypes(f, FullAttention, LinearAttention, sparse, indexed)
	for i, kind := range c.LayerTypes {
		if kind == sparse || kind == indexed {
			c.LayerTypes[i] = FullAttention
		}
	}
}

// parseBlockIndex reads the index of attention to blocks of keys; without its keys
// attention is to all.
func (c *Config) parseBlockIndex(f *fields) {
	keys := []string{"indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio"}
	if !slices.ContainsFunc(keys, f.has) {
		return
	}
	c.Index = Index{
		Heads: f.integer("indexer_n_heads", 1, maxHeads),
		Dim:   f.integer("indexer_head_dim", 2, maxHeadDim),
		TopK:  f.integer("indexer_budget", 1, maxPositions),
		Ratio: f.integer("indexer_compress_ratio", 1, maxPositions),
		Own:   slices.Repeat([]bool{true}, c.NumLayers),
	}
	if n := f.integer("indexer_kv_heads", 1, maxHeads); n > 1 {
		f.fail("indexer_kv_heads", strconv.Itoa(n), "the keys of an index are one head (1)")
	}
	if d := c.Index.Dim; d%2 != 0 || d < c.RotaryDim() {
		f.fail("indexer_head_dim", strconv.Itoa(d), fmt.Sprintf("it must be even and at least the rotated channels of a head, which are %d", c.RotaryDim()))
	}
	if r := c.Index.Ratio; r > 0 && c.Index.TopK%r != 0 {
		f.fail("indexer_budget", strconv.Itoa(c.Index.TopK), fmt.Sprintf("it must be a multiple of indexer_compress_ratio, which is %d", r))
	}
}

// parsePLE reads the n-gram embeddings.
func (c *Config) parsePLE(f *fields) {
	var ids []int
	f.decode("ple_layer_ids", &ids, "a list of layer numbers from 1 on")
	g := Grams{Width: c.HiddenSize, Taps: 4, Size: 3, Heads: 8, Base: 20_000_000, Multiple: 128, Parts: 512, Seed: 1234}
	for _, k := range []struct {
		key       string
		dst       *int
		low, high int
	}{
		{"ple_embed_dim", &g.Width, 1, maxWidth}, {"ple_conv_kernel_size", &g.Taps, 1, maxStreams},
		{"ngram_size", &g.Size, 2, maxGram}, {"heads_per_ngram", &g.Heads, 1, maxHashes},
		{"ngram_vocab_size_base", &g.Base, 2, maxRows}, {"make_ngram_vocab_size_divisible_by", &g.Multiple, 1, maxVocab},
		{"split_ngram_parts", &g.Parts, 1, maxVocab}, {"seed", &g.Seed, 0, math.MaxInt64},
	} {
		if v, ok := f.optInteger(k.key, k.low, k.high); ok {
			*k.dst = v
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) > maxGramLayers {
		f.fail("ple_layer_ids", fmt.Sprintf("a list of %d", len(ids)), fmt.Sprintf("at most %d layers may have n-gram embeddings", maxGramLayers))
		return
	}
	for i, id := range ids {
		if id < 1 || id > c.NumLayers {
			f.fail(fmt.Sprintf("ple_layer_ids[%d]", i), strconv.Itoa(id), fmt.Sprintf("layers are 1 to num_hidden_layers, which is %d", c.NumLayers))
		}
		g.Layers = append(g.Layers, id-1)
	}
	// Primes lie closer than 400 below 2^31, so that this bounds a table's last row.
	const gap = 400
	switch n := g.Columns(); {
	case n > maxHashes:
		f.fail("heads_per_ngram", strconv.Itoa(g.Heads), fmt.Sprintf("with ngram_size %d a token has %d hashes; there may be %d", g.Size, n, maxHashes))
	case n > 0 && (g.Width%n != 0 || g.Width%2 != 0):
		f.fail("ple_embed_dim", strconv.Itoa(g.Width), fmt.Sprintf("it must be even, and a multiple of the %d hashes of a token", n))
	case n*(g.Base+gap*n*len(g.Layers))+g.Multiple > maxRows:
		f.fail("ngram_vocab_size_base", strconv.Itoa(g.Base), fmt.Sprintf("a table of %d hashes may have %d rows", n, maxRows))
	case len(c.EOS) == 0:
		f.fail("eos_token_id", "", "n-grams end at it, so that it must be given")
	}
	c.Grams = g
}

// qwen4JSON adds the keys of streams, of an index of blocks, and of n-gram embeddings.
func (c Config) qwen4JSON(out map[string]any) {
	if c.Family != Qwen4Exp {
		return
	}
	out["hc_count"], out["hc_lowrank"] = c.Streams.Count, c.Streams.Rank
	if x := c.Index; x.Ratio > 0 {
		out["indexer_n_heads"], out["indexer_kv_heads"], out["indexer_head_dim"] = x.Heads, 1, x.Dim
		out["indexer_budget"], out["indexer_compress_ratio"] = x.TopK, x.Ratio
	}
	g := c.Grams
	if len(g.Layers) == 0 {
		return
	}
	ids := make([]int, len(g.Layers))
	for i, layer := range g.Layers {
		ids[i] = layer + 1
	}
	out["ple_layer_ids"], out["ple_embed_dim"], out["ple_conv_kernel_size"] = ids, g.Width, g.Taps
	out["ngram_size"], out["heads_per_ngram"], out["ngram_vocab_size_base"] = g.Size, g.Heads, g.Base
	out["make_ngram_vocab_size_divisible_by"], out["split_ngram_parts"], out["seed"] = g.Multiple, g.Parts, g.Seed
}
