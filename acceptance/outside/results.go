package outside

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"exacta.dev/exacta/acceptance/audit"
)

// Format is the kind of a result file.
type Format string

// Formats of result files: the JSON of `vllm bench serve`, the JSONL of SGLang's
// bench_serving, and the answers of Spec-Bench.
const (
	VLLMBench   Format = "vllm bench serve"
	SGLangBench Format = "sglang bench_serving"
	SpecBench   Format = "spec-bench answers"
)

// maxRows bounds the rows of a result file.
const maxRows = 1_000_000

// FileResult is the audit of a result file.
type FileResult struct {
	File   string       `json:"file"`
	Format Format       `json:"format"`
	Rows   int          `json:"rows"`
	Tokens audit.Report `json:"tokens"`
	Counts audit.Report `json:"counts"`
	Work   audit.Report `json:"work"`
	// Figures are derived from the file, by name.
	Figures map[string]float64 `json:"figures"`
}

// Reports are the three reports in their order.
func (r *FileResult) Reports() []audit.Report { return []audit.Report{r.Tokens, r.Counts, r.Work} }

// AuditFile audits a result file, whose format it finds out. A file that is none
// of the formats, or has a value of the wrong kind, is an error that names file,
// row and key.
func AuditFile(name string, opt Options) (*FileResult, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("result file: %w", err)
	}
	defer f.Close()
	return AuditResults(name, f, opt)
}

// AuditResults is AuditFile for an open file; name is for messages.
func AuditResults(name string, r io.Reader, opt Options) (*FileResult, error) {
	rows, err := readRows(name, r)
	if err != nil {
		return nil, err
	}
	res := &FileResult{File: name, Format: rows[0].format(), Rows: len(rows), Figures: map[string]float64{}}
	a := &resultsAudit{
		counts: newLedger("counts", name), work: newLedger("work", name), opt: opt, figures: res.Figures,
	}
	tokens := newLedger("tokens", name)
	for _, row := range rows {
		if f := row.format(); f != res.Format {
			return nil, row.errorf("", "looks like %q, the rows before it like %q", string(f), string(res.Format))
		}
		switch res.Format {
		case VLLMBench, SGLangBench:
			err = a.bench(row, res.Format)
		case SpecBench:
			err = a.answers(row)
		default:
			err = row.errorf("", "is no result of vllm bench serve (total_token_throughput), SGLang's bench_serving (total_throughput) or Spec-Bench (question_id, choices)")
		}
		if err != nil {
			return nil, err
		}
	}
	if res.Format == SpecBench {
		a.totals()
	}
	tokens.blind("the tokens: a result file has no token ids, or no model to judge them by")
	a.counts.blind("figures that are made up to agree with each other")
	a.work.blind("work that was skipped: a result file has times of requests, not of steps")
	res.Tokens = tokens.close("a result file can't be judged token by token; audit the server (--endpoint)")
	res.Counts, res.Work = a.counts.close(""), a.work.close("")
	return res, nil
}

// resultsAudit is the state of AuditResults.
type resultsAudit struct {
	counts, work *ledger
	opt          Options
	figures      map[string]float64
	spec         specTotals
}

// row is one JSON object of a file.
type row struct {
	file string
	n    int // from 1
	m    map[string]json.RawMessage
}

func (r row) name() string { return fmt.Sprintf("row %d", r.n) }

func (r row) errorf(key, format string, args ...any) error {
	at := fmt.Sprintf("%s, row %d", r.file, r.n)
	if key != "" {
		at += ", key " + key + ":"
	}
	return fmt.Errorf("%s %s", at, fmt.Sprintf(format, args...))
}

// readRows reads the objects of a JSON or JSONL file.
func readRows(name string, r io.Reader) ([]row, error) {
	dec := json.NewDecoder(bufio.NewReader(r))
	var rows []row
	for {
		var m map[string]json.RawMessage
		switch err := dec.Decode(&m); {
		case errors.Is(err, io.EOF) && len(rows) == 0:
			return nil, fmt.Errorf("%s is empty; a result file has at least one JSON object", name)
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return nil, fmt.Errorf("%s, row %d, byte %d: %w; want a JSON object per row", name, len(rows)+1, dec.InputOffset(), err)
		case m == nil:
			return nil, fmt.Errorf("%s, row %d is null; want a JSON object", name, len(rows)+1)
		case len(rows) == maxRows:
			return nil, fmt.Errorf("%s has more than %d rows", name, maxRows)
		}
		rows = append(rows, row{name, len(rows) + 1, m})
	}
}

func (r row) has(keys ...string) bool {
	for _, k := range keys {
		if _, ok := r.m[k]; !ok {
			return false
		}
	}
	return true
}

// format tells a row's format by keys that only one has, or "".
func (r row) format() Format {
	switch {
	case r.has("question_id", "choices"):
		return SpecBench
	case r.has("duration", "completed", "total_token_throughput"):
		return VLLMBench
	case r.has("duration", "completed", "total_throughput"):
		return SGLangBench
	}
	return ""
}

func (r row) null(key string) bool {
	raw, ok := r.m[key]
	return !ok || string(raw) == "null"
}

// number reads a figure of at least 0; nil where it is missing or null.
func (r row) number(key string) (*float64, error) {
	if r.null(key) {
		return nil, nil
	}
	var v float64
	if err := json.Unmarshal(r.m[key], &v); err != nil {
		return nil, r.errorf(key, "%s is not a number", short(string(r.m[key])))
	}
	if v < 0 || math.IsInf(v, 0) {
		return nil, r.errorf(key, "%v; it can't be below 0", v)
	}
	return &v, nil
}

// need is number for a figure that must be there.
func (r row) need(key string) (float64, error) {
	v, err := r.number(key)
	if err == nil && v == nil {
		err = r.errorf(key, "is missing")
	}
	if err != nil {
		return 0, err
	}
	return *v, nil
}

// list reads a list of figures of at least 0; nil where it is missing or null.
func (r row) list(key string) ([]float64, error) {
	if r.null(key) {
		return nil, nil
	}
	var v []*float64
	if err := json.Unmarshal(r.m[key], &v); err != nil {
		return nil, r.errorf(key, "is not a list of numbers")
	}
	out := make([]float64, len(v))
	for i, x := range v {
		if x == nil || *x < 0 {
			return nil, r.errorf(key, "entry %d is not a number of at least 0", i)
		}
		out[i] = *x
	}
	return out, nil
}

// lists reads a list of lists of figures.
func (r row) lists(key string) ([][]float64, error) {
	if r.null(key) {
		return nil, nil
	}
	var v [][]float64
	if err := json.Unmarshal(r.m[key], &v); err != nil {
		return nil, r.errorf(key, "is not a list of lists of numbers")
	}
	for i, l := range v {
		if slices.ContainsFunc(l, func(x float64) bool { return x < 0 }) {
			return nil, r.errorf(key, "entry %d has a number below 0", i)
		}
	}
	return v, nil
}

func total(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum
}
