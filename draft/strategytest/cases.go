package strategytest

import (
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
)

const (
	maxTokens = 256
	vocab     = 61
)

// tiny is a hybrid of three recurrent layers and one of attention, with a
// multi-token-prediction module. Its widths are ones that heads of 4 bits can have.
func tiny() model.Source {
	return model.Random{ShapeName: "strategytest", Seed: 11, Shape: checkpoint.Config{
		ModelType: "qwen3_5_text", Family: checkpoint.Qwen3_5,
		HiddenSize: 64, IntermediateSize: 96, NumLayers: 4, NumHeads: 4, NumKVHeads: 2, HeadDim: 24,
		VocabSize: vocab, MaxPositions: maxTokens, RMSEps: 1e-6, TieEmbeddings: true, AttnOutputGate: true, MTPLayers: 1, BOS: -1,
		Rope:       checkpoint.Rope{Type: checkpoint.RopeDefault, Theta: 1e4, PartialFactor: 0.25},
		LayerTypes: []checkpoint.LayerKind{checkpoint.LinearAttention, checkpoint.LinearAttention, checkpoint.LinearAttention, checkpoint.FullAttention},
		GDN:        checkpoint.GDN{NumKHeads: 2, NumVHeads: 4, KDim: 16, VDim: 16, ConvKernel: 4, OutputGate: checkpoint.SiLU},
	}}
}

// scenario is requests and the engine that they meet.
type scenario struct {
	name     string
	config   engine.Config
	requests []engine.Request
	// preempts says that the engine must run out of pages, hits that the
	// prefix cache must be used.
	preempts, hits bool
}

// cases lists the scenarios.
func cases() []scenario {
	sampled := sample.Params{Temperature: 0.8, TopP: 0.95, Seed: 5}
	return []scenario{
		{name: "one sequence, k 1", config: engine.Config{MaxSequences: 1}, requests: requests(1, 20, 1, sample.Params{})},
		{name: "one sequence, k 8, over window borders", config: engine.Config{MaxSequences: 1}, requests: requests(1, 150, 8, sample.Params{})},
		{name: "five sequences, k 3, chunks of 7", config: engine.Config{MaxSequences: 5, Chunk: 7}, requests: requests(5, 40, 3, sample.Params{})},
		{name: "more requests than slots", config: engine.Config{MaxSequences: 2}, requests: requests(6, 25, 4, sample.Params{})},
		{name: "too few pages", config: engine.Config{MaxSequences: 4, Pages: 5, ExpectedOutput: -1}, requests: requests(4, 150, 4, sample.Params{}), preempts: true},
		{name: "shared prefixes", config: engine.Config{MaxSequences: 2, PrefixCache: true, Snapshots: 8}, requests: alike(6, 25, 4), hits: true},
		{name: "sampled", config: engine.Config{MaxSequences: 3}, requests: requests(3, 50, 4, sampled)},
		{name: "penalties", config: engine.Config{MaxSequences: 3}, requests: requests(3, 50, 4, sample.Params{PresencePenalty: 0.5, RepetitionPenalty: 1.1})},
	}
}

// requests makes n requests of different lengths, whose prompts repeat themselves
// so that prompt lookup finds something. The last of several asks for no drafts.
func requests(n, maxNew, k int, p sample.Params) []engine.Request {
	out := make([]engine.Request, n)
	for i := range out {
		prompt := make([]int32, 5+17*i)
		for j := range prompt {
			prompt[j] = int32((j%(4+i)*7 + i) % vocab)
		}
		p.Choice = uint32(i)
		out[i] = engine.Request{ID: fmt.Sprintf("r%d", i), Prompt: prompt, MaxNew: maxNew + 3*i, Params: p, K: k, IgnoreStop: true}
		if n > 1 && i == n-1 {
			out[i].K = 0
		}
	}
	return out
}

// alike makes n requests that share their first 130 tokens.
func alike(n, maxNew, k int) []engine.Request {
	out := requests(n, maxNew, k, sample.Params{})
	shared := make([]int32, 130)
	for j := range shared {
		shared[j] = int32(j * j % vocab)
	}
	for i := range out {
		out[i].Prompt = append(append([]int32(nil), shared...), int32(i), int32(2*i))
		out[i].K = k
	}
	return out
}
