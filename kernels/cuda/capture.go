//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// program is a captured graph.
type program struct {
	key   kernels.GraphKey
	graph *driver.Graph
	work  kernels.Counters // of one run
	posts []posting        // in order
	bufs  map[uint32]bool  // that it touches
	dead  bool             // one of them was freed
	err   error            // while it is captured: the first that went wrong
}

// Capture records body as a CUDA graph. The error is the first one of the body's
// operations; the queue itself is left as it was.
func (q *queue) Capture(key kernels.GraphKey, body func(kernels.Queue)) (kernels.Program, error) {
	what := "capture " + key.Name
	if err := q.be.usable(what); err != nil {
		q.settle(err) // of the program around this one, if there is one
		return kernels.Program{}, err
	}
	if q.err != nil {
		return kernels.Program{}, q.err
	}
	defer q.be.leave()
	if err := q.be.enter(); err != nil {
		return kernels.Program{}, fmt.Errorf("%s: %w", what, err)
	}
	if err := q.stream.BeginCapture(); err != nil {
		return kernels.Program{}, fmt.Errorf("%s: %w", what, err)
	}
	p := &program{key: key, bufs: map[uint32]bool{}}
	if err := q.record(p, body); err != nil {
		return kernels.Program{}, fmt.Errorf("%s: %w", what, err)
	}
	id := handles.Add(1)
	q.programs[id] = p
	return kernels.Program{ID: id}, nil
}

// record runs body while the stream captures, and ends the capture even if body
// panics.
func (q *queue) record(p *program, body func(kernels.Queue)) error {
	q.recording, q.sorted = p, sortKey{}
	whole := false
	defer func() {
		q.recording, q.sorted = nil, sortKey{}
		if !whole {
			q.stream.AbortCapture()
		}
	}()
	body(q)
	if p.err != nil {
		return p.err
	}
	whole = true
	var err error
	p.graph, err = q.stream.EndCapture()
	return err
}

// Run launches a captured program.
func (q *queue) Run(p kernels.Program) {
	q.do(opRun, func() {
		prog, ok := q.programs[p.ID]
		switch {
		case q.recording != nil:
			q.failWith(errInCapture)
		case !ok:
			q.fail("program %d is not of this backend", p.ID)
		case prog.dead:
			q.fail("a buffer of the captured program %s was freed", prog.key.Name)
		default:
			q.failWith(prog.graph.Launch())
			for _, p := range prog.posts {
				p.ring.work = append(p.ring.work, sum(q.work, p.work))
			}
			q.work = sum(q.work, prog.work)
		}
	})
}

// sum adds counters field by field.
func sum(a, b kernels.Counters) kernels.Counters {
	return a.Sub(kernels.Counters{}.Sub(b))
}
