package outside

import (
	"context"

	"exacta.dev/exacta/acceptance/audit"
)

// Result is the audit of a server.
type Result struct {
	Server  *Server       `json:"server"`
	Tokens  audit.Report  `json:"tokens"`
	Counts  audit.Report  `json:"counts"`
	Work    audit.Report  `json:"work"`
	Figures []Figures     `json:"figures"`
	Judged  *TokenFigures `json:"judged,omitempty"`
	Visible []Form        `json:"eight_percent"`
}

// Reports are the three reports in their order.
func (r *Result) Reports() []audit.Report { return []audit.Report{r.Tokens, r.Counts, r.Work} }

// Audit runs the three audits over the evidence. tok may be nil.
func Audit(ctx context.Context, ev *Evidence, judge Judge, tok Tokenizer, opt Options) (*Result, error) {
	r := &Result{Server: ev.Server, Visible: Visible(), Judged: &TokenFigures{}}
	var err error
	if r.Tokens, *r.Judged, err = Tokens(ctx, ev, judge, tok, opt); err != nil {
		return nil, err
	}
	r.Counts, r.Figures = Counts(ev, opt)
	r.Work = Work(ev, opt)
	return r, nil
}
