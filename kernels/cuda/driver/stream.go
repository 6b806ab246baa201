//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// streamAPI holds the sections "Stream Management" and "Event Management" of
// cuda.h.
type streamAPI struct {
	// CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
	cuStreamCreate func(*uintptr, uint32) Result
	// CUresult cuStreamDestroy_v2(CUstream hStream)
	cuStreamDestroy func(uintptr) Result
	// CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
	cuEventCreate func(*uintptr, uint32) Result
	// CUresult cuEventDestroy_v2(CUevent hEvent)
	cuEventDestroy func(uintptr) Result
	// CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
	cuEventElapsedTime func(*float32, uintptr, uintptr) Result
	// CUresult cuStreamSynchronize(CUstream hStream)
	streamSynchronize uintptr
	// CUresult cuStreamQuery(CUstream hStream)
	streamQuery uintptr
	// CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
	eventRecord uintptr
	// CUresult cuEventSynchronize(CUevent hEvent)
	eventSynchronize uintptr
}

func (a *streamAPI) bindStream(l *library) {
	l.bind(&a.cuStreamCreate, "cuStreamCreate")
	l.bind(&a.cuStreamDestroy, "cuStreamDestroy_v2")
	l.bind(&a.cuEventCreate, "cuEventCreate")
	l.bind(&a.cuEventDestroy, "cuEventDestroy_v2")
	l.bind(&a.cuEventElapsedTime, "cuEventElapsedTime")
	a.streamSynchronize = l.addr("cuStreamSynchronize")
	a.streamQuery = l.addr("cuStreamQuery")
	a.eventRecord = l.addr("cuEventRecord")
	a.eventSynchronize = l.addr("cuEventSynchronize")
}

// Stream is an ordered queue of device work. Its calls share one argument slice
// and one launch block, so one goroutine uses it at a time.
type Stream struct {
	d      *Driver
	handle uintptr
	args   []uintptr
	block  *launchBlock
}

// CU_STREAM_NON_BLOCKING
const streamNonBlocking = 1

// NewStream creates a stream that does not wait for the default stream.
func (c *Context) NewStream() (*Stream, error) {
	b, err := newLaunchBlock()
	if err != nil {
		return nil, err
	}
	s := &Stream{d: c.d, args: make([]uintptr, 12), block: b}
	if err := c.d.check(c.d.cuStreamCreate(&s.handle, streamNonBlocking), "cuStreamCreate", ""); err != nil {
		return nil, err
	}
	return s, nil
}

// Params returns the parameter area of the next launch, ParamBytes outside the
// Go heap.
func (s *Stream) Params() unsafe.Pointer { return s.block.params() }

// Synchronize waits for all work of the stream.
func (s *Stream) Synchronize() error {
	a := s.args[:1]
	a[0] = s.handle
	r, _, _ := purego.SyscallN(s.d.streamSynchronize, a...)
	if r == 0 {
		return nil
	}
	return s.d.check(Result(r), "cuStreamSynchronize", "")
}

// CUDA_ERROR_NOT_READY
const notReady = 600

// Done reports, without waiting, whether all work of the stream has finished.
func (s *Stream) Done() (bool, error) {
	a := s.args[:1]
	a[0] = s.handle
	r, _, _ := purego.SyscallN(s.d.streamQuery, a...)
	switch r {
	case 0:
		return true, nil
	case notReady:
		return false, nil
	}
	return false, s.d.check(Result(r), "cuStreamQuery", "")
}

// Close destroys the stream.
func (s *Stream) Close() error {
	if err := s.d.check(s.d.cuStreamDestroy(s.handle), "cuStreamDestroy", ""); err != nil {
		return err
	}
	return s.block.close()
}

// Event marks a point in a stream.
type Event struct{ handle uintptr }

// CU_EVENT_DISABLE_TIMING
const eventDisableTiming = 2

// NewEvent creates an event without a time stamp.
func (c *Context) NewEvent() (Event, error) {
	var e Event
	err := c.d.check(c.d.cuEventCreate(&e.handle, eventDisableTiming), "cuEventCreate", "")
	return e, err
}

// NewTimedEvent creates an event that notes when it passed.
func (c *Context) NewTimedEvent() (Event, error) {
	var e Event
	err := c.d.check(c.d.cuEventCreate(&e.handle, 0), "cuEventCreate", "")
	return e, err
}

// Elapsed returns the time between two timed events that have passed.
func (c *Context) Elapsed(from, to Event) (time.Duration, error) {
	var ms float32
	err := c.d.check(c.d.cuEventElapsedTime(&ms, from.handle, to.handle), "cuEventElapsedTime", "")
	return time.Duration(float64(ms) * 1e6), err
}

// FreeEvent destroys an event.
func (c *Context) FreeEvent(e Event) error {
	return c.d.check(c.d.cuEventDestroy(e.handle), "cuEventDestroy", "")
}

// Record puts e behind the work issued so far.
func (s *Stream) Record(e Event) error {
	a := s.args[:2]
	a[0], a[1] = e.handle, s.handle
	r, _, _ := purego.SyscallN(s.d.eventRecord, a...)
	if r == 0 {
		return nil
	}
	return s.d.check(Result(r), "cuEventRecord", "")
}

// Wait blocks the calling thread until e has passed.
func (s *Stream) Wait(e Event) error {
	a := s.args[:1]
	a[0] = e.handle
	r, _, _ := purego.SyscallN(s.d.eventSynchronize, a...)
	if r == 0 {
		return nil
	}
	return s.d.check(Result(r), "cuEventSynchronize", "")
}
