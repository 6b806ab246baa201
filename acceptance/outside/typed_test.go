package outside

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// What was read is written as it was, and passes the audit that it passed.
func TestTypedRoundTrip(t *testing.T) {
	m := served(VLLMBench)
	m["std_ttft_ms"], m["p90_e2el_ms"], m["p99_e2el_ms"] = 3.5, 40.25, 50
	m["errors"], m["model_id"], m["max_concurrency"] = make([]string, 20), "<m>", nil
	read, err := ReadBench("f", bytes.NewReader([]byte(encode(t, m))))
	require.NoError(t, err)
	require.Equal(t, []float64{3.5, 40.25, 100, 30}, []float64{read[0].TTFT["std"], read[0].E2EL["p90"], read[0].TTFT["p99"], read[0].Duration})
	require.Len(t, read[0].ITLs, 20)
	var out bytes.Buffer
	require.NoError(t, read[0].Write(&out))
	again, err := ReadBench("f", bytes.NewReader(out.Bytes()))
	require.NoError(t, err)
	require.Equal(t, read, again)
	res := audited(t, out.String())
	require.Equal(t, VLLMBench, res.Format)
	require.Empty(t, res.Counts.Findings)
	require.Empty(t, res.Work.Findings)

	answers, err := ReadAnswers("f", bytes.NewReader([]byte(encode(t, answered(1), answered(2)))))
	require.NoError(t, err)
	require.Equal(t, 2.0, answers[1].Question)
	out.Reset()
	require.NoError(t, WriteAnswers(&out, answers))
	back, err := ReadAnswers("f", bytes.NewReader(out.Bytes()))
	require.NoError(t, err)
	require.Equal(t, answers, back)
	require.Empty(t, audited(t, out.String()).Counts.Findings)

	_, err = ReadAnswers("f", bytes.NewReader([]byte(encode(t, m))))
	require.ErrorContains(t, err, "f, row 1 is no row of spec-bench answers")
	_, err = ReadBench("f", bytes.NewReader([]byte(`{"duration": 1, "completed": 1, "total_token_throughput": 1, "ttfts": "x"}`)))
	require.ErrorContains(t, err, "f, row 1: json: cannot unmarshal")
	_, err = ReadBench("f", bytes.NewReader([]byte(`{"duration": 1, "completed": 1, "total_token_throughput": 1, "p99_ttft_ms": -1}`)))
	require.ErrorContains(t, err, "f, row 1, key p99_ttft_ms: -1")
	_, err = ReadAnswers("f", bytes.NewReader([]byte(`{"question_id": [1], "choices": []}`)))
	require.ErrorContains(t, err, "f, row 1, key question_id:")
}

// Whatever is read is written and read the same.
func FuzzTyped(f *testing.F) {
	f.Add([]byte(`{"duration": 1.5, "completed": 1, "total_token_throughput": 1, "ttfts": [0.5], "itls": [[0.1], []], "max_concurrency": null, "mean_ttft_ms": 3}`))
	f.Add([]byte(`{"question_id": 81, "category": "x", "choices": [{"turns": ["a"], "new_tokens": [3], "wall_time": [0.25], "accept_lengths": [2, 1]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var out bytes.Buffer
		if read, err := ReadBench("f", bytes.NewReader(text)); err == nil {
			for i := range read {
				require.NoError(t, read[i].Write(&out))
			}
			again, err := ReadBench("f", bytes.NewReader(out.Bytes()))
			require.NoError(t, err)
			require.Equal(t, read, again)
			return
		}
		if read, err := ReadAnswers("f", bytes.NewReader(text)); err == nil {
			require.NoError(t, WriteAnswers(&out, read))
			again, err := ReadAnswers("f", bytes.NewReader(out.Bytes()))
			require.NoError(t, err)
			require.Equal(t, read, again)
		}
	})
}
