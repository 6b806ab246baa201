package audit

import (
	"fmt"
	"slices"
	"strings"

	"exacta.dev/exacta/engine"
)

// toldInFull is the number of divergences for which the oracle is asked.
const toldInFull = 2

// tell writes a finding about output j: the two candidates and their gap, what
// else was in the batch, and which side the float64 oracle takes.
func (a *tokensAudit) tell(k *check, co *course, j int, row judged) error {
	at, id, position := co.at[j], co.tokens[j], len(co.req.Prompt)+j
	what := fmt.Sprintf("token %d, the target's choice is %d", id, row.choice)
	if id == row.choice {
		what = fmt.Sprintf("token %d agrees but its logits do not: hash %016x and gap %v, teacher forcing has %016x and %v", id, co.hashes[j], at.gap, row.hash, row.gap)
	}
	if a.told++; a.told <= toldInFull {
		gap, err := a.between(co, j, row)
		if err != nil {
			return err
		}
		what += gap
	}
	company, err := a.company(co.id, at.step)
	if err != nil {
		return err
	}
	k.blameRequest(co.id, "request %s, output %d (position %d): %s; it is row %d of its span in step %d, %d sequences with %d rows, %d of them prefill (%s)",
		co.id, j, position, what, at.row, at.step, at.batch, at.rows, at.fresh, company)
	k.finding.Step = at.step
	return nil
}

// between says how far apart the two candidates are, and whom the oracle likes.
func (a *tokensAudit) between(co *course, j int, row judged) (string, error) {
	ids := slices.Concat(co.req.Prompt, co.tokens[:j])
	id, other := co.tokens[j], row.choice
	if id == other {
		other = row.top2
	}
	text := ""
	err := a.c.Lab.Force(a.ctx, ids, len(ids)-1, true, func(r Row) error {
		if int(id) < len(r.Logits) && int(other) < len(r.Logits) {
			text = fmt.Sprintf(" (logits %.6g and %.6g of %d, gap %.4g)", r.Logits[id], r.Logits[other], other, r.Logits[other]-r.Logits[id])
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	logits, err := a.c.Lab.Oracle(a.ctx, ids)
	if err != nil || int(id) >= len(logits) || int(other) >= len(logits) {
		return text + "; the float64 oracle could not be asked", a.ctx.Err()
	}
	best := int32(0)
	for i, l := range logits {
		if l > logits[best] {
			best = int32(i)
		}
	}
	return text + fmt.Sprintf("; the float64 oracle has %.6g and %.6g, its argmax is %d", logits[id], logits[other], best), nil
}

// company says what else was in an engine step.
func (a *tokensAudit) company(request string, step int64) (string, error) {
	var recs, found []*engine.Record
	s := stepper{done: func(list []*engine.Record) {
		if list[0].Step == step && slices.ContainsFunc(list, func(r *engine.Record) bool { return r.Request == request }) {
			found = slices.Clone(list)
		}
	}}
	for r, err := range a.c.Records() {
		if err != nil {
			return "", err
		}
		if r.Step == step {
			s.add(r)
		} else if len(s.recs) > 0 {
			s.flush()
		}
		if found != nil {
			break
		}
	}
	s.flush()
	recs = found
	var others []string
	for _, r := range recs {
		if r.Request != request && len(others) < 8 {
			others = append(others, fmt.Sprintf("%s %s %d rows at %d", r.Request, r.Drafter, r.Rows, r.Position))
		}
	}
	if len(others) == 0 {
		return "alone", nil
	}
	return "beside " + strings.Join(others, ", "), nil
}
