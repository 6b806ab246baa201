package experiments

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/verify"
)

// Verdicts of an audit.
const (
	Pass         = "pass"
	Fail         = "fail"
	NotCheckable = "not checkable"
)

// TokensAudit is the outcome of the tokens audit: every request of a run
// compared with a plain replay, bit for bit.
type TokensAudit struct {
	Verdict     string                  `json:"verdict"`
	Why         string                  `json:"why,omitempty"`
	Run         string                  `json:"run"`
	Requests    int                     `json:"requests"`
	Tokens      int                     `json:"tokens"`
	Skipped     int                     `json:"skipped"`    // requests whose rule promises no equality
	Unfinished  int                     `json:"unfinished"` // requests that the end of the run cut short; compared as far as they go
	Divergences []acceptance.Divergence `json:"divergences"`
}

// AuditTokens replays a run directory: each prompt once per rule by plain
// decoding of one sequence, on the model and backend that the run's
// configuration names, and compares tokens and logits hashes of all requests.
// Of a run that came to its end, outputs.jsonl must say the same as the records.
func AuditTokens(ctx context.Context, dir string, progress func(string)) (*TokensAudit, error) {
	reader, err := acceptance.Open(dir)
	if err != nil {
		return nil, err
	}
	res := &TokensAudit{Run: reader.Meta().Run, Divergences: []acceptance.Divergence{}}
	cfg, err := LoadConfig(filepath.Join(dir, "config.yaml"))
	if err != nil {
		return nil, err
	}
	prompts, err := readLines[Prompt](filepath.Join(dir, "prompts.jsonl"), "prompt")
	if err != nil {
		return nil, err
	}
	s, err := open(cfg, prompts)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if why := comparable(reader.Meta().Provenance, provenance(s, "")); why != "" {
		res.Verdict, res.Why = NotCheckable, why
		return res, nil
	}
	var got acceptance.Collector
	rules := map[string]string{}
	for rec, err := range reader.All() {
		if err != nil {
			return nil, err
		}
		if err := got.Add(rec); err != nil {
			return nil, err
		}
		rules[rec.Request] = rec.Rule
	}
	cut := cutShort(dir)
	if !cut {
		if res.Why, err = checkOutputs(filepath.Join(dir, "outputs.jsonl"), &got); err != nil {
			return nil, err
		}
	}
	return res, s.compareAll(ctx, &got, rules, cut, res, progress)
}

// checkOutputs compares the outputs that a run wrote with its records, and says
// what differs first, or "".
func checkOutputs(name string, got *acceptance.Collector) (string, error) {
	outputs, err := readLines[output](name, "output")
	if err != nil {
		return "", err
	}
	for _, o := range outputs {
		t := got.Traces[o.Request]
		if t == nil {
			return fmt.Sprintf("outputs.jsonl has request %s, of which there is no record", o.Request), nil
		}
		if !slices.Equal(t.Tokens, o.IDs) {
			return fmt.Sprintf("outputs.jsonl has other tokens for request %s than the records", o.Request), nil
		}
	}
	if len(outputs) != len(got.Order) {
		return fmt.Sprintf("outputs.jsonl has %d requests, the records have %d", len(outputs), len(got.Order)), nil
	}
	return "", nil
}

// cutShort reports whether a run did not come to its end: it was interrupted or
// killed, and its last requests may be incomplete.
func cutShort(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		return true
	}
	var sum struct {
		Interrupted bool `json:"interrupted"`
	}
	return json.Unmarshal(text, &sum) != nil || sum.Interrupted
}

// comparable says why bits of two machines can't be compared, or "".
func comparable(run, now map[string]string) string {
	for _, key := range []string{"model_hash", "arithmetic"} {
		if run[key] != now[key] {
			return fmt.Sprintf("the run's %s is %q, here it is %q", strings.ReplaceAll(key, "_", " "), run[key], now[key])
		}
	}
	return ""
}

// readLines reads a JSONL file of a run directory.
func readLines[T any](name, what string) ([]T, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	defer f.Close()
	var out []T
	dec := json.NewDecoder(bufio.NewReader(f))
	for {
		var v T
		switch err := dec.Decode(&v); {
		case errors.Is(err, io.EOF) && len(out) == 0:
			return nil, fmt.Errorf("%s: no %ss", name, what)
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("%s, %s %d: %w", name, what, len(out)+1, err)
		}
		out = append(out, v)
	}
}

func (s *session) compareAll(ctx context.Context, got *acceptance.Collector, rules map[string]string, cut bool, res *TokensAudit, progress func(string)) error {
	plain := map[string]map[string]*acceptance.Trace{} // by rule, by prompt
	for _, id := range got.Order {
		rule, err := verify.New(rules[id])
		if err != nil {
			return err
		}
		if !rule.Exact(s.cfg.Sampling.Params(0)) {
			res.Skipped++
			continue
		}
		if plain[rules[id]] == nil {
			progress("replaying plainly under rule " + rules[id])
			if plain[rules[id]], err = s.replay(ctx, rules[id]); err != nil {
				return err
			}
		}
		_, prompt, _ := strings.Cut(id, "/")
		ref := plain[rules[id]][prompt]
		if ref == nil {
			return fmt.Errorf("request %s: prompts.jsonl has no prompt %q", id, prompt)
		}
		res.Requests++
		res.Tokens += len(got.Traces[id].Tokens)
		if n := len(got.Traces[id].Tokens); cut && n < len(ref.Tokens) {
			res.Unfinished++
			ref = ref.First(n)
		}
		if d := acceptance.Compare(id, got.Traces[id], ref); d != nil {
			res.Divergences = append(res.Divergences, *d)
		}
	}
	switch {
	case len(res.Divergences) > 0:
		res.Verdict, res.Why = Fail, res.Divergences[0].String()
	case res.Why != "":
		res.Verdict = Fail
	case res.Requests == 0:
		res.Verdict, res.Why = NotCheckable, "no request of the run has a rule that promises plain decoding's tokens"
	default:
		res.Verdict = Pass
	}
	return nil
}

// replay decodes every prompt plainly, one at a time.
func (s *session) replay(ctx context.Context, rule string) (map[string]*acceptance.Trace, error) {
	var c acceptance.Collector
	p := Point{Strategy: -1, Drafter: "none", Rule: rule, Concurrency: 1}
	e, err := s.engine(p, engine.RecorderFunc(c.Add))
	if err != nil {
		return nil, err
	}
	defer e.Close()
	seqs := make([]*engine.Sequence, len(s.prompts))
	for i := range s.prompts {
		if seqs[i], err = e.Submit(s.request(p, i, s.prompts[i].ID)); err != nil {
			return nil, err
		}
	}
	if err := e.Run(func() bool { return ctx.Err() != nil }); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ErrInterrupted
	}
	var failed error
	for _, q := range seqs {
		failed = errors.Join(failed, q.Err())
	}
	return c.Traces, failed
}
