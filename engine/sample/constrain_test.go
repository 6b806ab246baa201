package sample

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/grammar"
)

// letters is a vocabulary of "a" to "h" as tokens 0..7, then "ab", "ba", and the
// end.
func letters() *grammar.Vocabulary {
	var tokens [][]byte
	for c := byte('a'); c <= 'h'; c++ {
		tokens = append(tokens, []byte{c})
	}
	return grammar.NewVocabulary(append(tokens, []byte("ab"), []byte("ba"), []byte("</s>")), []int32{10})
}

const lettersVocab = 11

// Bias and grammar are a change of the logits before everything else and after
// the penalties: the twin gets the bias added, and minus infinity where the
// grammar forbids. Pushed, ahead or drafted, the tokens before a row are the same
// history.
func TestBiasAndGrammarAgainstTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	v := letters()
	for range 4000 {
		p := randomParams(r)
		p.Grammar = []string{"", "[a-h]*", "(ab|ba|c)*d?", "a{2,6}|(b|c)+", "[^a]*a[^b]*"}[r.IntN(5)]
		of := map[int32]float32{}
		for range r.IntN(4) {
			of[int32(r.IntN(lettersVocab))] = float32(r.IntN(9) - 4)
		}
		p.LogitBias = FormatBias(of)
		require.NoError(t, p.ValidateFor(lettersVocab))
		prompt := randomTokens(r, r.IntN(6), lettersVocab)
		logits := make([]float32, lettersVocab)
		for i := range logits {
			logits[i] = float32(3 * r.NormFloat64())
		}
		changed := make([]float32, lettersVocab)
		for i := range logits {
			changed[i] = logits[i] + of[int32(i)]
		}
		s := New(p, prompt)
		var output []int32
		if p.Grammar == "" {
			output = randomTokens(r, r.IntN(6), lettersVocab)
		} else {
			g, err := v.Compile(p.Grammar)
			require.NoError(t, err)
			s.Constrain(g)
			state := g.Start()
			for range r.IntN(6) {
				id := int32(r.IntN(lettersVocab))
				if next := g.Next(state, id); next != "" && !g.Allowed(next).Empty() {
					output, state = append(output, id), next
				}
			}
			for i := range changed {
				if !g.Allowed(state).Has(int32(i)) {
					changed[i] = float32(math.Inf(-1))
				}
			}
		}
		a := r.IntN(len(output) + 1)
		b := a + r.IntN(len(output)-a+1)
		s.Push(output[:a]...)
		got, err := s.Ahead(output[a:b]).Process(logits, output[b:])
		require.NoError(t, err)
		want := twin(p, prompt, output, changed)
		for i := range want {
			require.InDelta(t, want[i], got[i], 1e-5, "token %d of %v\nparams %+v", i, want, p)
			require.Equal(t, float32(want[i]) == 0, got[i] == 0, "support at token %d, params %+v", i, p)
		}
	}
}

func TestGrammarErrors(t *testing.T) {
	p := Params{Grammar: "ab"}
	logits := make([]float32, lettersVocab)
	require.False(t, p.Plain())
	require.True(t, p.Greedy())
	s := New(p, nil)
	_, err := s.Argmax(logits, nil)
	require.EqualError(t, err, "the request's grammar was not compiled")
	g, err := letters().Compile(p.Grammar)
	require.NoError(t, err)
	s.Constrain(g)
	top, err := s.Argmax(logits, nil)
	require.NoError(t, err)
	require.Equal(t, int32(0), top)
	_, err = s.Argmax(logits, []int32{2})
	require.EqualError(t, err, `grammar "ab": the output is not the beginning of a text that matches`)
	top, err = s.Argmax(logits, []int32{8})
	require.NoError(t, err)
	require.Equal(t, int32(10), top) // the end
	logits[10] = float32(math.Inf(-1))
	_, err = s.CoupledSample(logits, []int32{8}, 3)
	require.EqualError(t, err, `grammar "ab": no token of the vocabulary continues the output to a text that matches, and none ends it`)
	require.ErrorAs(t, err, new(*GrammarError))
	s.Push(3)
	_, err = s.Process(logits, nil)
	require.ErrorContains(t, err, "is not the beginning")
}

func TestBiasText(t *testing.T) {
	require.Equal(t, "", FormatBias(nil))
	require.Equal(t, "3:-100,7:0.1", FormatBias(map[int32]float32{7: 0.1, 3: -100}))
	require.False(t, Params{LogitBias: "1:1"}.Plain())
	for text, want := range map[string]string{
		"x":        `logit_bias "x": want id:bias, with a token id`,
		"-1:2":     `logit_bias "-1:2": want id:bias, with a token id`,
		"5":        `logit_bias of token 5 is ""; it must be a number in -100..100`,
		"5:nan":    `logit_bias of token 5 is "nan"; it must be a number in -100..100`,
		"5:101":    `logit_bias of token 5 is "101"; it must be a number in -100..100`,
		"5:1,5:2":  "logit_bias of token 5 comes after that of token 5; ids rise",
		"2:1,11:1": "logit_bias of token 11; the vocabulary is 0..10",
	} {
		require.EqualError(t, Params{LogitBias: text}.ValidateFor(lettersVocab), want)
	}
	require.EqualError(t, Params{Grammar: "a("}.Validate(), `grammar "a(", column 2: missing closing )`)
}
