package ranks

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// queue is a rank's queue: operations that need no other rank go to the inner
// queue, and at the others the ranks meet.
type queue struct {
	local
	be       *Backend
	err      error // sticky
	ops      uint64
	programs []program
}

var _ kernels.Queue = (*queue)(nil)

func newQueue(be *Backend) *queue {
	q := &queue{be: be}
	q.local = local{be: be, in: be.inner.Queue(), main: q}
	return q
}

// stick makes err, which the inner backend or an exchange met, the queue's and
// the group's.
func (q *queue) stick(err error) {
	if err != nil && q.err == nil {
		q.err = q.be.g.fail(q.be.rank, err)
	}
}

// refuse is stick for an operation that can't run, after what was recorded
// before it.
func (q *queue) refuse(err error) {
	q.stick(q.in.Err())
	q.stick(err)
}

// WaitFor runs everything before seq and returns the sticky error.
func (q *queue) WaitFor(seq uint64) error {
	if q.err == nil {
		q.stick(q.in.WaitFor(seq))
	}
	return q.err
}

// Err runs everything recorded and returns the sticky error.
func (q *queue) Err() error {
	if q.err == nil {
		q.stick(q.in.Err())
	}
	return q.err
}

// Write records a write to this rank's memory.
func (q *queue) Write(dst kernels.Buf, src []byte) {
	if q.ready() {
		q.in.Write(dst, src)
	}
}

// Read records a read of this rank's memory.
func (q *queue) Read(dst []byte, src kernels.Buf) kernels.Ticket {
	if !q.ready() {
		return kernels.Ticket{Q: q}
	}
	return kernels.Ticket{Q: q, Seq: q.in.Read(dst, src).Seq}
}

// Capture records body as a program of inner programs and exchanges.
func (q *queue) Capture(key kernels.GraphKey, body func(kernels.Queue)) (kernels.Program, error) {
	if err := q.Err(); err != nil {
		return kernels.Program{}, err
	}
	c := &capture{be: q.be}
	body(c)
	if c.Failure() != nil {
		return kernels.Program{}, fmt.Errorf("ranks: capture %s: %w", key.Name, c.Failure())
	}
	p, err := q.compile(key, c.commands)
	if err != nil {
		return kernels.Program{}, err
	}
	q.programs = append(q.programs, p)
	return kernels.Program{ID: uint32(len(q.programs))}, nil
}

// compile turns runs of local commands into inner programs.
func (q *queue) compile(key kernels.GraphKey, commands []command) (program, error) {
	var p program
	for i := 0; i < len(commands); {
		if meet := commands[i].meet; meet != nil {
			p = append(p, part{meet: meet})
			i++
			continue
		}
		from := i
		for i < len(commands) && commands[i].meet == nil {
			i++
		}
		inner, err := q.in.Capture(key, func(in kernels.Queue) {
			l := &local{be: q.be, in: in}
			for _, c := range commands[from:i] {
				c.local(l)
			}
		})
		if err != nil {
			return nil, err
		}
		p = append(p, part{inner: inner, ops: uint64(i - from)})
	}
	return p, nil
}

// Run records a captured program; it meets the other ranks on the way.
func (q *queue) Run(p kernels.Program) {
	if q.err != nil {
		return
	}
	if p.ID == 0 || int(p.ID) > len(q.programs) {
		q.refuse(fmt.Errorf("run: there is no program %d", p.ID))
		return
	}
	for _, s := range q.programs[p.ID-1] {
		switch {
		case q.err != nil:
			return
		case s.meet != nil:
			s.meet(q)
		default:
			q.ops += s.ops
			q.in.Run(s.inner)
		}
	}
}
