package audit

import (
	"fmt"
	"math"
	"strings"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/verify"
)

// checkClaims is about what the run reports of itself.
const checkClaims = "figures that the run reports are those of its records"

// PointOf is the point of a run that a request belongs to: its id up to the first
// slash, without the repeat (".r0") at its end.
func PointOf(request string) string {
	point, _, _ := strings.Cut(request, "/")
	if i := strings.LastIndex(point, ".r"); i >= 0 && strings.Trim(point[i+2:], "0123456789") == "" {
		return point[:i]
	}
	return point
}

// tally recomputes what a claim is about.
type tally struct {
	tokens, steps, lengths, rows int64
	reached, prefix              []int64
	simulated, lossy             bool
}

// tally takes a record, into its point and the whole run.
func (a *countsAudit) tally(r *engine.Record) {
	if len(a.c.Claims) == 0 {
		return
	}
	for _, point := range []string{"", PointOf(r.Request)} {
		if _, ok := a.c.Claims[point]; !ok {
			continue
		}
		t := a.claims[point]
		if t == nil {
			t = &tally{}
			a.claims[point] = t
		}
		t.add(r)
		a.class(point, r)
		if a.c.Claims[point].Speeds == nil {
			continue
		}
		if a.paces[point] == nil {
			a.paces[point] = &pace{}
		}
		a.paces[point].add(r)
	}
}

func (t *tally) add(r *engine.Record) {
	t.tokens += int64(r.Emitted())
	t.simulated, t.lossy = t.simulated || r.Simulated, t.lossy || r.Lossy
	if r.Phase != engine.Decode {
		return
	}
	t.steps++
	t.lengths += int64(r.Accepted.Length())
	t.rows += int64(r.Rows)
	for i := range int(min(r.KExecuted, 1<<16)) {
		t.reached = raised(t.reached, i)
		if int(r.Accepted) > i {
			t.prefix = raised(t.prefix, i)
		}
	}
}

// claimed compares the claims with the tallies.
func (a *countsAudit) claimed() {
	a.promises()
	for _, point := range sortedKeys(a.c.Claims) {
		claim, t := a.c.Claims[point], a.claims[point]
		k := a.b.check(checkClaims)
		if t == nil {
			k.holds(false)
			k.blame(nil, "figures are reported of %q, of which there is no record", point)
			continue
		}
		if why := t.against(claim); !k.holds(why == "") {
			k.blame(nil, "%s: %s", point, why)
		}
	}
}

// promises looks for points that nothing is reported of, and for a claim to be
// exact where none can be made: where the rule keeps a distribution only, and
// anywhere in a run that simulates or has a lossy rule.
func (a *countsAudit) promises() {
	k := a.b.check(checkClaims)
	told, forced := false, false
	for _, c := range a.c.Claims {
		told, forced = told || c.Speeds != nil, forced || c.Simulated || c.Lossy
	}
	for _, id := range sortedKeys(a.c.Requests) {
		r, point := a.c.Requests[id], PointOf(id)
		claim, ok := a.c.Claims[point]
		round, _, _ := strings.Cut(id, "/")
		if told && !a.c.CutShort && point != round && !k.holds(ok) {
			k.blameRequest(id, "request %s is of point %q, of which no figures are reported", id, point)
		}
		if claim.Exact == nil || !*claim.Exact {
			continue
		}
		if rule, err := verify.New(r.Rule); forced || r.Simulation != "" || err == nil && !rule.Exact(r.Params) {
			k.holds(false)
			k.blame(nil, "%s is reported to give the tokens of plain decoding; nothing in a run that simulates or has a lossy rule does, and rule %s at temperature %v promises its distribution at best", point, r.Rule, r.Params.Temperature)
		}
	}
}

// against says what a claim has that the records have not, or "".
func (t *tally) against(c Claim) string {
	length := float64(t.lengths) / float64(max(1, t.steps))
	sizes := fmt.Sprintf("%d steps of %d rows in all", t.steps, t.rows)
	switch {
	case c.Tokens != t.tokens:
		return fmt.Sprintf("%d tokens are reported, the records of %s emitted %d (%+.1f %%)", c.Tokens, sizes, t.tokens, 100*(float64(c.Tokens)/float64(max(1, t.tokens))-1))
	case !near(c.AcceptLength, length):
		return fmt.Sprintf("an accept length of %.4f is reported; %s committed %d tokens, %.4f a step (%+.1f %%)", c.AcceptLength, sizes, t.lengths, length, 100*(c.AcceptLength/length-1))
	case len(c.AcceptanceByPosition) != len(t.reached):
		return fmt.Sprintf("acceptance is reported for %d draft positions; the steps verified %d", len(c.AcceptanceByPosition), len(t.reached))
	case c.Simulated != t.simulated:
		return fmt.Sprintf("simulated is reported as %v; the records say %v", c.Simulated, t.simulated)
	case c.Lossy != t.lossy:
		return fmt.Sprintf("lossy is reported as %v; the records say %v", c.Lossy, t.lossy)
	case c.Lossy && c.Exact != nil && *c.Exact:
		return "the output of a lossy rule is reported to be plain decoding's"
	case c.Simulated && c.Exact != nil && *c.Exact:
		return "a simulated run is reported to give the tokens of plain decoding"
	}
	for i, got := range c.AcceptanceByPosition {
		if want := float64(get(t.prefix, i)) / float64(t.reached[i]); !near(got, want) {
			return fmt.Sprintf("acceptance at draft position %d is reported as %.4f; it is %d of %d steps, %.4f (%+.1f %%)", i, got, get(t.prefix, i), t.reached[i], want, 100*(got/want-1))
		}
	}
	return ""
}

// near reports whether two figures are the same up to the rounding of a sum.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }
