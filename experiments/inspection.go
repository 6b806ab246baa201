package experiments

import "regexp"

// Inspection is what can be said of a model before it runs.
type Inspection struct {
	Model        string   `json:"model"`
	Format       string   `json:"format"` // safetensors, gguf; random for made-up weights
	ModelType    string   `json:"model_type"`
	Architecture string   `json:"architecture"`
	Runs         bool     `json:"runs"` // the engine can run it
	Problems     []string `json:"problems"`
	Hash         string   `json:"hash,omitempty"` // of names, shapes and settings

	Config *InspectConfig `json:"config,omitempty"` // where it could be read

	Files       []InspectFile `json:"files"`
	StoredBytes int64         `json:"stored_bytes"` // of tensors, as stored
	Parameters  int64         `json:"parameters"`   // of tensors that are used
	Types       []InspectPart `json:"types"`        // by stored type
	Parts       []InspectPart `json:"parts"`        // by what they are for

	Tokenizer *InspectTokenizer `json:"tokenizer"` // null: the model has none
	Drafts    []string          `json:"drafts"`    // modules that come with the model: mtp, eagle3, medusa, dflash, dspark

	Missing []string `json:"missing"`  // tensors and files that should be there
	Unused  []string `json:"unused"`   // tensors that nothing asks for
	LeftOut []string `json:"left_out"` // tensors that are left out on purpose, and why: parts other than the text model's
	Unread  []string `json:"unread"`   // keys of the configuration that nothing reads

	Memory *InspectMemory `json:"memory,omitempty"` // where the model could be laid out
}

// InspectConfig is the shape of a model.
type InspectConfig struct {
	Layers           int  `json:"layers"`
	FullAttention    int  `json:"full_attention_layers"`
	LinearAttention  int  `json:"linear_attention_layers"`
	HiddenSize       int  `json:"hidden_size"`
	IntermediateSize int  `json:"intermediate_size"` // 0 where all layers are mixtures of experts
	Experts          int  `json:"experts"`           // routed ones of a layer; 0: no mixture
	ExpertsPerToken  int  `json:"experts_per_token"`
	ExpertSize       int  `json:"expert_size"`
	Heads            int  `json:"heads"`
	KVHeads          int  `json:"kv_heads"`
	HeadDim          int  `json:"head_dim"`
	Vocab            int  `json:"vocab"`
	Context          int  `json:"context"`
	Tied             bool `json:"tied_embeddings"`
}

// InspectFile is a file of weights.
type InspectFile struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// InspectPart is a group of tensors.
type InspectPart struct {
	Name       string `json:"name"`
	Tensors    int    `json:"tensors"`
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"` // as stored
}

// InspectTokenizer describes a tokenizer.
type InspectTokenizer struct {
	Tokens       int      `json:"tokens"`
	Special      int      `json:"special"`
	Before       []string `json:"before"` // put before a text
	EOS          []string `json:"eos"`
	ChatTemplate bool     `json:"chat_template"`
}

// InspectMemory is what a run on the CPU would hold, in bytes, counted by laying it
// out without reading or using anything.
type InspectMemory struct {
	Context     int    `json:"context"`
	Sequences   int    `json:"sequences"`
	Draft       string `json:"draft"`
	Weights     int64  `json:"weights"`
	KV          int64  `json:"kv"`
	State       int64  `json:"state"`
	Activations int64  `json:"activations"`
	Tables      int64  `json:"tables"`
	Total       int64  `json:"total"`
	LeftInFiles int64  `json:"left_in_files"` // tables of n-grams, of which rows are read as they are needed; not in the total
}

// partNames say what a tensor is for, by the first that its name matches.
var partNames = []struct {
	part string
	name *regexp.Regexp
}{
	{"mtp", regexp.MustCompile(`(^|\.)mtp\.|nextn|eh_proj`)},
	{"experts", regexp.MustCompile(`\.experts\.|_exps\.`)},
	{"shared experts", regexp.MustCompile(`shared_expert|_shexp\.`)},
	{"n-gram tables", regexp.MustCompile(`\.ngram_embedding\.|\.engram\.embed\.`)},
	{"n-grams", regexp.MustCompile(`\.ple\.|\.engram\.`)},
	{"streams", regexp.MustCompile(`\.hyper_connection_mixer\.|_hyper_connection\.|\.hc_`)},
	{"embedding", regexp.MustCompile(`embed_tokens|token_embd`)},
	{"head", regexp.MustCompile(`^(language_model\.)?lm_head|^output\.weight`)},
	{"norms", regexp.MustCompile(`norm`)},
	{"linear attention", regexp.MustCompile(`linear_attn|\.ssm_`)},
	{"attention", regexp.MustCompile(`attn`)},
	{"mlp", regexp.MustCompile(`\.mlp\.|\.ffn_`)},
}

func partOf(name string) string {
	for _, p := range partNames {
		if p.name.MatchString(name) {
			return p.part
		}
	}
	return "other"
}
