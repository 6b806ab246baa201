package faults

import (
	"context"
	"fmt"

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

// examine runs all audits on a result. An audit that ends in an error says
// nothing, and that is an error here: a fault must not silence it.
func examine(ctx context.Context, name string, res *trial.Result, lab audit.Lab) (map[string]*audit.Report, error) {
	out := map[string]*audit.Report{}
	for _, a := range audits {
		r, err := a.run(ctx, res.Case(name, lab), func(string) {})
		if err != nil {
			return nil, fmt.Errorf("%s audit of %s: %w", a.name, name, err)
		}
		out[a.name] = r
	}
	return out, nil
}
