//go:build linux && (amd64 || arm64) && !nogpu

package driver

import "github.com/ebitengine/purego"

// graphAPI holds the section "Graph Management" of cuda.h and stream capture.
type graphAPI struct {
	// CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
	cuStreamBeginCapture func(uintptr, int32) Result
	// CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
	cuStreamEndCapture func(uintptr, *uintptr) Result
	// CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
	cuGraphInstantiate func(*uintptr, uintptr, uint64) Result
	// CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
	cuGraphUpload func(uintptr, uintptr) Result
	// CUresult cuGraphDestroy(CUgraph hGraph)
	cuGraphDestroy func(uintptr) Result
	// CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
	cuGraphExecDestroy func(uintptr) Result
	// CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
	graphLaunch uintptr
}

func (a *graphAPI) bindGraph(l *library) {
	l.bind(&a.cuStreamBeginCapture, "cuStreamBeginCapture_v2")
	l.bind(&a.cuStreamEndCapture, "cuStreamEndCapture")
	l.bind(&a.cuGraphInstantiate, "cuGraphInstantiateWithFlags")
	l.bind(&a.cuGraphUpload, "cuGraphUpload")
	l.bind(&a.cuGraphDestroy, "cuGraphDestroy")
	l.bind(&a.cuGraphExecDestroy, "cuGraphExecDestroy")
	a.graphLaunch = l.addr("cuGraphLaunch")
}

// CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: calls of this thread that cannot be
// captured, allocation above all, fail instead of breaking the graph.
const captureThreadLocal = 1

// BeginCapture starts recording the stream's work instead of running it. The
// thread must stay locked until EndCapture.
func (s *Stream) BeginCapture() error {
	return s.d.check(s.d.cuStreamBeginCapture(s.handle, captureThreadLocal), "cuStreamBeginCapture", "")
}

// AbortCapture ends a recording and throws it away.
func (s *Stream) AbortCapture() {
	var g uintptr
	if s.d.cuStreamEndCapture(s.handle, &g) == success && g != 0 {
		s.d.cuGraphDestroy(g)
	}
}

// Graph is an instantiated program of device work.
type Graph struct {
	d      *Driver
	handle uintptr
	args   []uintptr
}

// EndCapture ends a recording and makes it ready to launch.
func (s *Stream) EndCapture() (*Graph, error) {
	var g uintptr
	if err := s.d.check(s.d.cuStreamEndCapture(s.handle, &g), "cuStreamEndCapture", ""); err != nil {
		return nil, err
	}
	x := &Graph{d: s.d}
	err := s.d.check(s.d.cuGraphInstantiate(&x.handle, g, 0), "cuGraphInstantiate", "")
	s.d.cuGraphDestroy(g)
	if err != nil {
		return nil, err
	}
	if err := s.d.check(s.d.cuGraphUpload(x.handle, s.handle), "cuGraphUpload", ""); err != nil {
		return nil, err
	}
	x.args = []uintptr{x.handle, s.handle}
	return x, nil
}

// Launch runs the graph in the order of the stream that it was captured on.
func (g *Graph) Launch() error {
	r, _, _ := purego.SyscallN(g.d.graphLaunch, g.args...)
	if r == 0 {
		return nil
	}
	return g.d.check(Result(r), "cuGraphLaunch", "")
}

// Close destroys the graph. Its launches must have finished.
func (g *Graph) Close() error {
	return g.d.check(g.d.cuGraphExecDestroy(g.handle), "cuGraphExecDestroy", "")
}
