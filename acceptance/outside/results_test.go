package outside

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
)

// served is a benchmark of 20 requests at k = 3, as an honest client and server
// would report it.
func served(f Format) map[string]any {
	const n, k, step, ttft = 20, 3, 0.02, 0.1
	var lens, inputs, ttfts []float64
	var itls [][]float64
	var all, tpots []float64
	steps, drafts, accepted, tokens := 0, 0, 0, 0
	joint := make([]float64, k)
	for i := range n {
		length, gaps := 1, []float64{}
		for j := 0; length < 120+i; j++ {
			acc := (i*7 + j*j) % (k + 1)
			for p := range acc {
				joint[p]++
			}
			steps, drafts, accepted = steps+1, drafts+k, accepted+acc
			length = min(120+i, length+acc+1)
			gaps = append(gaps, step)
		}
		tokens += length
		lens, inputs, ttfts, itls = append(lens, float64(length)), append(inputs, 50), append(ttfts, ttft), append(itls, gaps)
		all = append(all, gaps...)
		tpots = append(tpots, total(gaps)/float64(length-1))
	}
	duration := 30.0
	m := map[string]any{
		"duration": duration, "completed": n, "total_input_tokens": 50 * n, "total_output_tokens": tokens,
		"request_throughput": n / duration, "output_throughput": float64(tokens) / duration,
		"mean_ttft_ms": 1000 * ttft, "median_ttft_ms": 100.0, "p99_ttft_ms": 100.0,
		"mean_itl_ms": 1000 * total(all) / float64(len(all)), "median_itl_ms": 20.0, "p99_itl_ms": 20.0,
		"mean_tpot_ms": 1000 * total(tpots) / n, "output_lens": lens, "input_lens": inputs, "ttfts": ttfts, "itls": itls,
	}
	if f == SGLangBench {
		m["input_throughput"], m["total_throughput"] = 50*n/duration, (50*n+float64(tokens))/duration
		m["accept_length"], m["mean_e2e_latency_ms"], m["concurrency"] = 2.5, 3000.0, 3000.0/1000*n/duration
		m["total_output_tokens_retokenized"] = tokens - 3
		m["max_itl_ms"] = 20.0
		return m
	}
	m["num_prompts"], m["failed"] = n, 0
	m["total_token_throughput"] = (50*n + float64(tokens)) / duration
	for i := range joint {
		joint[i] /= float64(steps)
	}
	m["spec_decode_num_drafts"], m["spec_decode_draft_tokens"], m["spec_decode_accepted_tokens"] = steps, drafts, accepted
	m["spec_decode_acceptance_length"] = 1 + float64(accepted)/float64(steps)
	m["spec_decode_acceptance_rate"] = 100 * float64(accepted) / float64(drafts)
	m["spec_decode_per_position_acceptance_rates"] = joint
	return m
}

// answered is a Spec-Bench answer.
func answered(id int) map[string]any {
	return map[string]any{
		"question_id": id, "category": "writing", "answer_id": "a", "model_id": "m", "tstamp": 1.5,
		"choices": []any{map[string]any{
			"index": 0, "turns": []string{"x", "y"}, "decoding_steps": []int{3, 2}, "new_tokens": []int{9, 5},
			"wall_time": []float64{0.3, 0.2}, "accept_lengths": []int{4, 1, 4, 2, 3},
		}},
	}
}

