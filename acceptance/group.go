package acceptance

import (
	"fmt"

	"exacta.dev/exacta/engine"
)

// Group accumulates statistics by a key of the record, in order of first
// appearance. Records with an empty key are left out.
type Group struct {
	Key   func(*engine.Record) string
	Order []string
	By    map[string]*Stats
}

// NewGroup groups by key.
func NewGroup(key func(*engine.Record) string) *Group {
	return &Group{Key: key, By: map[string]*Stats{}}
}

// Add takes one record.
func (g *Group) Add(r *engine.Record) {
	k := g.Key(r)
	if k == "" {
		return
	}
	s := g.By[k]
	if s == nil {
		s = &Stats{}
		g.By[k] = s
		g.Order = append(g.Order, k)
	}
	s.Add(r)
}

// Mixed returns an error that names the first key under which simulated and real
// acceptance came together: no figure of the two means anything.
func (g *Group) Mixed() error {
	for _, k := range g.Order {
		if s := g.By[k]; s.Mixed() {
			return mixed(k, &s.Counts)
		}
	}
	return nil
}

func mixed(name string, c *Counts) error {
	return fmt.Errorf("%s: acceptance was simulated in %d of %d verifications with drafts; simulated and real acceptance are never put into one figure",
		name, c.SimulatedDrafted, c.Drafted)
}

// ByPoint is the part of the request id before the first slash, with which
// experiments name their points and rounds.
func ByPoint(r *engine.Record) string {
	point, _ := SplitRequest(r.Request)
	return point
}

// ByPooledPoint is the point without its round.
func ByPooledPoint(r *engine.Record) string { return ParsePoint(ByPoint(r)).Name }

// ByPrompt is the point without its round, a slash, and the prompt's id.
func ByPrompt(r *engine.Record) string {
	point, prompt := SplitRequest(r.Request)
	return ParsePoint(point).Name + "/" + prompt
}

// ByClass is the point without its round, a slash, and the prompt's class:
// UnknownClass where prompts does not have the prompt.
func ByClass(prompts Prompts) func(*engine.Record) string {
	return func(r *engine.Record) string {
		point, prompt := SplitRequest(r.Request)
		class := UnknownClass
		if p, ok := prompts[prompt]; ok {
			class = p.Class
		}
		return ParsePoint(point).Name + "/" + class
	}
}

// ByStrategy is drafter, rule and the draft length that was planned for the
// step, as "mtp/greedy/k4". Where acceptance was simulated, "simulated/" is
// before that and what was asked for behind, so that real and simulated
// acceptance, or two simulations, never share a line. Before a lossy rule "lossy/"
// stands in the same way. Prefill has no draft
// length and is left out.
func ByStrategy(r *engine.Record) string {
	if r.Phase != engine.Decode {
		return ""
	}
	key := fmt.Sprintf("%s/%s/k%d", r.Drafter, r.Rule, r.KPlanned)
	if r.Lossy {
		key = "lossy/" + key
	}
	if r.Simulated {
		key = "simulated/" + key
		if r.Simulation != "" {
			key += "/" + r.Simulation
		}
	}
	return key
}
