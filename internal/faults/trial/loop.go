package trial

import (
	"errors"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/fakedev"
)

// LoopOver replaces operations of the loop on a device; nil fields leave them. Each is
// given the queue to record on.
type LoopOver struct {
	Commit func(q kernels.LoopQueue, c kernels.Caches, b *kernels.Batch, kept, path kernels.Buf)
	Accept func(q kernels.LoopQueue, kept, next kernels.Buf, r kernels.RuleID, b *kernels.Batch, target kernels.Buf)
	Limit  func(q kernels.LoopQueue, drafts, left, most kernels.Buf)
	Halt   func(q kernels.LoopQueue, slots, left, kept, next, drafts, stops kernels.Buf)
}

// device is a device whose captured programs may err.
type device struct {
	*fakedev.Backend
	over LoopOver
}

// looping returns the machine with the model on a device that the host can't look
// into, loaded when it is first asked for.
func (m *Machine) looping() (*Machine, error) {
	if m.onDevice != nil {
		return m.onDevice, nil
	}
	be, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	l := *m
	l.device = &device{Backend: fakedev.New(be)}
	l.Backend = l.device
	if l.Model, err = model.Load(l.Backend, m.Entry.Source, model.Options{MaxTokens: Context, MTP: true}); err != nil {
		return nil, errors.Join(err, be.Close())
	}
	m.onDevice = &l
	return m.onDevice, nil
}

// loops makes a run on the device. One that failed takes the device with it: its
// queue's error stays.
func (m *Machine) loops(p *play, w Wiring) error {
	l, err := m.looping()
	if err != nil {
		return err
	}
	l.device.over = w.Loop
	err = p.on(l, nil, w)
	if err != nil || p.res.Err != "" {
		m.onDevice = nil
		err = errors.Join(err, l.Backend.Close())
	}
	return err
}

// Queue implements kernels.Backend.
func (d *device) Queue() kernels.Queue {
	return &deviceQueue{d.Backend.Queue().(kernels.LoopQueue), d}
}

// deviceQueue captures programs onto queues that err.
type deviceQueue struct {
	kernels.LoopQueue
	d *device
}

// Capture implements kernels.Queue.
func (q *deviceQueue) Capture(key kernels.GraphKey, body func(kernels.Queue)) (kernels.Program, error) {
	return q.LoopQueue.Capture(key, func(in kernels.Queue) { body(&erring{in.(kernels.LoopQueue), &q.d.over}) })
}

// erring is the queue of a capture.
type erring struct {
	kernels.LoopQueue
	over *LoopOver
}

// Commit implements kernels.Queue.
func (q *erring) Commit(c kernels.Caches, b *kernels.Batch, kept, path kernels.Buf) {
	if q.over.Commit != nil {
		q.over.Commit(q.LoopQueue, c, b, kept, path)
		return
	}
	q.LoopQueue.Commit(c, b, kept, path)
}

// Accept implements kernels.Queue.
func (q *erring) Accept(kept, next kernels.Buf, r kernels.RuleID, b *kernels.Batch, target kernels.Buf) {
	if q.over.Accept != nil {
		q.over.Accept(q.LoopQueue, kept, next, r, b, target)
		return
	}
	q.LoopQueue.Accept(kept, next, r, b, target)
}

// Limit implements kernels.LoopQueue.
func (q *erring) Limit(drafts, left, most kernels.Buf) {
	if q.over.Limit != nil {
		q.over.Limit(q.LoopQueue, drafts, left, most)
		return
	}
	q.LoopQueue.Limit(drafts, left, most)
}

// Halt implements kernels.LoopQueue.
func (q *erring) Halt(slots, left, kept, next, drafts, stops kernels.Buf) {
	if q.over.Halt != nil {
		q.over.Halt(q.LoopQueue, slots, left, kept, next, drafts, stops)
		return
	}
	q.LoopQueue.Halt(slots, left, kept, next, drafts, stops)
}