func encode(t *testing.T, rows ...map[string]any) string {
	t.Helper()
	var b strings.Builder
	for _, r := range rows {
		text, err := json.Marshal(r)
		require.NoError(t, err)
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.String()
}

func audited(t *testing.T, text string) *FileResult {
	t.Helper()
	res, err := AuditResults("file.json", strings.NewReader(text), Options{})
	require.NoError(t, err)
	return res
}

func TestHonestResultFilesPass(t *testing.T) {
	for _, f := range []Format{VLLMBench, SGLangBench} {
		res := audited(t, encode(t, served(f)))
		require.Equal(t, f, res.Format)
		require.Equal(t, audit.NotCheckable, res.Tokens.Verdict)
		require.Equal(t, audit.Pass, res.Counts.Verdict, "%+v", res.Counts.Findings)
		require.Equal(t, audit.Pass, res.Work.Verdict, "%+v", res.Work.Findings)
		require.NotEmpty(t, res.Counts.Blind)
	}
	short := served(VLLMBench)
	for _, k := range []string{"output_lens", "input_lens", "ttfts", "itls"} {
		delete(short, k)
	}
	res := audited(t, encode(t, short))
	require.Equal(t, audit.Pass, res.Counts.Verdict, "%+v", res.Counts.Findings)
	require.Equal(t, audit.Pass, res.Work.Verdict, "%+v", res.Work.Findings)

	res = audited(t, encode(t, answered(1), answered(2)))
	require.Equal(t, SpecBench, res.Format)
	require.Equal(t, audit.Pass, res.Counts.Verdict, "%+v", res.Counts.Findings)
	require.Equal(t, audit.Pass, res.Work.Verdict)
	require.InDelta(t, 2.8, res.Figures["mat"], 1e-12)
	require.InDelta(t, 28, res.Figures["tokens_per_second"], 1e-9)
}

func TestChangedResultFilesFail(t *testing.T) {
	scale := func(key string, by float64) func(map[string]any) {
		return func(m map[string]any) {
			v, err := json.Number(fmt.Sprint(m[key])).Float64()
			if err != nil {
				panic(err)
			}
			m[key] = v * by
		}
	}
	for name, c := range map[string]struct {
		format Format
		change func(map[string]any)
		check  string
	}{
		"throughput":       {VLLMBench, scale("output_throughput", 1.08), "duration x output_throughput"},
		"total":            {SGLangBench, scale("total_throughput", 1.08), "duration x total_throughput"},
		"tokens":           {VLLMBench, func(m map[string]any) { m["total_output_tokens"] = 9999 }, "tokens by request"},
		"failed":           {VLLMBench, func(m map[string]any) { m["failed"] = 2 }, "completed + failed = prompts"},
		"accepted":         {VLLMBench, func(m map[string]any) { scale("spec_decode_accepted_tokens", 1.08)(m) }, "accept length = 1 + accepted / steps"},
		"length":           {VLLMBench, func(m map[string]any) { m["spec_decode_acceptance_length"] = 4.2 }, "accept length in 1..k+1"},
		"rate":             {VLLMBench, scale("spec_decode_acceptance_rate", 1.08), "accept rate = accepted / drafted"},
		"positions":        {VLLMBench, func(m map[string]any) { m["spec_decode_per_position_acceptance_rates"] = []float64{0.9, 0.5, 0.2} }, "positions add up"},
		"positions rise":   {VLLMBench, func(m map[string]any) { slices.Reverse(m["spec_decode_per_position_acceptance_rates"].([]float64)) }, "positions fall"},
		"percentiles":      {VLLMBench, func(m map[string]any) { m["p99_ttft_ms"] = 50 }, "percentiles rise"},
		"max":              {SGLangBench, func(m map[string]any) { m["max_itl_ms"] = 10 }, "percentiles rise"},
		"mean ttft":        {VLLMBench, scale("mean_ttft_ms", 0.9), "mean_ttft_ms is that of the requests"},
		"tpot":             {VLLMBench, scale("mean_tpot_ms", 0.92), "mean_tpot_ms is that of the requests"},
		"lists":            {SGLangBench, func(m map[string]any) { m["ttfts"] = []float64{1} }, "lists are of one length"},
		"accept length":    {SGLangBench, func(m map[string]any) { m["accept_length"] = 0.5 }, "accept length in 1..k+1"},
		"retokenised":      {SGLangBench, func(m map[string]any) { m["total_output_tokens_retokenized"] = 40 }, "text has the tokens"},
		"concurrency":      {SGLangBench, scale("concurrency", 1.5), "concurrency = time of requests / duration"},
		"consistent claim": {VLLMBench, inflate, "tokens = requests + steps + accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			m := served(c.format)
			c.change(m)
			res := audited(t, encode(t, m))
			var names []string
			for _, r := range res.Reports() {
				for _, f := range r.Findings {
					names = append(names, f.Check)
				}
			}
			require.Contains(t, names, c.check)
		})
	}
}

// inflate raises the accepted drafts by 12 % and every figure that follows.
func inflate(m map[string]any) {
	steps, accepted := m["spec_decode_num_drafts"].(int), m["spec_decode_accepted_tokens"].(int)
	more := accepted * 112 / 100
	m["spec_decode_accepted_tokens"] = more
	m["spec_decode_acceptance_length"] = 1 + float64(more)/float64(steps)
	m["spec_decode_acceptance_rate"] = 100 * float64(more) / float64(m["spec_decode_draft_tokens"].(int))
	joint := m["spec_decode_per_position_acceptance_rates"].([]float64)
	for i := range joint {
		joint[i] *= float64(more) / float64(accepted)
	}
}

