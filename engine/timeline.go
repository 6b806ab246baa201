package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"exacta.dev/exacta/kernels"
)

// Timeline notes what engines do when: what the host is at, and each operation on the
// device, of steps that decode and of prompts. An engine with a timeline launches each
// operation by itself, so that it can be timed, and waits for it: steps look as they
// are, but take longer than those of programs that are replayed.
type Timeline struct {
	be     kernels.Traced
	start  time.Time
	base   time.Duration // when the device's clock began
	events []timelineEvent
	doing  string // by the host
	since  time.Duration
	step   int64
	full   bool
}

// timelineEvent is a stretch of a lane.
type timelineEvent struct {
	lane   lane
	name   string
	at     time.Duration
	took   time.Duration
	step   int64
	isStep bool
}

// lane is a row of a timeline.
type lane int

const (
	hostLane lane = iota + 1
	decodeLane
	promptLane
)

// String names the lane.
func (l lane) String() string { return [...]string{"", "host", "device: decode", "device: prompts"}[l] }

// mostEvents bounds a timeline; what comes later is left out.
const mostEvents = 2 << 20

// NewTimeline begins a timeline of engines on a backend that can time operations.
func NewTimeline(be kernels.Backend) (*Timeline, error) {
	traced, ok := be.(kernels.Traced)
	if !ok {
		return nil, fmt.Errorf("backend %s can't time its operations; a timeline needs cuda or fakedev", be.Info().Name)
	}
	t := &Timeline{be: traced, start: time.Now()}
	err := traced.Trace(true)
	t.base = time.Since(t.start)
	return t, err
}

// host says what the host does from now on; "" is nothing. A nil timeline notes nothing.
func (t *Timeline) host(what string) {
	if t == nil {
		return
	}
	now := time.Since(t.start)
	if t.doing != "" {
		t.add(timelineEvent{lane: hostLane, name: t.doing, at: t.since, took: now - t.since, step: t.step})
	}
	t.doing, t.since = what, now
}

// device takes the operations that were recorded since the last call into a lane,
// under a name for them all.
func (t *Timeline) device(l lane, what string, step int64) error {
	if t == nil {
		return nil
	}
	ops, err := t.be.Traced()
	base := t.base
	t.base, t.step = time.Since(t.start), step
	if err != nil || len(ops) == 0 {
		return err
	}
	last := ops[len(ops)-1]
	t.add(timelineEvent{lane: l, name: what, at: base + ops[0].At, took: last.At + last.Took - ops[0].At, step: step, isStep: true})
	for _, op := range ops {
		t.add(timelineEvent{lane: l, name: op.Name, at: base + op.At, took: op.Took, step: step})
	}
	return nil
}

func (t *Timeline) add(e timelineEvent) {
	if t.full = t.full || len(t.events) >= mostEvents; !t.full {
		t.events = append(t.events, e)
	}
}

// Pause ends the timing of operations until the next Profile.
func (t *Timeline) Pause() error { return t.be.Trace(false) }

// Profile takes what body records into the lane of decoding, under a name, and pauses.
func (t *Timeline) Profile(name string, body func(kernels.Queue)) error {
	if err := t.be.Trace(true); err != nil {
		return err
	}
	t.base = time.Since(t.start)
	t.host("record " + name)
	body(t.be.Queue())
	t.host("")
	return errors.Join(t.device(decodeLane, name, t.step+1), t.Pause())
}

// Full says whether the timeline ends before what it shows did.
func (t *Timeline) Full() bool { return t.full }

// chromeEvent is an event of Chrome's trace format; times are microseconds.
type chromeEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	At    float64        `json:"ts"`
	Took  float64        `json:"dur"`
	Pid   int            `json:"pid"`
	Tid   lane           `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// Write writes the timeline in Chrome's trace format (JSON), as chrome://tracing and
// Perfetto read it. A step encloses its operations.
func (t *Timeline) Write(w io.Writer) error {
	t.host("")
	events := []chromeEvent{}
	for l := hostLane; l <= promptLane; l++ {
		events = append(events, chromeEvent{Name: "thread_name", Phase: "M", Pid: 1, Tid: l, Args: map[string]any{"name": l.String()}})
	}
	list := slices.Clone(t.events)
	slices.SortStableFunc(list, func(a, b timelineEvent) int {
		switch {
		case a.at != b.at:
			return int(a.at - b.at)
		case a.isStep != b.isStep && a.isStep:
			return -1
		case a.isStep != b.isStep:
			return 1
		}
		return 0
	})
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	for _, e := range list {
		events = append(events, chromeEvent{Name: e.name, Phase: "X", At: us(e.at), Took: us(e.took), Pid: 1, Tid: e.lane, Args: map[string]any{"step": e.step}})
	}
	enc := json.NewEncoder(w)
	err := enc.Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
	if err == nil && t.full {
		return errors.New("the timeline is full: it ends early")
	}
	return err
}
