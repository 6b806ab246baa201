package engine_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

func TestRequestsRefused(t *testing.T) {
	m := tinyCPU(t)
	r := newRig(t, m, engine.Config{MaxSequences: 2, MaxDraft: 4}, strategy(t, m, "ngram"), strategy(t, m, "mtp"))
	ok := prompt(5, 1)
	for _, c := range []struct {
		name string
		req  engine.Request
		want string
	}{
		{"empty prompt", engine.Request{MaxNew: 1}, "request x: the prompt is empty; it needs at least one token"},
		{"prompt as long as the context", engine.Request{Prompt: prompt(context, 1), MaxNew: 1}, "request x: the prompt has 320 tokens; the context of 320 leaves room for at most 319 and one to generate"},
		{"nothing to generate", engine.Request{Prompt: ok}, "request x: max_new is 0; it must be at least 1"},
		{"negative k", engine.Request{Prompt: ok, MaxNew: 1, K: -1}, "request x: k is -1; it must be 0..4 (max_draft)"},
		{"large k", engine.Request{Prompt: ok, MaxNew: 1, K: 5}, "request x: k is 5; it must be 0..4 (max_draft)"},
		{"unknown drafter", engine.Request{Prompt: ok, MaxNew: 1, K: 1, Drafter: "crystal"}, `request x: drafter "crystal" is not one of the engine's: [mtp ngram]`},
		{"id past the vocabulary", engine.Request{Prompt: []int32{1, vocab}, MaxNew: 1}, "request x: prompt token 1 is id 61; the model's vocabulary is 0..60"},
		{"negative id", engine.Request{Prompt: []int32{-2}, MaxNew: 1}, "request x: prompt token 0 is id -2; the model's vocabulary is 0..60"},
		{"bad temperature", engine.Request{Prompt: ok, MaxNew: 1, Params: sample.Params{Temperature: -1}}, "request x: temperature -1 is out of range 0..100"},
		{"temperature not a number", engine.Request{Prompt: ok, MaxNew: 1, Params: sample.Params{Temperature: float32(math.NaN())}}, "request x: temperature NaN is out of range 0..100"},
		{"bad top_p", engine.Request{Prompt: ok, MaxNew: 1, Params: sample.Params{TopP: 1.5}}, "request x: top_p 1.5 is out of range 0..1"},
		{"greedy rule, sampling request", engine.Request{Prompt: ok, MaxNew: 1, Params: sample.Params{Temperature: 0.5}}, "request x: rule greedy serves temperature 0, not 0.5; rejection keeps the distribution of sampling, coupled also its tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.req.ID = "x"
			s, err := r.e.Submit(c.req)
			require.EqualError(t, err, c.want)
			require.Nil(t, s)
			require.Zero(t, r.e.Active())
		})
	}
	// The engine is unchanged: it serves the next one, as number 0.
	s := r.submit(engine.Request{ID: "y", Prompt: ok, MaxNew: 3})
	r.close()
	require.Zero(t, s.ID())
	require.Len(t, s.Output(), 3)
}

func TestConfigRefused(t *testing.T) {
	m := tinyCPU(t)
	for _, c := range []struct {
		cfg  engine.Config
		want string
	}{
		{engine.Config{MaxTokens: context + 1}, "engine: max_tokens is 321; it must be 1..320 (the model's context)"},
		{engine.Config{MaxSequences: -1}, "engine: max_sequences is -1; it must be 1..65536"},
		{engine.Config{MaxDraft: 64}, "engine: max_draft is 64; it must be 1..63 (one window less one)"},
		{engine.Config{BatchTokens: 8}, "engine: batch_tokens is 8; it must be 9..1048576 (at least one verification)"},
		{engine.Config{Pages: 2}, "engine: pages is 2; it must be 6..16777216 (at least the longest sequence)"},
		{engine.Config{Vocab: vocab + 1}, "engine: vocab is 62; it must be 1..61 (the model's vocabulary)"},
	} {
		_, err := engine.New(m, c.cfg, nil, rule(t, "greedy"), nil, engine.Listener{})
		require.EqualError(t, err, c.want)
	}
	_, err := engine.New(m, engine.Config{}, nil, nil, nil, engine.Listener{})
	require.EqualError(t, err, "engine: no default acceptance rule")
	_, err = engine.New(m, engine.Config{}, map[string]engine.Drafter{"x": nil}, rule(t, "greedy"), nil, engine.Listener{})
	require.EqualError(t, err, `engine: drafter "x" is nil; a request without a drafter decodes plainly`)
}

// A limit larger than any context is no overflow.
func TestMaxNewIsCutToTheContext(t *testing.T) {
	r := newRig(t, tinyCPU(t), engine.Config{MaxSequences: 1, MaxTokens: 12})
	s := r.submit(engine.Request{ID: "a", Prompt: prompt(5, 1), MaxNew: math.MaxInt, IgnoreStop: true})
	r.close()
	require.Equal(t, engine.FinishLength, s.Finish())
	require.Len(t, s.Output(), 7)
}
