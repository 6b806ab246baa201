package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzLoad feeds hostile files: Load must fail or give a tokenizer that
// encodes and decodes without a panic.
func FuzzLoad(f *testing.F) {
	m := minimal()
	m["model"].(obj)["vocab"] = obj{"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "Ġ": 5}
	m["added_tokens"] = []any{added(6, "\n", obj{"lstrip": true, "rstrip": true}), added(7, "e\u0301", obj{"normalized": true, "single_word": true})}
	f.Add(encodeJSON(f, m))
	m["normalizer"] = obj{"type": "NFC"}
	m["model"].(obj)["merges"] = []any{"a b", "ab c"}
	f.Add(encodeJSON(f, m))
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"aa":1,"aaaa":2},"merges":[["a","a"],["aa","aa"]]},"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}}`))
	f.Add([]byte(`{"added_tokens":[],"model":{}}`))
	f.Add([]byte(`{"model":{"type":"SentencePiece","vocab":{"u":0,"ab":1,"b":2,"abab":3},"unk_token":"u","fuse_unk":true,"scores":[null,-1,0,-1.5]},"decoder":{"type":"Fuse"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		tok, err := Load(text)
		if err != nil {
			return
		}
		for _, s := range []string{"", "hello  world\n\n", "aaaaaaaaaaaaaa", "e\u0301\xff 123", string(text[:min(len(text), 200)])} {
			for _, id := range tok.Encode(s, true) {
				require.True(t, tok.Known(id))
			}
		}
		tok.Decode([]int32{-1, 0, 1, int32(tok.VocabSize()), 1 << 30}, true)
	})
}

// keepsText are the designs whose ids decode to the text, or its NFC: without
// added tokens that take white space away, a space before the text, unknown
// characters, or folding.
var keepsText = map[string]bool{
	"a_llama3": true, "b_qwen3": true, "c_qwen35": true, "d_smollm2": true, "e_deepseek": true, "g_glm": true, "j_gemma": true,
}

// FuzzRoundTrip encodes any text with each design: decoding gives the text
// back, normalised where the design normalises, and streaming gives the same.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"Hello, world!", "it's 12345  x\r\n\n", "e\u0301\u0323 漢字かな", "\xff\xf0\x9f", "<|im_end|>[MASK]", "   \u3000 \u0301"} {
		f.Add(s)
	}
	toks := map[string]*Tokenizer{}
	for _, name := range slices.Concat(designs, pieceDesigns) {
		text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		require.NoError(f, err)
		toks[name], err = Load(text)
		require.NoError(f, err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, tok := range toks {
			ids := tok.Encode(s, !keepsText[name])
			raw := string(tok.DecodeBytes(ids, false))
			switch {
			case !keepsText[name] || name == "j_gemma" && strings.Contains(s, "\u2581"):
			case tok.normalize == nil || name == "j_gemma":
				require.Equal(t, s, raw, name)
			case utf8.ValidString(s):
				require.Equal(t, nfc(raw), raw, name)
				require.Equal(t, nfc(s), nfc(raw), name)
			}
			d := tok.NewDecoder(false)
			streamed := ""
			for _, id := range ids {
				streamed += d.Push(id)
			}
			require.Equal(t, tok.Decode(ids, false), streamed+d.Flush(), name)
		}
	})
}
