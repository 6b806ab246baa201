// Package driver binds the parts of the CUDA driver (libcuda) and of NVRTC that
// kernels/cuda needs, through purego: no cgo, no CUDA toolkit at build time,
// and the same binary on machines without a GPU.
//
// One file stands for one section of cuda.h (context, memory, module, stream,
// graph) and one for nvrtc.h; each function carries its C prototype. Symbols
// are looked up by name when the library is opened, and those that are missing
// are named together in one error. A failing call returns an [Error] with the
// call, the CUDA name of the code and the driver's text for it.
//
// Calls that are rare (set-up, allocation, module loading) are bound with
// purego.RegisterFunc, whose signatures are checked. Calls on the path of a
// step (launch, copies, events, graph launch) belong to a [Stream]: their
// addresses are looked up once, their arguments are filled into a slice that
// the stream owns, and what C reads through pointers (launch parameters, copy
// descriptors) lies in a block outside the Go heap. Such a call allocates
// nothing.
//
// The driver keeps the current context per operating-system thread. Callers
// hold the thread ([runtime.LockOSThread]) and make the context current
// ([Context.SetCurrent]) around every group of calls.
//
// On systems other than Linux on amd64 and arm64, and with the build tag nogpu,
// the package is empty.
package driver
