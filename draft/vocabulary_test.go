package draft

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/engine/tokenizer"
	"exacta.dev/exacta/kernels"
)

// letters is a tokenizer of single characters, in the order of a text, with longer
// tokens behind them.
func letters(t *testing.T, text string, more ...string) vocabulary {
	t.Helper()
	ids := map[string]int{}
	for i, r := range text {
		ids[string(r)] = i
	}
	for _, word := range more {
		ids[word] = len(ids)
	}
	vocab, err := json.Marshal(ids)
	require.NoError(t, err)
	tok, err := tokenizer.Load(fmt.Appendf(nil, `{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
		"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
		"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":%s,"merges":[]}}`, vocab))
	require.NoError(t, err)
	return vocabulary{tok, tok.VocabSize(), text[:3]}
}

func TestVocabularies(t *testing.T) {
	a, b := letters(t, "abcdef", "ab", "fed"), letters(t, "bacdefg", "abc")
	require.Empty(t, a.differs(a))
	require.Equal(t, `token 0 is "a" in abc and "b" in bac`, a.differs(b))
	c := letters(t, "abcdef")
	require.Equal(t, "abc has 8 tokens, abc 6", a.differs(c))
	require.Equal(t, "x has 3 tokens, y 4", vocabulary{size: 3, name: "x"}.differs(vocabulary{size: 4, name: "y"}))
	w, err := translate(a, b, 9)
	require.NoError(t, err)
	// ab ends in b, fed in d; there is nothing for id 8.
	require.Equal(t, []int32{1, 0, 2, 3, 4, 5, 0, 3, 0}, w.inputs)
	// Nothing begins g; abc begins with ab.
	require.Equal(t, []int32{1, 0, 2, 3, 4, 5, 0, 6}, w.outputs)
	_, err = translate(a, letters(t, "abcuvwxyz"), 9)
	require.EqualError(t, err, "translate: 3 of the 8 tokens of model abc are tokens of abc; at least half must be")
	require.Equal(t, words{}, identity(5, 5, 5))
	require.Equal(t, words{}, identity(5, 9, 5))
	require.Equal(t, words{inputs: []int32{0, 1, 2, 0, 0}}, identity(5, 3, 3), "two ids of nothing")
	require.Equal(t, words{inputs: []int32{0, 1, 2, 0, 0}, outputs: []int32{0, 1, 2}}, identity(5, 3, 4))
}

// reordered is a model whose tokens have other ids: new is the token's id by the old
// one.
type reordered struct {
	model.Source
	ids []int
}

func (r reordered) Matrix(name string, rows, cols int) (kernels.Source, error) {
	s, err := r.Source.Matrix(name, rows, cols)
	if err != nil || name != "model.embed_tokens.weight" {
		return s, err
	}
	old := make([]byte, 2*rows*cols)
	if _, err := s.Data.ReadAt(old, 0); err != nil {
		return s, err
	}
	now := make([]byte, len(old))
	for i, id := range r.ids {
		copy(now[2*id*cols:][:2*cols], old[2*i*cols:])
	}
	s.Data = bytes.NewReader(now)
	return s, nil
}

// The same model with its tokens in another order drafts what the target says.
func TestTranslatedDraftsAreExact(t *testing.T) {
	for name, be := range backends(t) {
		m := small(t, be, true, 2)
		mine, yours := "abcdefghijklmnopqrstuvwxyz0123456789-", "9876543210zyxwvutsrqponmlkjihgfedcba-"
		ids := make([]int, len(mine))
		for i, r := range mine {
			ids[i] = strings.IndexRune(yours, r)
		}
		other, err := model.Load(be, reordered{model.Random{Seed: 5, Shape: m.Config}, ids}, model.Options{MaxTokens: 192})
		require.NoError(t, err)
		w, err := translate(letters(t, mine), letters(t, yours), 37)
		require.NoError(t, err)
		env := Env{Backend: be, Model: m, Vocab: 37}
		for rule, p := range map[string]sample.Params{"greedy": {}, "coupled": {Temperature: 0.8, Seed: 2}} {
			d := newRecursive("model", trunk{m: other, layers: 2, own: true, inputs: w.inputs, outputs: w.outputs}, env, rule == "coupled")
			for id, of := range records(t, m, engine.Config{MaxSequences: 3}, rule, only(d), aroundBorders(3, p)) {
				for _, r := range of {
					require.EqualValues(t, r.KExecuted, r.Accepted, "%s, %s, request %s at %d", name, rule, id, r.Position)
				}
			}
		}
	}
}

// A draft model that doesn't fit says what would.
func TestModelRefused(t *testing.T) {
	m := small(t, backends(t)["cpu"], true, 2)
	env := Env{Backend: m.Backend(), Model: m, Vocab: 37}
	_, err := (&Model{Model: "random:qwen3-0.6b"}).Provision(env)
	require.EqualError(t, err, "draft model: models random:qwen3-0.6b and random:small2 have different vocabularies: random:qwen3-0.6b has 151936 tokens, random:small2 37;"+
		" name a model of the vocabulary of random:small2, or set translate: true")
	_, err = (&Model{Model: "random:qwen3-0.6b", Translate: true}).Provision(env)
	require.ErrorContains(t, err, "translation needs tokenizer.json of both")
	_, err = (&Model{Model: "no-such"}).Provision(env)
	require.ErrorContains(t, err, `draft model: model "no-such": `)
	c := m.Config
	c.MaxPositions = 100
	_, err = (&Model{Model: "x"}).load(env, model.Random{ShapeName: "short", Shape: c})
	require.EqualError(t, err, "random:short reads at most 100 tokens (max_position_embeddings), and the context of random:small2 is 192; ask for a context of at most 100")
}
