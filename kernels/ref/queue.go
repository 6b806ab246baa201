package ref

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
)

// op is a recorded operation: a closure over resolved operands.
type op struct {
	name string
	run  func() error
	bufs []*buffer // that run touches; a program may outlive them
	// failed marks an operation whose error already names it.
	failed bool
	// transfer marks Write and Read, which Counters.Ops leaves out.
	transfer bool
}

// builder resolves the operands of an operation and returns what to run later.
type builder func() (func() error, error)

// recorder has the operations of kernels.Queue; add decides where they go.
type recorder struct {
	be  *Backend
	add func(name string, build builder)
}

// build resolves an operation.
func (be *Backend) build(name string, build builder) (op, error) {
	be.touched = nil
	run, err := build()
	if err != nil {
		return op{}, fmt.Errorf("%s: %w", name, err)
	}
	return op{name: name, run: run, bufs: be.touched}, nil
}

// execute runs an operation.
func (o op) execute() error {
	for _, b := range o.bufs {
		if b.dead {
			return fmt.Errorf("%s: a buffer of this captured operation was freed", o.name)
		}
	}
	err := o.run()
	if err != nil && !o.failed {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	return err
}

// program is a captured list.
type program struct {
	key kernels.GraphKey
	ops []op
}

// queue is a plain list of operations that run at Wait.
type queue struct {
	recorder
	pending   []op
	ran       uint64 // operations taken off the list since the start
	err       error  // sticky
	capturing bool
	programs  map[uint32]program
}

var _ kernels.Queue = (*queue)(nil)

func newQueue(be *Backend) *queue {
	q := &queue{recorder: recorder{be: be}, programs: map[uint32]program{}}
	q.add = func(name string, build builder) { q.append(name, false, build) }
	return q
}

// append puts an operation on the list; one that can't be resolved fails in its
// place.
func (q *queue) append(name string, transfer bool, build builder) {
	o, err := q.be.build(name, build)
	if err != nil {
		o = op{run: func() error { return err }, failed: true}
	}
	o.transfer = transfer
	q.pending = append(q.pending, o)
}

// recorded returns the sequence number after everything recorded so far.
func (q *queue) recorded() uint64 { return q.ran + uint64(len(q.pending)) }

// flush runs the operations before seq. After an error nothing runs any more.
func (q *queue) flush(seq uint64) {
	for q.ran < seq && len(q.pending) > 0 {
		o := q.pending[0]
		q.pending = q.pending[1:]
		q.ran++
		if q.err != nil {
			continue
		}
		if q.err = o.execute(); q.err != nil {
			continue
		}
		if !o.transfer {
			q.be.work.Ops++
			q.be.work.Launches++
		}
	}
	if len(q.pending) == 0 {
		q.pending = nil
	}
}

// WaitFor runs everything before seq and returns the sticky error.
func (q *queue) WaitFor(seq uint64) error {
	if q.capturing {
		return errors.New("wait: not allowed while a program is captured")
	}
	if seq > q.recorded() {
		return fmt.Errorf("wait: operation %d of a queue with %d", seq, q.recorded())
	}
	q.flush(seq)
	return q.err
}

// Err runs everything recorded and returns the sticky error.
func (q *queue) Err() error { return q.WaitFor(q.recorded()) }

// Write copies src, which must be exactly the view's bytes, and fills dst from
// the copy later.
func (q *queue) Write(dst kernels.Buf, src []byte) {
	q.append("write", true, func() (func() error, error) {
		v, err := q.be.view(dst, "dst")
		if err != nil {
			return nil, err
		}
		if len(src) != dst.Bytes() {
			return nil, fmt.Errorf("%d bytes for a view of %d", len(src), dst.Bytes())
		}
		held := append([]byte(nil), src...)
		return func() error { v.decode(held); return nil }, nil
	})
}

// Read fills dst, which must be exactly the view's bytes, when it runs.
func (q *queue) Read(dst []byte, src kernels.Buf) kernels.Ticket {
	q.append("read", true, func() (func() error, error) {
		v, err := q.be.view(src, "src")
		if err != nil {
			return nil, err
		}
		if len(dst) != src.Bytes() {
			return nil, fmt.Errorf("%d bytes for a view of %d", len(dst), src.Bytes())
		}
		return func() error { v.encode(dst); return nil }, nil
	})
	return kernels.Ticket{Q: q, Seq: q.recorded()}
}

// Capture records body into a program. The error is the first one of the
// body's operations; the queue itself is left as it was.
func (q *queue) Capture(key kernels.GraphKey, body func(kernels.Queue)) (kernels.Program, error) {
	if err := q.be.usable("capture " + key.Name); err != nil {
		return kernels.Program{}, err
	}
	q.capturing = true
	defer func() { q.capturing = false }()
	rec := newCapture(q.be)
	body(rec)
	if rec.Failure() != nil {
		return kernels.Program{}, fmt.Errorf("capture %s: %w", key.Name, rec.Failure())
	}
	id := handles.Add(1)
	q.programs[id] = program{key: key, ops: rec.ops}
	return kernels.Program{ID: id}, nil
}

// Run appends a captured program's operations.
func (q *queue) Run(p kernels.Program) {
	prog, ok := q.programs[p.ID]
	if !ok {
		q.add("run", func() (func() error, error) {
			return nil, fmt.Errorf("program %d is not of this backend", p.ID)
		})
		return
	}
	q.pending = append(q.pending, prog.ops...)
}
