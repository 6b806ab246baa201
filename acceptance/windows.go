package acceptance

import (
	"fmt"

	"exacta.dev/exacta/engine"
)

// Over is what acceptance is followed over.
type Over string

// What acceptance is followed over.
const (
	// OverSteps: engine steps, counted from the first of the point's round.
	// A drift there is one of the run: warming up, a leak, another batch.
	OverSteps Over = "steps"
	// OverPosition: output positions, from 0, the first that the
	// verification decided. A drift there is one of the text: a drafter that
	// gains from repetition, or loses the thread.
	OverPosition Over = "position"
)

// MostWindows bounds the windows of a point, and so the memory.
const MostWindows = 4096

// Windows follows acceptance in windows of equal width, point by point, rounds
// pooled.
type Windows struct {
	over    Over
	bucket  int64
	order   []string
	points  map[string]*windowed
	clocks  map[string]*clock // by point with its round
	outputs map[string]int64  // tokens emitted so far, by request
}

// windowed are the windows of a point.
type windowed struct {
	windows    []*Counts // nil where nothing was verified
	passes     passes
	lossy      bool
	simulated  bool
	simulation string
}

// clock counts the steps of a round.
type clock struct{ last, n int64 }

// Window is one window's acceptance.
type Window struct {
	Point           string               `json:"point"` // without the round
	From            int64                `json:"from"`  // step or output position, the first
	To              int64                `json:"to"`    // and the one behind the last
	Verifications   int64                `json:"verifications"`
	Proposed        Sum[engine.Proposed] `json:"proposed"`
	Accepted        Sum[engine.Accepted] `json:"accepted"`
	Emitted         Sum[engine.Emitted]  `json:"emitted"` // by the verifications
	AcceptLength    float64              `json:"accept_length"`
	DraftAcceptRate float64              `json:"draft_accept_rate"`
	Passes          int                  `json:"passes"` // rounds that it pools
	Positions       []Position           `json:"positions"`
	Lossy           bool                 `json:"lossy"`
	Simulated       bool                 `json:"simulated"`
	Simulation      string               `json:"simulation"`
}

// NewWindows follows acceptance in windows of bucket steps or positions, at least
// 1.
func NewWindows(over Over, bucket int64) (*Windows, error) {
	if over != OverSteps && over != OverPosition {
		return nil, fmt.Errorf("over %q; it is %s or %s", over, OverSteps, OverPosition)
	}
	if bucket < 1 {
		return nil, fmt.Errorf("windows of %d %s; they are at least 1 wide", bucket, over)
	}
	return &Windows{over: over, bucket: bucket, points: map[string]*windowed{}, clocks: map[string]*clock{}, outputs: map[string]int64{}}, nil
}

// Add takes one record; records come in the order of their steps. The error says
// that there are more windows than MostWindows.
func (w *Windows) Add(r *engine.Record) error {
	at := w.place(r)
	if r.Phase != engine.Decode {
		return nil
	}
	name := ByPooledPoint(r)
	p := w.points[name]
	if p == nil {
		p = &windowed{}
		w.points[name] = p
		w.order = append(w.order, name)
	}
	p.passes.add(r)
	i := at / w.bucket
	if i >= MostWindows {
		return fmt.Errorf("%s %d of %s is in window %d of width %d; there are at most %d windows, so make them wider", w.over, at, name, i, w.bucket, MostWindows)
	}
	for int64(len(p.windows)) <= i {
		p.windows = append(p.windows, nil)
	}
	if p.windows[i] == nil {
		p.windows[i] = &Counts{}
	}
	p.windows[i].Verification(r)
	p.lossy = p.lossy || r.Lossy
	if r.Simulated && !p.simulated {
		p.simulated, p.simulation = true, r.Simulation
	}
	return nil
}

// place returns a record's step or output position, and moves on.
func (w *Windows) place(r *engine.Record) int64 {
	if w.over == OverPosition {
		at := w.outputs[r.Request]
		w.outputs[r.Request] = at + int64(r.Emitted())
		return at
	}
	round := ByPoint(r)
	c := w.clocks[round]
	if c == nil {
		c = &clock{last: r.Step}
		w.clocks[round] = c
	}
	switch {
	case r.Step > c.last:
		c.n += r.Step - c.last
	case r.Step < c.last: // another engine, which counts from 0
		c.n++
	}
	c.last = r.Step
	return c.n
}

// Lines returns the windows in which anything was verified, by point and then in
// order, with Wilson intervals of that confidence.
func (w *Windows) Lines(confidence float64) ([]Window, error) {
	out := []Window{}
	for _, name := range w.order {
		p := w.points[name]
		var all Counts
		for i, c := range p.windows {
			if c == nil {
				continue
			}
			all.Drafted += c.Drafted
			all.SimulatedDrafted += c.SimulatedDrafted
			from := int64(i) * w.bucket
			out = append(out, Window{
				Point: name, From: from, To: from + w.bucket, Verifications: c.Verifications,
				Proposed: c.Proposed, Accepted: c.Accepted, Emitted: c.Verified,
				AcceptLength: c.AcceptLengths.Per(c.Verifications), DraftAcceptRate: c.Accepted.Per(int64(c.Proposed)),
				Passes: len(p.passes.names), Positions: c.Positions(confidence, len(p.passes.names)), Lossy: p.lossy, Simulated: p.simulated, Simulation: p.simulation,
			})
		}
		if all.Mixed() {
			return nil, mixed(name, &all)
		}
	}
	return out, nil
}
