package audit

import (
	"fmt"
	"strings"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
)

// checkClasses is about the lines by class of prompt.
const checkClasses = "figures by class are those of the class's records"

// ClassClaim is what a run reported of a point over the prompts of one class. Its
// speeds are tokens per second of the engine's steps, medians over the rounds.
type ClassClaim struct {
	Tokens                         int64
	AcceptLength                   float64
	AcceptanceByPosition           []float64
	TokS, RatioToPlain, DraftShare float64
}

// classTally recomputes it.
type classTally struct {
	stats  acceptance.Stats
	rounds map[string]int // places in tokens and ns
	tokens []int64
	ns     []int64
}

// class takes a record of a point whose lines are told by class.
func (a *countsAudit) class(point string, r *engine.Record) {
	req := a.c.Requests[r.Request]
	if a.c.Claims[point].Classes == nil || req == nil {
		return
	}
	if a.classes[point] == nil {
		a.classes[point] = map[string]*classTally{}
	}
	t := a.classes[point][req.Class]
	if t == nil {
		t = &classTally{rounds: map[string]int{}}
		a.classes[point][req.Class] = t
	}
	t.add(r)
}

func (t *classTally) add(r *engine.Record) {
	t.stats.Add(r)
	name, _, _ := strings.Cut(r.Request, "/")
	i, known := t.rounds[name]
	if !known {
		i = len(t.ns)
		t.rounds[name] = i
		t.tokens, t.ns = append(t.tokens, 0), append(t.ns, 0)
	}
	t.tokens[i] += int64(r.Emitted())
	t.ns[i] += r.TotalNs
}

// rate is the tokens per second of a round, and whether the records have it.
func (t *classTally) rate(round int) (float64, bool) {
	if t == nil || round >= len(t.ns) || t.ns[round] == 0 {
		return 0, false
	}
	return 1e9 * float64(t.tokens[round]) / float64(t.ns[round]), true
}

// byClass compares the lines by class with the records.
func (a *countsAudit) byClass() {
	k := a.b.check(checkClasses)
	for _, point := range sortedKeys(a.c.Claims) {
		claim := a.c.Claims[point]
		found := a.classes[point]
		if claim.Classes == nil || len(found) < 2 && len(claim.Classes) == 0 {
			continue // of one class, the line of the point is that of the class
		}
		for _, name := range sortedKeys(found) {
			if _, told := claim.Classes[name]; !k.holds(told) {
				k.blame(nil, "%s: no figures are reported of class %q, of which there are %d records", point, name, found[name].stats.Steps)
			}
		}
		plain, rounds := map[string]*classTally(nil), 0
		if claim.Speeds != nil {
			plain, rounds = a.classes[claim.Speeds.Plain], len(claim.Speeds.Seconds)
		}
		for _, name := range sortedKeys(claim.Classes) {
			why := found[name].against(claim.Classes[name], plain[name], rounds)
			if !k.holds(why == "") {
				k.blame(nil, "%s, class %q: %s", point, name, why)
			}
		}
	}
}

// against says what a class's line has that the records of so many rounds have not,
// or "".
func (t *classTally) against(c ClassClaim, plain *classTally, rounds int) string {
	if t == nil {
		return "figures are reported, of which there is no record"
	}
	var speed, ratio []float64
	for i := range rounds {
		own, ok := t.rate(i)
		if !ok {
			return fmt.Sprintf("round %d is reported, of which there is no record", i)
		}
		speed = append(speed, own)
		if base, ok := plain.rate(i); ok {
			ratio = append(ratio, own/base)
		}
	}
	sum := t.stats.Summary()
	if len(c.AcceptanceByPosition) != len(sum.AcceptanceByPosition) {
		return fmt.Sprintf("acceptance is reported for %d draft positions; the steps verified %d", len(c.AcceptanceByPosition), len(sum.AcceptanceByPosition))
	}
	figures := []figure{
		{"number of tokens", float64(c.Tokens), float64(sum.Emitted)}, {"accept length", c.AcceptLength, sum.AcceptLength},
		{"tokens per second", c.TokS, middle(speed)}, {"ratio to plain decoding", c.RatioToPlain, middle(ratio)},
		{"share of drafting", c.DraftShare, sum.DraftShare},
	}
	for i, rate := range sum.AcceptanceByPosition {
		figures = append(figures, figure{fmt.Sprintf("acceptance at draft position %d", i), c.AcceptanceByPosition[i], rate})
	}
	return differing(figures)
}