func TestPiecesAgainstClaim(t *testing.T) {
	// Fewer steps and more accepted drafts, so that tokens still add up: the
	// pieces of the stream don't.
	m := served(VLLMBench)
	steps, accepted := m["spec_decode_num_drafts"].(int), m["spec_decode_accepted_tokens"].(int)
	m["spec_decode_num_drafts"] = steps - accepted/6
	m["spec_decode_accepted_tokens"] = accepted + accepted/6
	res := audited(t, encode(t, m))
	require.Equal(t, audit.Fail, res.Work.Verdict)
	require.Equal(t, "pieces of the stream", res.Work.Findings[0].Check)
}

func TestITLAgainstAcceptLength(t *testing.T) {
	m := served(VLLMBench)
	for _, k := range []string{"output_lens", "input_lens", "ttfts", "itls"} {
		delete(m, k)
	}
	m["mean_itl_ms"] = m["mean_tpot_ms"]
	res := audited(t, encode(t, m))
	require.Equal(t, "ITL = TPOT x accept length", res.Work.Findings[0].Check)
}

func TestChangedAnswersFail(t *testing.T) {
	for want, change := range map[string]func(c map[string]any){
		"accept lengths add up to tokens": func(c map[string]any) { c["new_tokens"] = []int{40, 30} },
		"accept lengths are steps":        func(c map[string]any) { c["decoding_steps"] = []int{9, 9} },
		"a step has a token":              func(c map[string]any) { c["accept_lengths"] = []int{4, 0, 4, 3, 3} },
		"lists are of one length":         func(c map[string]any) { c["turns"] = []string{"x"} },
		"wall times are positive":         func(c map[string]any) { c["wall_time"] = []float64{0, 1} },
	} {
		m := answered(1)
		change(m["choices"].([]any)[0].(map[string]any))
		res := audited(t, encode(t, m))
		found := append(res.Counts.Findings, res.Work.Findings...)
		require.True(t, slices.ContainsFunc(found, func(f audit.Finding) bool { return f.Check == want }), "%s: %+v", want, found)
	}
	res := audited(t, encode(t, answered(1), answered(1)))
	require.Equal(t, "a question once", res.Counts.Findings[0].Check)
}

func TestBadResultFiles(t *testing.T) {
	text := encode(t, served(VLLMBench))
	for want, bad := range map[string]string{
		"is empty":                           "",
		"row 1 is null":                      "null",
		"row 1, byte 6: json: cannot":        "[1, 2]",
		"unexpected EOF":                     text[:len(text)/2],
		"is no result of vllm bench serve":   `{"a": 1}`,
		"row 2 looks like":                   encode(t, served(VLLMBench), answered(1)),
		"key duration: \"\\\"x\\\"\" is not": strings.Replace(text, `"duration":30`, `"duration":"x"`, 1),
		"key duration: -30":                  strings.Replace(text, `"duration":30`, `"duration":-30`, 1),
		"key completed: is missing":          strings.Replace(text, `"completed":20`, `"completed":null`, 1),
		"key output_lens: is not a list":     strings.Replace(text, `"output_lens":[`, `"output_lens":[[1],`, 1),
		"key itls: is not a list of lists":   strings.Replace(text, `"itls":[`, `"itls":[1,`, 1),
		"key choices[0].accept_lengths:":     `{"question_id": 1, "choices": [{"new_tokens": [1], "wall_time": [1]}]}`,
		"key choices: is empty":              `{"question_id": 1, "choices": []}`,
		"key choices: is not as Spec-Bench":  `{"question_id": 1, "choices": {}}`,
		"invalid character 'N'":              strings.Replace(text, `"duration":30`, `"duration":NaN`, 1),
	} {
		_, err := AuditResults("file.json", strings.NewReader(bad), Options{})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "file.json")
	}
	_, err := AuditFile(filepath.Join(t.TempDir(), "none.json"), Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.False(t, math.IsNaN(total(nil)))
}

func FuzzResults(f *testing.F) {
	for _, format := range []Format{VLLMBench, SGLangBench} {
		m := served(format)
		m["output_lens"], m["input_lens"], m["ttfts"], m["itls"] = []int{9, 8}, []int{5, 5}, []float64{0.1, 0.2}, [][]float64{{0.1}, {}}
		text, err := json.Marshal(m)
		require.NoError(f, err)
		f.Add(text)
	}
	text, err := json.Marshal(answered(1))
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		res, err := AuditResults("f", strings.NewReader(string(text)), Options{})
		if err != nil {
			require.Contains(t, err.Error(), "f")
			return
		}
		_, err = json.Marshal(res)
		require.NoError(t, err)
	})
}
