package outside

import (
	"encoding/json"
	"fmt"
	"io"
)

// BenchResult is a result of vllm bench serve with --save-result --save-detailed.
// Times by request are in seconds, statistics in milliseconds. Keys that a result has
// beside these are passed over.
type BenchResult struct {
	Date           string  `json:"date"`
	EndpointType   string  `json:"endpoint_type"`
	Label          string  `json:"label"`
	ModelID        string  `json:"model_id"`
	TokenizerID    string  `json:"tokenizer_id"`
	NumPrompts     int     `json:"num_prompts"`
	MaxConcurrency *int    `json:"max_concurrency"` // null is no limit
	Duration       float64 `json:"duration"`
	Completed      int     `json:"completed"`
	Failed         int     `json:"failed"`
	InputTokens    int64   `json:"total_input_tokens"`
	OutputTokens   int64   `json:"total_output_tokens"`
	RequestRate    float64 `json:"request_throughput"`
	OutputRate     float64 `json:"output_throughput"`
	TokenRate      float64 `json:"total_token_throughput"`
	// TTFT has mean_ttft_ms and the like, the others likewise.
	TTFT       BenchMetric `json:"-"`
	TPOT       BenchMetric `json:"-"`
	ITL        BenchMetric `json:"-"`
	E2EL       BenchMetric `json:"-"`
	InputLens  []int       `json:"input_lens"`
	OutputLens []int       `json:"output_lens"` // 0 of requests that failed
	TTFTs      []float64   `json:"ttfts"`
	ITLs       [][]float64 `json:"itls"` // gaps between chunks
	StartTimes []float64   `json:"start_times"`
	Errors     []string    `json:"errors"`
}

// BenchMetric are the statistics of a latency, in milliseconds, by name: mean, median,
// std, max, p90, p99.9.
type BenchMetric map[string]float64

// metrics names the latencies as keys do.
func (b *BenchResult) metrics() map[string]*BenchMetric {
	return map[string]*BenchMetric{"ttft": &b.TTFT, "tpot": &b.TPOT, "itl": &b.ITL, "e2el": &b.E2EL}
}

// Write writes the result as vllm bench serve does, one JSON object.
func (b *BenchResult) Write(w io.Writer) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	all := map[string]any{}
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for name, m := range b.metrics() {
		for statistic, v := range *m {
			all[statistic+"_"+name+"_ms"] = v
		}
	}
	return json.NewEncoder(w).Encode(all)
}

// ReadBench reads results of vllm bench serve, one or more. Errors name file, row and
// key.
func ReadBench(name string, r io.Reader) ([]BenchResult, error) {
	rows, err := rowsOf(name, r, VLLMBench)
	if err != nil {
		return nil, err
	}
	out := make([]BenchResult, len(rows))
	for i, row := range rows {
		b := &out[i]
		if err := row.into(b); err != nil {
			return nil, err
		}
		metrics := b.metrics()
		for key := range row.m {
			m := quantile.FindStringSubmatch(key)
			if m == nil || metrics[m[3]] == nil {
				continue
			}
			v, err := row.number(key)
			if err != nil {
				return nil, err
			}
			if to := metrics[m[3]]; v != nil {
				if *to == nil {
					*to = BenchMetric{}
				}
				(*to)[m[1]] = *v
			}
		}
	}
	return out, nil
}

// SpecAnswer is an answer of Spec-Bench: a line of its answer files.
type SpecAnswer struct {
	Question any       `json:"question_id"` // a number in Spec-Bench's own files
	Category string    `json:"category"`
	ID       string    `json:"answer_id"`
	Model    string    `json:"model_id"`
	Time     float64   `json:"tstamp"`
	Choices  []SpecRun `json:"choices"`
}

// SpecRun is one run of a question: texts, steps, tokens and seconds by turn, and
// over all turns the tokens of each step, the one after the accepted drafts included.
type SpecRun struct {
	Index   int       `json:"index"`
	Turns   []string  `json:"turns"`
	Steps   []int64   `json:"decoding_steps"`
	Tokens  []int64   `json:"new_tokens"`
	Seconds []float64 `json:"wall_time"`
	Accepts []int64   `json:"accept_lengths"`
}

// WriteAnswers writes answers, a line each.
func WriteAnswers(w io.Writer, answers []SpecAnswer) error {
	enc := json.NewEncoder(w)
	for i := range answers {
		if err := enc.Encode(&answers[i]); err != nil {
			return err
		}
	}
	return nil
}

// ReadAnswers reads answers of Spec-Bench. Errors name file, row and key.
func ReadAnswers(name string, r io.Reader) ([]SpecAnswer, error) {
	rows, err := rowsOf(name, r, SpecBench)
	if err != nil {
		return nil, err
	}
	out := make([]SpecAnswer, len(rows))
	for i, row := range rows {
		if err := row.into(&out[i]); err != nil {
			return nil, err
		}
		switch id := out[i].Question.(type) {
		case string, float64:
		default:
			return nil, row.errorf("question_id", "%v is neither a number nor a text", id)
		}
	}
	return out, nil
}

// rowsOf reads rows that are all of one format.
func rowsOf(name string, r io.Reader, f Format) ([]row, error) {
	rows, err := readRows(name, r)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if has := row.format(); has != f {
			return nil, row.errorf("", "is no row of %s", string(f))
		}
	}
	return rows, nil
}

// into decodes a row.
func (r row) into(v any) error {
	text, err := json.Marshal(r.m)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("%s, row %d: %w", r.file, r.n, err)
	}
	return nil
}
