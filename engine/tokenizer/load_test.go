package tokenizer

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

type obj = map[string]any

// minimal is a small tokenizer as a JSON value, for tests to change: the 256
// bytes, ids in byte order, two merges and one added token.
func minimal() obj {
	vocab := obj{}
	for b, r := range byteRune {
		vocab[string(r)] = b
	}
	vocab["ab"], vocab["abc"] = 256, 257
	return obj{
		"version": "1.0", "truncation": nil, "padding": nil,
		"added_tokens":   []any{added(258, "<end>", nil)},
		"normalizer":     nil,
		"pre_tokenizer":  obj{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"post_processor": nil,
		"decoder":        obj{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model": obj{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
			"vocab": vocab, "merges": []any{[]any{"a", "b"}, []any{"ab", "c"}},
		},
	}
}

func added(id int, content string, change obj) obj {
	a := obj{"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
	for k, v := range change {
		a[k] = v
	}
	return a
}

func encodeJSON(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}

func loadValue(t testing.TB, v any) *Tokenizer {
	t.Helper()
	tok, err := Load(encodeJSON(t, v))
	require.NoError(t, err)
	return tok
}

func split(pattern any, behavior string, invert bool) obj {
	return obj{"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
}

func sequence2(key string, parts ...any) obj { return obj{"type": "Sequence", key: parts} }

var spellBytes = obj{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}

// TestLoadRefuses has one bad file for each rule, with the exact error.
func TestLoadRefuses(t *testing.T) {
	set := func(key string, v any) func(obj) { return func(m obj) { m[key] = v } }
	model := func(key string, v any) func(obj) { return func(m obj) { m["model"].(obj)[key] = v } }
	vocab := func(key string, v any) func(obj) { return func(m obj) { m["model"].(obj)["vocab"].(obj)[key] = v } }
	pre := func(parts ...any) func(obj) { return set("pre_tokenizer", sequence2("pretokenizers", parts...)) }
	tokens := func(list ...any) func(obj) { return set("added_tokens", list) }
	template := func(single []any, special obj) func(obj) {
		return set("post_processor", obj{"type": "TemplateProcessing", "single": single, "pair": []any{}, "special_tokens": special})
	}
	text := obj{"Sequence": obj{"id": "A", "type_id": 0}}
	bos := obj{"SpecialToken": obj{"id": "<end>", "type_id": 0}}
	bosIDs := func(ids ...int) obj { return obj{"<end>": obj{"id": "<end>", "ids": ids, "tokens": []string{}}} }

	for name, c := range map[string]struct {
		change func(obj)
		want   string
	}{
		"unknown key": {set("extra", 1), `unknown field "extra"`},
		"version":     {set("version", "2.0"), `version is "2.0"; known is "1.0"`},

		"no model":       {set("model", nil), "model is missing"},
		"unigram":        {set("model", obj{"type": "Unigram", "vocab": []any{}}), `model: type is "Unigram"; known are "BPE" and exacta's "SentencePiece"; all model families that can be run here use them`},
		"dropout":        {model("dropout", 0.1), "model: dropout is 0.1; only null is supported"},
		"prefix":         {model("continuing_subword_prefix", "##"), `model: continuing_subword_prefix is "##"; only null is supported`},
		"suffix":         {model("end_of_word_suffix", "</w>"), `model: end_of_word_suffix is "</w>"; only null is supported`},
		"byte fallback":  {model("byte_fallback", true), "model: byte_fallback is not supported in a byte-level vocabulary"},
		"model key":      {model("cache", 1), `model: unknown field "cache"`},
		"no vocab":       {model("vocab", obj{}), "model: vocab is empty or missing"},
		"no merges":      {model("merges", nil), "model: merges: the list is missing"},
		"merge parts":    {model("merges", []any{[]any{"a", "b", "c"}}), "model: merges: merge 0 has 3 parts; it must have 2"},
		"merge line":     {model("merges", []any{"a b", "ab c d"}), `model: merges: merge 1 is "ab c d"; it must be two tokens with a space between`},
		"merge unknown":  {model("merges", []any{"a b", "b c"}), `model: merges: merge 1 ("b" "c"): "bc" is not in vocab`},
		"merge of empty": {func(m obj) { vocab("", 300)(m); model("merges", []any{[]any{"", "a"}})(m) }, `model: merges: merge 0 ("" "a"): "" is not in vocab`},
		"same id":        {vocab("zz", 256), `model: tokens "ab" and "zz" have one id, 256`},
		"negative id":    {vocab("zz", -1), `model: token "zz" has id -1; ids are 0 to 1048575`},
		"huge id":        {vocab("zz", 1<<20), `model: token "zz" has id 1048576; ids are 0 to 1048575`},
		"no unk": {func(m obj) { delete(m["model"].(obj)["vocab"].(obj), "A"); model("unk_token", "<unk>")(m) },
			`model: vocab has neither a token for byte 0x41 ('A') nor unk_token "<unk>"`},
		"fuse unk": {func(m obj) {
			delete(m["model"].(obj)["vocab"].(obj), "A")
			model("unk_token", "B")(m)
			model("fuse_unk", true)(m)
		}, "model: fuse_unk is not supported where vocab lacks bytes (0x41, 'A')"},

		"normalizer":        {set("normalizer", obj{"type": "Nmt"}), `normalizer: type "Nmt" is not supported; known are "NFC", "NFKC", "Lowercase", "Strip", "Prepend", "Replace", "Sequence"`},
		"normalizer lacks":  {set("normalizer", obj{"type": "Strip", "strip_left": true}), `normalizer: Strip: strip_right is missing`},
		"normalizer regex":  {set("normalizer", obj{"type": "Replace", "pattern": obj{"Regex": "a+"}, "content": "a"}), `normalizer: Replace: pattern must be {"String": ...}; others are not supported`},
		"normalizer inside": {set("normalizer", sequence2("normalizers", obj{"type": "NFC"}, obj{"type": "Precompiled"})), `normalizer: type "Precompiled" is not supported; known are "NFC", "NFKC", "Lowercase", "Strip", "Prepend", "Replace", "Sequence"`},
		"normalizer key":    {set("normalizer", obj{"type": "NFC", "x": 1}), `normalizer: NFC: unknown field "x"`},
		"normalizer text":   {set("normalizer", "NFC"), "normalizer: it must be an object with a type"},

		"no pre-tokenizer": {set("pre_tokenizer", nil), "pre_tokenizer and decoder must both have ByteLevel, or neither"},
		"pre-tokenizer":    {set("pre_tokenizer", obj{"type": "Whitespace"}), `pre_tokenizer: type "Whitespace" is not supported; known are "Split", "Digits", "ByteLevel", "Metaspace", "Sequence"`},
		"metaspace":        {set("pre_tokenizer", obj{"type": "Metaspace", "replacement": "__"}), `pre_tokenizer: Metaspace: replacement has 2 characters; it must have 1`},
		"metaspace scheme": {set("pre_tokenizer", obj{"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}), `pre_tokenizer: Metaspace: prepend_scheme is "last"; known are "always", "first" and "never"`},
		"metaspace strip": {func(m obj) {
			set("normalizer", obj{"type": "Strip", "strip_left": true, "strip_right": true})(m)
			set("pre_tokenizer", obj{"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"})(m)
		}, `pre_tokenizer: Metaspace: prepend_scheme "first" after a Strip normaliser is not supported`},
		"prefix space":      {set("pre_tokenizer", obj{"type": "ByteLevel"}), "pre_tokenizer: ByteLevel: add_prefix_space is missing"},
		"bytes not last":    {pre(spellBytes, obj{"type": "Digits", "individual_digits": true}), "pre_tokenizer: ByteLevel must be the last part"},
		"pattern":           {pre(split(obj{"Regex": `\w+`}, "Isolated", false), spellBytes), `pre_tokenizer: Split: the pattern "\\w+" has no scanner; known are those of Llama 3, GLM, Qwen2, Qwen3.5, GPT-2 and DeepSeek V3`},
		"pattern none":      {pre(split(obj{}, "Isolated", false), spellBytes), `pre_tokenizer: Split: pattern must be {"Regex": ...} or {"String": ...}`},
		"pattern empty":     {pre(split(obj{"String": ""}, "Isolated", false), spellBytes), `pre_tokenizer: Split: the pattern is an empty text`},
		"literal behavior":  {pre(split(obj{"String": " "}, "Removed", false), spellBytes), `pre_tokenizer: Split: behavior "Removed" is not supported; known are "Isolated", "MergedWithPrevious" and "MergedWithNext"`},
		"behavior":          {pre(split(obj{"Regex": patternA}, "Removed", false), spellBytes), `pre_tokenizer: Split: behavior "Removed" is not supported with a regular expression; known is "Isolated"`},
		"invert":            {pre(split(obj{"Regex": patternA}, "Isolated", true), spellBytes), "pre_tokenizer: Split: invert is not supported"},
		"digits key":        {pre(obj{"type": "Digits", "only": 1}, spellBytes), `pre_tokenizer: Digits: unknown field "only"`},
		"sequence key":      {set("pre_tokenizer", obj{"type": "Sequence", "pretokenizers": []any{}, "x": 1}), `pre_tokenizer: Sequence: unknown key "x"`},
		"sequence no list":  {set("pre_tokenizer", obj{"type": "Sequence"}), "pre_tokenizer: Sequence: pretokenizers must be a list"},
		"sequence too deep": {set("pre_tokenizer", nested(6)), "pre_tokenizer: Sequence within Sequence is nested too deep"},

		"no decoder":    {set("decoder", nil), `decoder: it is missing; "ByteLevel" would be right for a byte-level vocabulary`},
		"decoder":       {set("decoder", obj{"type": "WordPiece"}), `decoder: type "WordPiece" is not supported at place 0; known are "ByteLevel" or "Metaspace" alone, or "Replace", "ByteFallback", "Fuse" and "Strip" in a Sequence`},
		"decoder bytes": {set("decoder", obj{"type": "Fuse"}), "pre_tokenizer and decoder must both have ByteLevel, or neither"},
		"decoder order": {set("decoder", sequence2("decoders", obj{"type": "Fuse"}, obj{"type": "ByteFallback"})), "decoder: ByteFallback after a later step; the order must be Replace, ByteFallback, Fuse, Strip"},
		"decoder strip": {set("decoder", sequence2("decoders", obj{"type": "Strip", "content": " ", "start": 1, "stop": 0})), "decoder: Strip without Fuse before it is not supported"},
		"decoder stop":  {set("decoder", sequence2("decoders", obj{"type": "Fuse"}, obj{"type": "Strip", "content": " ", "start": 1, "stop": 1})), "decoder: Strip: stop is 1; only 0 is supported"},
		"decoder key":   {set("decoder", obj{"type": "ByteLevel", "x": 1}), `decoder: ByteLevel: unknown field "x"`},

		"post":              {set("post_processor", obj{"type": "BertProcessing"}), `post_processor: type "BertProcessing" is not supported; known are "ByteLevel", "TemplateProcessing", "Sequence"`},
		"template no text":  {template([]any{bos}, bosIDs(258)), "post_processor: TemplateProcessing: single: the text must stand in it once, not 0 times"},
		"template two":      {template([]any{text, text}, bosIDs(258)), "post_processor: TemplateProcessing: single: the text must stand in it once, not 2 times"},
		"template unknown":  {template([]any{bos, text}, obj{}), `post_processor: TemplateProcessing: single: "<end>" is not in special_tokens`},
		"template id":       {template([]any{bos, text}, bosIDs(999)), "post_processor: TemplateProcessing: special_tokens: id 999 is not in the vocabulary"},
		"template pair":     {template([]any{text, obj{"Sequence": obj{"id": "B", "type_id": 1}}}, obj{}), `post_processor: TemplateProcessing: single: piece "Sequence" "B" is not supported`},
		"template too long": {template([]any{bos, text}, bosIDs(make([]int, 65)...)), "post_processor: TemplateProcessing: single: it adds more than 64 ids"},

		"added empty":  {tokens(added(300, "", nil)), "added_tokens: token with id 300 has no content"},
		"added long":   {tokens(added(300, string(make([]byte, 1025)), nil)), "added_tokens: token with id 300 has 1025 bytes; the most is 1024"},
		"added twice":  {tokens(added(300, "x>", nil), added(301, "x>", nil)), `added_tokens: token "x>" occurs twice`},
		"added id":     {tokens(added(300, "ab", nil)), `added_tokens: token "ab" has id 300, but 256 in the model's vocab`},
		"added taken":  {tokens(added(256, "x>", nil)), `added_tokens: tokens "ab" and "x>" have one id, 256`},
		"added fields": {tokens(obj{"id": 1, "content": "x"}), "added_tokens: an entry must have id, content, single_word, lstrip, rstrip, normalized and special"},
		"added key":    {tokens(added(300, "x>", obj{"rare": true})), `unknown field "rare"`},
	} {
		t.Run(name, func(t *testing.T) {
			m := minimal()
			c.change(m)
			_, err := Load(encodeJSON(t, m))
			require.EqualError(t, err, "tokenizer.json: "+c.want)
		})
	}
}

func nested(depth int) obj {
	o := spellBytes
	for range depth {
		o = sequence2("pretokenizers", o)
	}
	return o
}

func TestLoadRefusesText(t *testing.T) {
	for text, want := range map[string]string{
		"":             "tokenizer.json: EOF",
		"{":            "tokenizer.json: unexpected EOF",
		"[]":           "tokenizer.json: cannot unmarshal array into Go value of type tokenizer.file",
		"{} x":         "tokenizer.json: text follows the JSON value",
		"{}":           "tokenizer.json: model is missing",
		"{\"a\": \xff": "tokenizer.json: the file is not valid UTF-8",
	} {
		_, err := Load([]byte(text))
		require.EqualError(t, err, want, "%q", text)
	}
}

// Shortening and padding belong to a caller of the reference; they do not
// change the ids of a text here.
func TestLoadIgnoresWithReason(t *testing.T) {
	m := minimal()
	require.Empty(t, loadValue(t, m).Ignored())
	m["truncation"], m["padding"] = obj{"max_length": 2}, obj{"strategy": "BatchLongest"}
	tok := loadValue(t, m)
	require.Equal(t, []string{
		"truncation: a prompt that is too long is refused, not shortened",
		"padding: sequences of a batch keep their own lengths",
	}, tok.Ignored())
	require.Equal(t, []int32{257, 'd', 'e'}, tok.Encode("abcde", false))
}

func TestLoadAcceptsMergeLines(t *testing.T) {
	m := minimal()
	m["model"].(obj)["merges"] = []any{"#version: 0.2", "a b", "ab c"}
	require.Equal(t, []int32{257, 'd'}, loadValue(t, m).Encode("abcd", false))
}

func TestTemplateSurrounds(t *testing.T) {
	m := minimal()
	m["post_processor"] = sequence2("processors",
		obj{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
		obj{"type": "TemplateProcessing",
			"single":         []any{obj{"SpecialToken": obj{"id": "<end>", "type_id": 0}}, obj{"Sequence": obj{"id": "A", "type_id": 0}}, obj{"SpecialToken": obj{"id": "x", "type_id": 0}}},
			"pair":           []any{},
			"special_tokens": obj{"<end>": obj{"id": "<end>", "ids": []int{258}, "tokens": []string{"<end>"}}, "x": obj{"id": "x", "ids": []int{1, 2}, "tokens": []string{"a", "b"}}}})
	tok := loadValue(t, m)
	require.Equal(t, []int32{258, 'z', 1, 2}, tok.Encode("z", true))
	require.Equal(t, []int32{'z'}, tok.Encode("z", false))
	before, after := tok.Template()
	require.Equal(t, []int32{258}, before)
	require.Equal(t, []int32{1, 2}, after)
}
