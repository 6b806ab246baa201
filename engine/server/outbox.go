package server

import (
	"sync"
	"time"

	"exacta.dev/exacta/engine"
)

// event is what a step gave for one sequence, or its end.
type event struct {
	at       time.Time // the step's end
	ids      []int32
	accepted int        // of ids, how many were drafts; the last one may be neither
	logs     []tokenLog // one for each id, where asked for
	step     *stepView  // where asked for
	stop     *found     // the text ends in this step
	end      *ending    // the last event
}

// found is a stop string, and the byte of the text where it begins.
type found struct {
	text string
	at   int
}

// ending is why a sequence ended and what it came to.
type ending struct {
	finish engine.Finish
	err    error
	stop   *found // nil where the text ended otherwise
	counts counts
}

// outbox holds the events of a sequence until its handler takes them. The worker
// puts, and never waits.
type outbox struct {
	mu     sync.Mutex
	events []event
	limit  int
	ready  chan struct{} // of the whole request: has a token while there may be events
}

func newOutbox(limit int, ready chan struct{}) *outbox { return &outbox{limit: limit, ready: ready} }

// put adds an event. It reports false, and adds nothing, where the handler is too
// far behind; an end is always taken.
func (o *outbox) put(e event) bool {
	o.mu.Lock()
	full := len(o.events) >= o.limit && e.end == nil
	if !full {
		o.events = append(o.events, e)
	}
	o.mu.Unlock()
	if !full {
		select {
		case o.ready <- struct{}{}:
		default:
		}
	}
	return !full
}

// take returns what is there, in order; it may be nothing.
func (o *outbox) take() []event {
	o.mu.Lock()
	defer o.mu.Unlock()
	events := o.events
	o.events = nil
	return events
}
