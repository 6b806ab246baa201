package checkpoint

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"exacta.dev/exacta/engine/checkpoint/gguf"
)

// The kinds of tokens in tokenizer.ggml.token_type.
const (
	ggufNormal  = 1
	ggufUnknown = 2
	ggufControl = 3
	ggufUser    = 4
	ggufUnused  = 5
	ggufByte    = 6
)

// The split patterns of tokenizer.ggml.pre, as the tokenizer.json of those models
// has them.
const (
	splitLlama3   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitQwen2    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitQwen35   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitDigits3  = `\p{N}{1,3}`
	splitCJK      = `[一-龥぀-ゟ゠-ヿ]+`
	splitDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// component is a part of a tokenizer.json.
type component map[string]any

// byteLevel is the last step of every byte-level pre-tokenizer; regex says that it
// splits by GPT-2's pattern.
func byteLevel(regex bool) component {
	return component{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex}
}

// splits is a chain of patterns that ends in bytes.
func splits(patterns ...string) []component {
	var out []component
	for _, p := range patterns {
		out = append(out, component{"type": "Split", "pattern": component{"Regex": p}, "behavior": "Isolated", "invert": false})
	}
	return append(out, byteLevel(false))
}

// ggufPre is what a tokenizer.ggml.pre means.
type ggufPre struct {
	steps  []component
	nfc    bool
	whole  bool // a word that is a token needs no merges
	addBOS bool // where the file doesn't say
}

var ggufPres = map[string]ggufPre{
	"llama-bpe":        {steps: splits(splitLlama3), whole: true, addBOS: true},
	"llama3":           {steps: splits(splitLlama3), whole: true, addBOS: true},
	"smollm":           {steps: []component{{"type": "Digits", "individual_digits": true}, byteLevel(true)}},
	"gpt-2":            {steps: []component{byteLevel(true)}},
	"qwen2":            {steps: splits(splitQwen2), nfc: true},
	"deepseek-r1-qwen": {steps: splits(splitQwen2), nfc: true},
	"qwen35":           {steps: splits(splitQwen35), nfc: true},
	"glm4":             {steps: splits(splitLlama3)},
	"deepseek-v3":      {steps: splits(splitDigits3, splitCJK, splitDeepSeek), addBOS: true},
}

// ggufVocab is what a file says of its tokenizer.
type ggufVocab struct {
	tokens []string
	kinds  []int64
	merges []string // of byte-level BPE
	pre    ggufPre
	pieces *ggufPieces // of SentencePiece
	bos    int64       // put before a text; -1: none
}

func readVocab(f *gguf.File) (v ggufVocab, err error) {
	model, ok := f.Values["tokenizer.ggml.model"].Text()
	if !ok {
		return v, &fs.PathError{Op: "read", Path: "tokenizer.ggml.model", Err: fs.ErrNotExist}
	}
	if v.tokens, ok = f.Values["tokenizer.ggml.tokens"].Texts(); !ok {
		return v, fmt.Errorf("tokenizer.ggml.tokens is not a list of texts")
	}
	switch model {
	case "gpt2":
		pre, _ := f.Values["tokenizer.ggml.pre"].Text()
		if v.pre, ok = ggufPres[pre]; !ok {
			return v, fmt.Errorf("tokenizer.ggml.pre is %q; known are %s", pre, strings.Join(sortedKeys(ggufPres), ", "))
		}
		if v.merges, ok = f.Values["tokenizer.ggml.merges"].Texts(); !ok {
			return v, fmt.Errorf("tokenizer.ggml.merges is not a list of texts")
		}
	case "llama":
		v.pre.addBOS = true
		if v.pieces, err = readPieces(f, v.tokens); err != nil {
			return v, err
		}
	default:
		return v, fmt.Errorf("tokenizer.ggml.model is %q; known are \"gpt2\", byte-level BPE, and \"llama\", SentencePiece's BPE", model)
	}
	if v.kinds, ok = f.Values["tokenizer.ggml.token_type"].Integers(); !ok || len(v.kinds) != len(v.tokens) {
		return v, fmt.Errorf("tokenizer.ggml.token_type is not a list of %d numbers, one for each token", len(v.tokens))
	}
	v.bos = -1
	add, given := f.Values["tokenizer.ggml.add_bos_token"].Truth()
	if id, ok := f.Values["tokenizer.ggml.bos_token_id"].Integer(); ok && (add || !given && v.pre.addBOS) {
		if id < 0 || id >= int64(len(v.tokens)) {
			return v, fmt.Errorf("tokenizer.ggml.bos_token_id is %d; ids are 0 to %d", id, len(v.tokens)-1)
		}
		v.bos = id
	}
	if add, _ := f.Values["tokenizer.ggml.add_eos_token"].Truth(); add {
		return v, fmt.Errorf("tokenizer.ggml.add_eos_token is true; that is not supported")
	}
	return v, nil
}

// ggufTokenizer makes the tokenizer.json that stands behind a file's vocabulary.
func ggufTokenizer(f *gguf.File) ([]byte, error) {
	v, err := readVocab(f)
	if err != nil {
		return nil, err
	}
	vocab := map[string]int{}
	added := []component{}
	for id, text := range v.tokens {
		kind := v.kinds[id]
		switch {
		case kind == ggufUnused:
			continue
		case !utf8.ValidString(text):
			return nil, fmt.Errorf("tokenizer.ggml.tokens: %d is not valid UTF-8", id)
		}
		if old, ok := vocab[text]; ok {
			return nil, fmt.Errorf("tokenizer.ggml.tokens: %d and %d are both %q", old, id, text)
		}
		vocab[text] = id
		if kind == ggufControl || kind == ggufUser || kind == ggufUnknown && v.pieces != nil {
			added = append(added, component{"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": kind != ggufUser})
		}
	}
	out := component{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
		"pre_tokenizer":  component{"type": "Sequence", "pretokenizers": v.pre.steps},
		"post_processor": nil, "decoder": byteLevel(true),
		"model": component{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": v.pre.whole, "vocab": vocab, "merges": v.merges,
		},
	}
	if v.pre.nfc {
		out["normalizer"] = component{"type": "NFC"}
	}
	if v.pieces != nil {
		v.pieces.describe(out, v)
	}
	if v.bos >= 0 {
		bos := v.tokens[v.bos]
		out["post_processor"] = component{
			"type":           "TemplateProcessing",
			"single":         []component{{"SpecialToken": component{"id": bos, "type_id": 0}}, {"Sequence": component{"id": "A", "type_id": 0}}},
			"pair":           []component{},
			"special_tokens": component{bos: component{"id": bos, "ids": []int64{v.bos}, "tokens": []string{bos}}},
		}
	}
	return json.Marshal(out)
}

// ggufTokenizerConfig makes the tokenizer_config.json: the chat template, and the
// special tokens that it names.
func ggufTokenizerConfig(f *gguf.File) ([]byte, error) {
	out := component{}
	if text, ok := f.Values["tokenizer.chat_template"].Text(); ok {
		out["chat_template"] = text
	}
	tokens, _ := f.Values["tokenizer.ggml.tokens"].Texts()
	for name, key := range map[string]string{"bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id", "pad_token": "padding_token_id"} {
		if id, ok := f.Values["tokenizer.ggml."+key].Integer(); ok && id >= 0 && id < int64(len(tokens)) {
			out[name] = tokens[id]
		}
	}
	return json.Marshal(out)
}
