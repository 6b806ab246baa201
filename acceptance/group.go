package acceptance

import (
	"fmt"
	"strings"

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

// ByPoint is the part of the request id before the first slash, with which
// experiments name their points and rounds.
func ByPoint(r *engine.Record) string {
	point, _, _ := strings.Cut(r.Request, "/")
	return point
}

// ByStrategy is drafter, rule and the draft length that was planned for the
// step, as "mtp/greedy/k4", and "simulated/" before that, so that real and
// simulated acceptance never share a line. Prefill has no draft length and is
// left out.
func ByStrategy(r *engine.Record) string {
	if r.Phase != engine.Decode {
		return ""
	}
	key := fmt.Sprintf("%s/%s/k%d", r.Drafter, r.Rule, r.KPlanned)
	if r.Simulated {
		key = "simulated/" + key
	}
	return key
}
