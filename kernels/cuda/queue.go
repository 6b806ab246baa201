//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// queue launches operations on one stream. Errors of recording, of launching and
// of the kernels' own checks stick to it.
type queue struct {
	be     *Backend
	stream *driver.Stream
	env    env
	notes  *driver.HostMemory                       // fault record, then the landing place of counters
	device block                                    // counters of the kernels
	room   room                                     // of matrix products
	sorted sortKey                                  // how pairs of rows and experts lie in the room
	plain  bool                                     // tests: the form of every generation alone
	tune   func(hopperShape, hopperPlan) hopperPlan // tests: another cut
	// scratch is what kernels of one operation leave for each other.
	scratch block
	up      stage
	down    readback

	op  opID
	bad error // of the operation being recorded
	err error // sticky

	work      kernels.Counters // counted at launch
	last      kernels.Counters // as Work returned them last
	counted   bool             // nothing was recorded since
	waits     int              // by the host for the device
	recording *program         // while a program is captured
	programs  map[uint32]*program
	profile   *profile // while operations are timed
}

var _ kernels.Queue = (*queue)(nil)

// opID names an operation in errors.
type opID int32

const (
	opEmbed opID = iota
	opGather
	opScatter
	opCopy
	opNorm
	opMatMul
	opRoute
	opExperts
	opMix
	opBlocks
	opSelect
	opSelectBlocks
	opLookup
	opGrams
	opActivate
	opCollapse
	opSpread
	opGate
	opBlend
	opHyper
	opGateUp
	opRotate
	opPool
	opKeep
	opChoose
	opAttendPooled
	opAttend
	opDelta
	opStats
	opChain
	opShift
	opAccept
	opCommit
	opReset
	opSetPages
	opSave
	opRestore
	opPost
	opDraw
	opLimit
	opHalt
	opWrite
	opRead
	opRun
)

var opNames = [...]string{
	"embed", "gather", "scatter", "copy", "norm", "matmul", "route", "experts", "mix", "blocks", "select",
	"select blocks", "lookup", "grams", "activate", "collapse", "spread", "gate", "blend",
	"hyper", "gate up", "rotate", "pool", "keep", "choose", "attend pooled", "attend", "delta", "stats", "chain", "shift",
	"accept", "commit", "reset", "set pages", "save", "restore", "post", "draw", "limit", "halt", "write", "read", "run",
}

// String names the operation.
func (o opID) String() string { return opNames[o] }

// Sizes of the staging areas, in bytes.
const (
	uploadBytes   = 16 << 20
	readbackBytes = 8 << 20
	notesBytes    = 4096
	scratchBytes  = 16 << 20
)

func newQueue(be *Backend) (*queue, error) {
	q := &queue{be: be, programs: map[uint32]*program{}}
	var err error
	if q.stream, err = be.ctx.NewStream(); err != nil {
		return q, err
	}
	if q.notes, err = be.ctx.AllocHost(notesBytes); err != nil {
		return q, err
	}
	clear(q.notes.Bytes)
	if q.device, err = be.mem.take(kernels.Tables, deviceCounters*8); err != nil {
		return q, err
	}
	if q.scratch, err = be.mem.take(kernels.Activations, scratchBytes); err != nil {
		return q, err
	}
	if err := q.stream.Fill(q.device.ptr, 0, q.device.bytes); err != nil {
		return q, err
	}
	q.env = env{fault: q.notes.Dev, work: q.device.ptr}
	if err := q.room.open(q); err != nil {
		return q, err
	}
	if err := q.up.open(be.ctx, uploadBytes); err != nil {
		return q, err
	}
	return q, q.down.open(be.ctx, readbackBytes)
}

// do records one operation: body checks operands, fills arguments and launches.
// The first thing that is wrong (see fail) becomes the error.
func (q *queue) do(op opID, body func()) {
	if q.err != nil || q.recording != nil && q.recording.err != nil {
		return
	}
	q.op, q.bad, q.counted = op, nil, false
	if op != opMix {
		q.sorted = sortKey{}
	}
	if q.be.closed {
		q.err = fmt.Errorf("%s: the cuda backend is closed", op)
		return
	}
	q.failWith(q.be.enter())
	p := q.profile
	if q.recording != nil {
		p = nil
	}
	if p != nil {
		p.mark(q)
	}
	if q.bad == nil {
		body()
	}
	if p != nil {
		p.mark(q)
		p.ops = append(p.ops, op)
	}
	q.be.leave()
	if q.bad != nil {
		q.settle(fmt.Errorf("%s: %w", op, q.bad))
	} else if op < opWrite {
		q.counts().Ops++
	}
}

// counts are the counters of the launches being made.
func (q *queue) counts() *kernels.Counters {
	if q.recording != nil {
		return &q.recording.work
	}
	return &q.work
}

// settle keeps the first error: of the program while one is captured, else of
// the queue.
func (q *queue) settle(err error) {
	switch {
	case err == nil:
	case q.recording != nil:
		if q.recording.err == nil {
			q.recording.err = err
		}
	case q.err == nil:
		q.err = err
	}
}

// fail notes what is wrong with the operation being recorded.
func (q *queue) fail(format string, a ...any) {
	if q.bad == nil {
		q.bad = fmt.Errorf(format, a...)
	}
}

func (q *queue) failWith(err error) {
	if q.bad == nil {
		q.bad = err
	}
}

// launch runs a kernel on the arguments in the parameter area, unless the
// operation has failed or there is nothing to do.
func (q *queue) launch(k kernelID, x, y, shared int) {
	q.launchBlock(k, driver.Grid{X: x, Y: y, Block: threads, Shared: shared})
}

// launchBlock is launch with a grid of the caller's. Every kernel waits for the one in
// front by itself, and so may start early where devices have that.
func (q *queue) launchBlock(k kernelID, g driver.Grid) {
	if q.bad != nil || g.X == 0 || g.Y == 0 {
		return
	}
	if q.be.arch >= hopper {
		q.failWith(q.stream.LaunchEarly(&q.be.kernels[k], g))
	} else {
		q.failWith(q.stream.Launch(&q.be.kernels[k], g, int(kernelTable[k].args)))
	}
	q.counts().Launches++
}

// head returns the beginning of an argument struct.
func (q *queue) head() env {
	e := q.env
	e.op = int32(q.op)
	return e
}

// drain waits for the stream, delivers reads and looks at the fault record.
func (q *queue) drain() error {
	q.waits++
	if err := q.stream.Synchronize(); err != nil {
		return err
	}
	q.down.deliver(q.down.issued)
	return q.fault()
}

// Err waits for everything recorded and returns the sticky error.
func (q *queue) Err() error {
	switch {
	case q.recording != nil:
		q.settle(fmt.Errorf("wait: %w", errInCapture))
		return q.recording.err
	case q.be.closed:
		return errors.New("wait: the cuda backend is closed")
	}
	if q.err == nil {
		err := q.be.enter()
		if err == nil {
			err = q.drain()
		}
		q.be.leave()
		q.settle(err)
	}
	return q.err
}

// close frees what the queue holds, after what runs has finished.
func (q *queue) close() error {
	errs := []error{}
	if q.stream != nil {
		errs = append(errs, q.stream.Synchronize())
	}
	for _, p := range q.programs {
		errs = append(errs, p.graph.Close())
	}
	errs = append(errs, q.up.close(q.be.ctx), q.down.close(q.be.ctx))
	if q.notes != nil {
		errs = append(errs, q.be.ctx.FreeHost(q.notes))
	}
	if q.stream != nil {
		errs = append(errs, q.stream.Close())
	}
	return errors.Join(errs...)
}
