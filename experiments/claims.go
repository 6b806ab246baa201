package experiments

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/audit"
)

// readSummary reads what a run reports of itself; nil where it never came to.
func readSummary(name string) (*Summary, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	sum := &Summary{}
	if err := json.Unmarshal(text, sum); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return sum, nil
}

// claims are the figures of a summary, by point. cut says that the run did not come
// to its end: it was interrupted or killed, and its last requests may be
// incomplete.
func claims(sum *Summary) (out map[string]audit.Claim, cut bool) {
	if sum == nil {
		return nil, true
	}
	plain := map[int]string{} // by concurrency
	for _, r := range sum.Runs {
		if r.Strategy < 0 {
			plain[r.Concurrency] = r.Point.String()
		}
	}
	out = map[string]audit.Claim{}
	for _, r := range sum.Runs {
		out[r.Point.String()] = audit.Claim{
			Tokens: int64(r.Tokens), AcceptLength: r.AcceptLength, AcceptanceByPosition: r.AcceptanceByPosition, Lossy: r.Lossy, Simulated: r.Simulated, Exact: r.Exact,
			Speeds: &audit.Speeds{
				Plain: plain[r.Concurrency], Seconds: r.Seconds, TokS: r.TokS, RatioToPlain: r.RatioToPlain, DecodeTokS: r.DecodeTokS, DecodeRatio: r.DecodeRatio,
				FreshAcceptLength: r.FreshAcceptLength, Repeated4Grams: r.Repeated4Grams, FreshRatio: r.FreshRatio, RealAcceptLength: r.RealAcceptLength,
				DraftShare: r.DraftShare, StepMs: r.StepMs, Preemptions: int64(r.Preemptions),
			},
			Classes: r.classClaims(),
		}
	}
	return out, sum.Interrupted
}

// classClaims are the line's figures by class; nil where a point has none, since
// several sequences share its steps.
func (r *PointResult) classClaims() map[string]audit.ClassClaim {
	if r.Concurrency != 1 {
		return nil
	}
	out := map[string]audit.ClassClaim{}
	for _, c := range r.Classes {
		out[c.Class] = audit.ClassClaim{
			Tokens: int64(c.Tokens), AcceptLength: c.AcceptLength, AcceptanceByPosition: c.AcceptanceByPosition,
			TokS: c.TokS, RatioToPlain: c.RatioToPlain, DraftShare: c.DraftShare,
		}
	}
	return out
}

// disagree says what of a run directory's files does not go with its records.
func disagree(dir string, cfg Config, prompts []Prompt, sum *Summary, meta acceptance.Meta) (out []string, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if h := sha256.Sum256(text); hex.EncodeToString(h[:]) != meta.Provenance["config"] {
		out = append(out, fmt.Sprintf("config.yaml has SHA-256 %x; the records are of a configuration with %s", h, meta.Provenance["config"]))
	}
	if sum == nil {
		return out, nil
	}
	for _, key := range slices.Sorted(maps.Keys(meta.Provenance)) {
		if has := sum.Provenance[key]; has != meta.Provenance[key] {
			out = append(out, fmt.Sprintf("summary.json says that %s is %q; the records say %q", key, has, meta.Provenance[key]))
		}
	}
	simulates := slices.ContainsFunc(cfg.Strategies, func(s Strategy) bool { return s.Simulate != nil })
	switch {
	case sum.Prompts != len(prompts):
		out = append(out, fmt.Sprintf("summary.json reports %d prompts; prompts.jsonl has %d", sum.Prompts, len(prompts)))
	case sum.Lossy != (len(cfg.lossy()) > 0):
		out = append(out, fmt.Sprintf("summary.json says lossy: %v; the lossy rules of config.yaml are %q", sum.Lossy, cfg.lossy()))
	case sum.Simulated != simulates:
		out = append(out, fmt.Sprintf("summary.json says simulated: %v; config.yaml asks for a simulation: %v", sum.Simulated, simulates))
	}
	return out, nil
}
