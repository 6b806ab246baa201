package audit

import (
	"fmt"
	"slices"
	"strings"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
)

// checkSpeeds is about the times that the run reports of itself.
const checkSpeeds = "speeds that the run reports are those of its records"

// Speeds are the figures that a run reported of a point's time and text, beside
// those of its acceptance.
type Speeds struct {
	// Plain is the point of plain decoding that ratios compare with.
	Plain string
	// Seconds are wall times of the rounds, prompts included, in seconds.
	Seconds []float64
	// TokS and DecodeTokS are tokens per second, medians over the rounds: of
	// the wall time, and of the steps without prefill. The ratios are medians
	// of those to Plain in the same round.
	TokS, RatioToPlain      float64
	DecodeTokS, DecodeRatio float64
	// FreshAcceptLength, FreshRatio and Repeated4Grams are those of
	// acceptance.Fresh; FreshRatio is nil where it was not reported.
	FreshAcceptLength, Repeated4Grams float64
	FreshRatio, RealAcceptLength      *float64
	DraftShare, StepMs                float64
	Preemptions                       int64
}

// pace recomputes the speeds of a point. A round's records come together; the
// memory of its text is given back with its end.
type pace struct {
	stats  acceptance.Stats // over all rounds
	grams  acceptance.Fresh // sums of the rounds that ended
	rounds []round
	open   string
	now    *acceptance.Stats
	fresh  *acceptance.Fresh
}

// round is what is kept of a round.
type round struct {
	tokens               float64
	seconds              float64 // of its steps
	decodeTokS, freshTok float64
}

// add takes a record of the point.
func (p *pace) add(r *engine.Record) {
	name, _, _ := strings.Cut(r.Request, "/")
	if name != p.open || p.now == nil {
		p.end()
		p.open, p.now, p.fresh = name, &acceptance.Stats{}, &acceptance.Fresh{}
	}
	p.stats.Add(r)
	p.now.Add(r)
	p.fresh.Add(r)
}

// end closes the round that is open.
func (p *pace) end() {
	if p.now == nil {
		return
	}
	s := p.now.Summary()
	p.rounds = append(p.rounds, round{float64(p.now.Emitted), s.TotalSeconds, s.DecodeTokS, p.fresh.TokS()})
	p.grams.Grams += p.fresh.Grams
	p.grams.Repeated += p.fresh.Repeated
	p.grams.Steps += p.fresh.Steps
	p.grams.AcceptLengths += p.fresh.AcceptLengths
	p.now, p.fresh = nil, nil
}

// Bounds of a round's wall time by that of its steps: it can't be less, and what
// lies between steps (requests are made ready, memory is tidied) is little.
const (
	wallShare = 2.0
	wallSlack = 2.0 // seconds
)

// against says what the reported speeds have that the records have not, or "".
func (p *pace) against(c *Speeds, plain *pace, base *Speeds, cut bool) string {
	if n := len(c.Seconds); n == 0 || n > len(p.rounds) || n < len(p.rounds) && !cut {
		return fmt.Sprintf("wall times of %d rounds are reported; the records have %d", n, len(p.rounds))
	}
	var speed, ratio, decode, decodeRatio, fresh []float64
	for i, took := range c.Seconds {
		r := p.rounds[i]
		if took < r.seconds*(1-1e-9) || took > wallShare*r.seconds+wallSlack {
			return fmt.Sprintf("round %d is reported to have taken %.4f s; its %.0f tokens took steps of %.4f s in all", i, took, r.tokens, r.seconds)
		}
		speed, decode = append(speed, r.tokens/took), append(decode, r.decodeTokS)
		if plain == nil || base == nil || i >= len(base.Seconds) || i >= len(plain.rounds) {
			continue
		}
		q := plain.rounds[i]
		ratio = append(ratio, speed[i]/(q.tokens/base.Seconds[i]))
		if q.decodeTokS > 0 {
			decodeRatio = append(decodeRatio, r.decodeTokS/q.decodeTokS)
			if q.freshTok > 0 {
				fresh = append(fresh, r.freshTok/q.freshTok)
			}
		}
	}
	sum := p.stats.Summary()
	figures := []figure{
		{"tokens per second", c.TokS, middle(speed)}, {"ratio to plain decoding", c.RatioToPlain, middle(ratio)},
		{"tokens per second of decoding", c.DecodeTokS, middle(decode)}, {"ratio of decoding to plain", c.DecodeRatio, middle(decodeRatio)},
		{"accept length of fresh steps", c.FreshAcceptLength, p.grams.AcceptLength()}, {"share of repeated 4-grams", c.Repeated4Grams, p.grams.RepeatedShare()},
		{"share of drafting", c.DraftShare, sum.DraftShare}, {"milliseconds of a step", c.StepMs, sum.DecodeStepMs},
		{"preemptions", float64(c.Preemptions), float64(sum.Preemptions)},
	}
	if c.FreshRatio != nil {
		figures = append(figures, figure{"ratio of fresh steps to plain", *c.FreshRatio, middle(fresh)})
	}
	if c.RealAcceptLength != nil {
		figures = append(figures, figure{"accept length of the rule itself", *c.RealAcceptLength, sum.RealAccepted.Per(sum.Verifications) + 1})
	}
	return differing(figures)
}

// figure is one that was reported, beside what the records have.
type figure struct {
	name            string
	reported, found float64
}

// differing says of the first figure that is not what the records have, or "".
func differing(figures []figure) string {
	for _, f := range figures {
		if !near(f.reported, f.found) {
			return fmt.Sprintf("%s is reported as %.6g; the records have %.6g (%+.1f %%)", f.name, f.reported, f.found, 100*(f.reported/f.found-1))
		}
	}
	return ""
}

// middle is the median: of an even number, the mean of the two in the middle.
func middle(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// speeds compares the reported speeds of all points with the records.
func (a *countsAudit) speeds() {
	k := a.b.check(checkSpeeds)
	for _, p := range a.paces {
		p.end()
	}
	for _, point := range sortedKeys(a.c.Claims) {
		c, p := a.c.Claims[point].Speeds, a.paces[point]
		if c == nil || p == nil {
			continue // without records: checkClaims says so
		}
		why := p.against(c, a.paces[c.Plain], a.c.Claims[c.Plain].Speeds, a.c.CutShort)
		if !k.holds(why == "") {
			k.blame(nil, "%s: %s", point, why)
		}
	}
	if k.Checked > 0 {
		a.b.blindTo("wall time between steps, which is in tok/s, has no record; a clock that runs evenly slow or fast changes no figure but tok/s")
	}
}
