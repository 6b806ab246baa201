package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sched"
)

// errDead says that the engine has ended.
var errDead = errors.New("the engine has ended")

// message asks the worker to take a job in, or to cancel it.
type message struct {
	job    *job
	cancel string // why; empty submits
}

// worker owns the engine.
type worker struct {
	eng    *engine.Engine
	logger *slog.Logger
	meter  *meter
	inbox  chan message
	stop   chan struct{} // closed: cancel what runs, and end
	done   chan struct{} // closed when the worker has ended
	jobs   map[int64]*job
	failed atomic.Pointer[error]
	load   atomic.Pointer[sched.Load] // after the latest step
	step   int64                      // of the records seen last
}

// newWorker makes a worker without an engine, which needs the worker's listener.
func newWorker(logger *slog.Logger, m *meter) *worker {
	w := &worker{
		logger: logger, meter: m, inbox: make(chan message, 256), stop: make(chan struct{}), done: make(chan struct{}),
		jobs: map[int64]*job{}, step: -1,
	}
	w.load.Store(&sched.Load{})
	return w
}

// err is why the engine ended, or nil.
func (w *worker) err() error {
	if e := w.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// listener is how the engine tells the worker what happens.
func (w *worker) listener() engine.Listener {
	return engine.Listener{Emitted: w.emitted, Finished: w.finished}
}

// run turns until stop is closed, or the engine fails.
func (w *worker) run() {
	defer close(w.done)
	defer func() {
		if p := recover(); p != nil {
			w.logger.Error("the engine panicked", "panic", p, "stack", string(debug.Stack()))
			w.fail(fmt.Errorf("%w: %v", errDead, p))
		}
		if err := w.eng.Close(); err != nil {
			w.logger.Error("closing the engine", "error", err)
		}
	}()
	for w.listen() {
		if _, err := w.eng.Step(); err != nil {
			w.logger.Error("the engine failed", "error", err)
			w.fail(fmt.Errorf("%w: %w", errDead, err))
			return
		}
		l := w.eng.Load()
		w.load.Store(&l)
	}
}

// listen takes all messages that are there, and waits for one while there is
// nothing to step. It returns false when the worker is to end.
func (w *worker) listen() bool {
	for {
		if w.eng.Active() == 0 {
			l := w.eng.Load()
			w.load.Store(&l)
			select {
			case m := <-w.inbox:
				w.take(m)
			case <-w.stop:
				return false
			}
			continue
		}
		select {
		case m := <-w.inbox:
			w.take(m)
		case <-w.stop:
			for _, j := range w.jobs {
				w.take(message{job: j, cancel: "the server is shutting down"})
			}
		default:
			return true
		}
	}
}

func (w *worker) take(m message) {
	j := m.job
	if m.cancel != "" {
		if j.seq != nil && j.seq.Finish() == "" {
			j.cancelled = m.cancel
			w.eng.Cancel(j.seq)
		}
		return
	}
	seq, err := w.eng.Submit(j.req)
	if err == nil {
		j.seq = seq
		w.jobs[seq.ID()] = j
	}
	j.accepted <- err
}

// fail ends all jobs: the engine can't go on.
func (w *worker) fail(err error) {
	w.failed.Store(&err)
	for _, j := range w.jobs {
		j.box.put(event{end: &ending{finish: engine.FinishError, err: err, counts: j.counts}})
	}
	clear(w.jobs)
}

// emitted takes what a step gave for a sequence.
func (w *worker) emitted(seq *engine.Sequence, r *engine.Record) {
	if r.Step != w.step {
		w.step = r.Step
		w.meter.step(r)
	}
	j := w.jobs[seq.ID()]
	if j == nil {
		return
	}
	now := time.Now()
	j.counts.add(r, now)
	w.meter.record(j, r, now)
	if len(r.EmittedIDs) == 0 {
		return
	}
	e := event{at: now, ids: r.EmittedIDs, accepted: int(r.Accepted), logs: j.takeLogs(len(r.EmittedIDs)), stop: j.found()}
	if j.detail {
		e.step = viewOf(r)
	}
	if !j.box.put(e) {
		w.meter.slow.Inc()
		j.cancelled = "slow reader"
		w.eng.Cancel(seq)
	}
}

// finished takes the end of a sequence.
func (w *worker) finished(seq *engine.Sequence) {
	j := w.jobs[seq.ID()]
	if j == nil {
		return
	}
	delete(w.jobs, seq.ID())
	j.counts.Ended = time.Now()
	end := &ending{finish: seq.Finish(), err: seq.Err(), stop: j.found(), counts: j.counts}
	if end.finish == engine.FinishCancel {
		end.err = errors.New(j.cancelled)
	}
	j.output = slices.Clone(seq.Output())
	j.box.put(event{end: end})
}

// submit hands a job to the worker and waits until it was taken in or refused.
// ctx is the client's.
func (w *worker) submit(ctx context.Context, j *job) error {
	select {
	case w.inbox <- message{job: j}:
	case <-w.done:
		return w.dead()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-j.accepted:
		return err
	case <-w.done:
		select {
		case err := <-j.accepted:
			return err
		default:
			return w.dead()
		}
	}
}

// cancel asks the worker to cancel a job that was taken in.
func (w *worker) cancel(j *job, why string) {
	select {
	case w.inbox <- message{job: j, cancel: why}:
	case <-w.done:
	}
}

// dead is the error of an engine that is gone.
func (w *worker) dead() error {
	if err := w.err(); err != nil {
		return err
	}
	return errDead
}
