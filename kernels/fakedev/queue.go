package fakedev

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// command is a recorded operation, ready for the wrapped queue.
type command struct {
	run func(q kernels.Queue)
	// err is why the command can't run: it fails in its place.
	err error
	// used are the device's handles in the command: a program may outlive
	// them.
	used []uint32
	name string
}

// arrival is a Read that has run and waits to be delivered.
type arrival struct {
	seq       uint64
	dst, data []byte
}

// queue is the device's queue: commands pile up until someone waits.
type queue struct {
	recorder
	pending  []command
	ran      uint64
	err      error // sticky
	arrivals []arrival
	waits    int // by the host
	trace    *trace
	programs map[uint32]program
}

// program is a captured list: a program of the wrapped backend, with the
// device's handles in it.
type program struct {
	inner    kernels.Program
	commands []command
}

var _ kernels.Queue = (*queue)(nil)

func newQueue(be *Backend) *queue {
	q := &queue{programs: map[uint32]program{}}
	q.recorder = recorder{be: be, add: q.push}
	return q
}

// push puts a command on the list; one that is wrong fails in its place.
func (q *queue) push(c command, err error) {
	if err != nil {
		c.err = fmt.Errorf("%s: %w", c.name, err)
	}
	if q.be.capture != nil {
		q.be.capture.Fail(fmt.Errorf("%s: recorded on the device's queue while a program is captured", c.name))
		return
	}
	q.pending = append(q.pending, c)
}

// recorded returns the sequence number after everything recorded so far.
func (q *queue) recorded() uint64 { return q.ran + uint64(len(q.pending)) }

// keep makes err sticky if it is the first.
func (q *queue) keep(err error) {
	if q.err == nil {
		q.err = err
	}
}

// execute runs the commands before seq on the wrapped backend, to the end.
func (q *queue) execute(seq uint64) {
	if q.ran >= seq {
		return
	}
	q.keep(q.be.open(func() error {
		inner := q.be.inner.Queue()
		var failed error
		for q.ran < seq {
			c := q.pending[0]
			q.pending = q.pending[1:]
			q.ran++
			if failed != nil || q.err != nil {
				continue
			}
			if failed = c.err; failed == nil {
				q.timed(c, inner)
			}
		}
		// An operation that failed on the wrapped backend came first.
		if err := inner.Err(); err != nil {
			return err
		}
		return failed
	}))
}

// deliver hands over the Reads before seq.
func (q *queue) deliver(seq uint64) {
	kept := q.arrivals[:0]
	for _, a := range q.arrivals {
		if a.seq <= seq {
			if q.err == nil {
				copy(a.dst, a.data)
			}
			continue
		}
		kept = append(kept, a)
	}
	q.arrivals = kept
}

// WaitFor runs everything before seq, delivers its Reads and returns the sticky
// error.
func (q *queue) WaitFor(seq uint64) error {
	if q.be.capture != nil {
		err := fmt.Errorf("wait: not allowed while a program is captured")
		q.be.capture.Fail(err)
		return err
	}
	if seq > q.recorded() {
		return fmt.Errorf("wait: operation %d of a queue with %d", seq, q.recorded())
	}
	q.waits++
	q.execute(seq)
	q.deliver(seq)
	return q.err
}

// Err runs everything recorded, delivers all Reads and returns the sticky error.
func (q *queue) Err() error { return q.WaitFor(q.recorded()) }

// Write copies src now and fills dst later.
func (q *queue) Write(dst kernels.Buf, src []byte) {
	o := operands{be: q.be}
	d := o.buf(dst, "dst")
	if o.err == nil && len(src) != dst.Bytes() {
		o.err = fmt.Errorf("%d bytes for a view of %d", len(src), dst.Bytes())
	}
	held := append([]byte(nil), src...)
	q.push(command{name: "write", used: o.used, run: func(in kernels.Queue) {
		in.Write(d, held)
	}}, o.err)
}

// Read poisons dst now and fills it when the ticket is waited for.
func (q *queue) Read(dst []byte, src kernels.Buf) kernels.Ticket {
	o := operands{be: q.be}
	s := o.buf(src, "src")
	if o.err == nil && len(dst) != src.Bytes() {
		o.err = fmt.Errorf("%d bytes for a view of %d", len(dst), src.Bytes())
	}
	for i := range dst {
		dst[i] = Poison
	}
	q.push(command{name: "read", used: o.used, run: func(in kernels.Queue) {
		a := arrival{seq: q.ran, dst: dst, data: make([]byte, len(dst))}
		in.Read(a.data, s)
		q.arrivals = append(q.arrivals, a)
	}}, o.err)
	return kernels.Ticket{Q: q, Seq: q.recorded()}
}

// Capture records body into a program.
func (q *queue) Capture(key kernels.GraphKey, body func(kernels.Queue)) (kernels.Program, error) {
	if err := q.be.usable("capture " + key.Name); err != nil {
		return kernels.Program{}, err
	}
	c := newCapture(q.be)
	q.be.capture = c
	defer func() { q.be.capture = nil }()
	body(c)
	if c.Failure() != nil {
		return kernels.Program{}, fmt.Errorf("capture %s: %w", key.Name, c.Failure())
	}
	p := program{commands: c.commands}
	err := q.be.open(func() (err error) {
		p.inner, err = q.be.inner.Queue().Capture(key, func(in kernels.Queue) {
			for _, cmd := range c.commands {
				cmd.run(in)
			}
		})
		return err
	})
	if err != nil {
		return kernels.Program{}, err
	}
	id := newHandle()
	q.programs[id] = p
	return kernels.Program{ID: id}, nil
}

// Run appends a captured program, if its handles are still alive.
func (q *queue) Run(p kernels.Program) {
	prog, ok := q.programs[p.ID]
	var err error
	if !ok {
		err = fmt.Errorf("program %d is not of this device", p.ID)
	}
	for _, c := range prog.commands {
		for _, id := range c.used {
			if err == nil && !q.be.alive(id) {
				err = fmt.Errorf("%s: handle %d of this captured operation is dead", c.name, id)
			}
		}
	}
	q.push(command{name: "run", run: func(in kernels.Queue) { in.Run(prog.inner) }}, err)
}
