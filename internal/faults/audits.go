package faults

import (
	"context"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/internal/faults/trial"
)

// audits are the audits, in the order in which they are reported.
var audits = []struct {
	name string
	run  func(context.Context, *audit.Case, func(string)) (*audit.Report, error)
}{
	{tokens, audit.Tokens}, {counts, audit.Counts}, {work, audit.Work},
}

// broken is the verdict of an audit that ended in an error: it caught nothing.
const broken audit.Outcome = "error"

// examine runs all audits on a result.
func examine(ctx context.Context, res *trial.Result, lab audit.Lab) (map[string]*audit.Report, error) {
	out := map[string]*audit.Report{}
	for _, a := range audits {
		r, err := a.run(ctx, res.Case("trial", lab), func(string) {})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			r = &audit.Report{Audit: a.name, Verdict: broken, Why: err.Error()}
		}
		out[a.name] = r
	}
	return out, nil
}
