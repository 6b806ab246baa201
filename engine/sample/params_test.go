package sample

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParamsValidate(t *testing.T) {
	require.NoError(t, Params{}.Validate())
	require.NoError(t, Params{Temperature: 1, TopK: -1, TopP: 1, RepetitionPenalty: 1}.Validate())
	nan := float32(math.NaN())
	for _, c := range []struct {
		p    Params
		want string
	}{
		{Params{Temperature: -1}, "temperature -1 is out of range 0..100"},
		{Params{Temperature: nan}, "temperature NaN is out of range 0..100"},
		{Params{TopK: -2}, "top_k -2 is out of range: -1 or 0 (off) or a positive number"},
		{Params{TopP: 1.5}, "top_p 1.5 is out of range 0..1"},
		{Params{MinP: nan}, "min_p NaN is out of range 0..1"},
		{Params{RepetitionPenalty: 11}, "repetition_penalty 11 is out of range 0..10"},
		{Params{PresencePenalty: -3}, "presence_penalty -3 is out of range -2..2"},
		{Params{FrequencyPenalty: 2.5}, "frequency_penalty 2.5 is out of range -2..2"},
	} {
		require.EqualError(t, c.p.Validate(), c.want)
	}
}

func TestParamsKinds(t *testing.T) {
	require.True(t, Params{}.Plain())
	require.True(t, Params{RepetitionPenalty: 1, TopK: 5}.Plain())
	require.False(t, Params{PresencePenalty: 0.1}.Plain())
	require.True(t, Params{PresencePenalty: 0.1}.Greedy())
	require.False(t, Params{Temperature: 0.1}.Greedy())
}
