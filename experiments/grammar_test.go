package experiments

import (
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// processors are requests with a grammar, alone and with what else changes
// logits, for random patterns of Go-like text.
func processors() (out []Sampling) {
	r := rand.New(rand.NewPCG(7, 9))
	for i, pattern := range []string{
		`(?s).*`, `[a-z(), ]+`, `(?:[a-z]+ := [a-z0-9"]+\n){1,3}`, `\{"[a-z_]{2,12}": (?:[0-9]{1,6}|"[^"\\]*")\}`,
		`(?:\pL|\d|[ .,;(){}=\n\t"])*`, `(?:if|for) [a-z]+ (?:<|>|==) [0-9]+ \{\n(?:\t[a-zA-Z.()]+\n)+\}`,
	} {
		s := Sampling{Grammar: pattern, TopP: 1, RepetitionPenalty: 1}
		if i%2 == 1 {
			s.RepetitionPenalty, s.PresencePenalty, s.FrequencyPenalty = 1.1, 0.4, 0.1
		}
		if i%3 == 2 {
			s.LogitBias = map[int32]float32{int32(r.IntN(4000)): 3, int32(r.IntN(4000)): -4}
		}
		out = append(out, s)
		s.Temperature, s.TopP, s.Seed = 0.8, 0.95, r.Uint64()
		out = append(out, s)
	}
	return out
}

// Grammar, penalties and bias, applied row by row along the drafts, give the
// tokens and the logits of plain decoding under the same processors, for both
// drafters and k 1..6, though neither drafter knows of them; and what ends by
// itself matches.
func TestGrammarIsPlain(t *testing.T) {
	s := simulatedSession(t, 18)
	s.cfg.IgnoreEOS, s.prompts = false, s.prompts[:2]
	accepted, rejected, ended := 0, 0, 0
	for n, sampling := range processors() {
		s.cfg.Sampling = sampling
		rule := "greedy"
		if sampling.Temperature > 0 {
			rule = "coupled"
		}
		whole := regexp.MustCompile(`\A(?:` + sampling.Grammar + `)\z`)
		_, plain := s.records(t, Point{Strategy: -1, Drafter: "none", Rule: rule, Concurrency: 1})
		for _, trace := range plain {
			text := s.entry.Tokenizer.Decode(trace.Tokens, true)
			if len(trace.Tokens) < s.cfg.MaxNew {
				require.Regexp(t, whole, text)
				ended++
			}
		}
		for k := 1; k <= 6; k++ {
			for i, name := range []string{"mtp", "ngram"} {
				if (n+k+i)%2 > 0 {
					continue // every drafter meets every k, with half of the processors
				}
				p := Point{Strategy: i, Drafter: name, K: k, Rule: rule, Concurrency: 1 + 2*(k%2)}
				records, traces := s.records(t, p)
				for id, trace := range traces {
					require.Equal(t, plain[id].Tokens, trace.Tokens, "%s k %d: %+v", name, k, sampling)
					require.Equal(t, plain[id].Hashes, trace.Hashes, "%s k %d: %+v", name, k, sampling)
				}
				for _, r := range records {
					accepted += int(r.Accepted)
					rejected += int(r.KExecuted) - int(r.Accepted)
				}
			}
		}
	}
	require.Greater(t, accepted, 300)
	require.Greater(t, rejected, 300)
	require.GreaterOrEqual(t, ended, 2)
	t.Logf("%d drafts accepted, %d rejected; %d outputs ended by themselves", accepted, rejected, ended)
}

// Rejection and block keep to the grammar too, with drafts that do not.
func TestGrammarHoldsUnderRejection(t *testing.T) {
	s := simulatedSession(t, 30)
	s.cfg.IgnoreEOS = false
	s.cfg.Sampling = Sampling{Temperature: 1, TopP: 1, RepetitionPenalty: 1, Seed: 4, Grammar: `(?:[a-z]{2,6}[0-9],){2,3}`}
	whole := regexp.MustCompile(`\A` + s.cfg.Sampling.Grammar + `\z`)
	for _, rule := range []string{"rejection", "block"} {
		for i, name := range []string{"mtp", "ngram"} {
			_, traces := s.records(t, Point{Strategy: i, Drafter: name, K: 4, Rule: rule, Concurrency: 3})
			ended := 0
			for _, trace := range traces {
				if len(trace.Tokens) < s.cfg.MaxNew {
					require.Regexp(t, whole, s.entry.Tokenizer.Decode(trace.Tokens, true))
					ended++
				}
			}
			require.Positive(t, ended)
		}
	}
}

// A grammar without a tokenizer, or a bias outside the vocabulary, ends nothing
// but the request.
func TestGrammarRefused(t *testing.T) {
	s := simulatedSession(t, 4)
	e, err := s.engine(Point{Strategy: -1, Drafter: "none", Rule: "greedy", Concurrency: 1}, nil)
	require.NoError(t, err)
	defer e.Close()
	for want, p := range map[string]sample.Params{
		"request q: a grammar needs a tokenizer, and the model has none": {Grammar: "a*"},
		"request q: grammar \"a(\", column 2: missing closing )":         {Grammar: "a("},
		"request q: logit_bias of token 999999; the vocabulary is 0..":   {LogitBias: "999999:1"},
	} {
		_, err := e.Submit(engine.Request{ID: "q", Prompt: []int32{1}, MaxNew: 1, Params: p})
		require.ErrorContains(t, err, want)
	}
	require.Nil(t, Tokens(nil, 3, nil))
}
