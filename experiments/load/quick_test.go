package load

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What quick reads is what encoding/json reads.
func FuzzQuick(f *testing.F) {
	for _, s := range []string{
		`{"id":"cmpl-1","object":"text_completion","created":17,"model":"m","choices":[{"index":0,"text":" a","token_ids":[1,22,333],"logprobs":null,"finish_reason":null}],"usage":null}`,
		` { "choices" : [ { "text" : "a b" , "token_ids" : [ ] } ] } `, `{"choices":[{"text":"a\n"}]}`, `{"choices":[{"text":"é"}]}`, `{"choices":[]}`, `{"choices":[{}]}`,
		`{"choices":[{"text":"a","finish_reason":"stop"}]}`, `{"choices":[],"usage":{"prompt_tokens":1}}`, `{"error":{"message":"x"}}`, `{"choices":[{"text":"a"},{"text":"b"}]}`,
		`{"choices":[{"text":"a","text":"b","token_ids":[3],"token_ids":null}]}`, `{"choices":[{"text":"a","token_ids":[01]}]}`, `{"choices":[{"text":"a","token_ids":[2147483648]}]}`,
		`{"Choices":[{"TEXT":"a"}]}`, `{"choices":[{"text":"a"}],"choices":[{"token_ids":[1]}]}`, `{"choices":[{"text":"a","x":-1.5e3}]}`, `{"choices":[{"text":"a"}]}x`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var q quick
		if !q.read(data) {
			return
		}
		var c chunk
		require.NoError(t, json.Unmarshal(data, &c))
		require.Len(t, c.Choices, 1)
		require.Equal(t, c.Choices[0].Text, string(q.text))
		require.Equal(t, len(c.Choices[0].IDs), len(q.ids))
		for i, id := range c.Choices[0].IDs {
			require.Equal(t, id, q.ids[i])
		}
		require.Nil(t, c.Choices[0].Finish)
		require.Nil(t, c.Usage)
	})
}

// The usual event is read without allocating.
func TestQuickAllocates(t *testing.T) {
	data := []byte(`{"id":"cmpl-1","object":"text_completion","created":17,"model":"m","choices":[{"index":0,"text":" a","token_ids":[1,22,333],"logprobs":null,"finish_reason":null}],"usage":null}`)
	var q quick
	require.True(t, q.read(data))
	require.Equal(t, " a", string(q.text))
	require.Equal(t, []int32{1, 22, 333}, q.ids)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { q.read(data) }), 2.0)
}
