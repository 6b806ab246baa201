//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Ptr is an address in device memory.
type Ptr uint64

// memoryAPI holds the section "Memory Management" of cuda.h.
type memoryAPI struct {
	// CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
	cuMemAlloc func(*Ptr, uint64) Result
	// CUresult cuMemFree_v2(CUdeviceptr dptr)
	cuMemFree func(Ptr) Result
	// CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
	cuMemGetInfo func(*uint64, *uint64) Result
	// CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
	cuMemHostAlloc func(*unsafe.Pointer, uint64, uint32) Result
	// CUresult cuMemFreeHost(void *p)
	cuMemFreeHost func(unsafe.Pointer) Result
	// CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
	cuMemHostGetDevicePointer func(*Ptr, unsafe.Pointer, uint32) Result
	// CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
	memcpy2DAsync uintptr
	// CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
	memsetD8Async uintptr
}

func (a *memoryAPI) bindMemory(l *library) {
	l.bind(&a.cuMemAlloc, "cuMemAlloc_v2")
	l.bind(&a.cuMemFree, "cuMemFree_v2")
	l.bind(&a.cuMemGetInfo, "cuMemGetInfo_v2")
	l.bind(&a.cuMemHostAlloc, "cuMemHostAlloc")
	l.bind(&a.cuMemFreeHost, "cuMemFreeHost")
	l.bind(&a.cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2")
	a.memcpy2DAsync = l.addr("cuMemcpy2DAsync_v2")
	a.memsetD8Async = l.addr("cuMemsetD8Async")
}

// Alloc takes n bytes of device memory, aligned to 256 bytes at least.
func (c *Context) Alloc(n int64) (Ptr, error) {
	var p Ptr
	err := c.d.check(c.d.cuMemAlloc(&p, uint64(n)), "cuMemAlloc", fmt.Sprintf("%d bytes", n))
	return p, err
}

// Free returns device memory. Work that uses it must have finished.
func (c *Context) Free(p Ptr) error {
	return c.d.check(c.d.cuMemFree(p), "cuMemFree", "")
}

// FreeMemory returns the bytes that the device has free for all its users.
func (c *Context) FreeMemory() (int64, error) {
	var free, total uint64
	err := c.d.check(c.d.cuMemGetInfo(&free, &total), "cuMemGetInfo", "")
	return int64(free), err
}

// HostMemory is pinned host memory that the device reads and writes under Dev.
type HostMemory struct {
	Bytes []byte
	Dev   Ptr
	base  unsafe.Pointer
}

// CU_MEMHOSTALLOC_PORTABLE and CU_MEMHOSTALLOC_DEVICEMAP.
const hostAllocFlags = 0x01 | 0x02

// AllocHost takes n bytes of pinned host memory.
func (c *Context) AllocHost(n int64) (*HostMemory, error) {
	h := &HostMemory{}
	if err := c.d.check(c.d.cuMemHostAlloc(&h.base, uint64(n), hostAllocFlags), "cuMemHostAlloc", fmt.Sprintf("%d bytes", n)); err != nil {
		return nil, err
	}
	h.Bytes = unsafe.Slice((*byte)(h.base), n)
	if err := c.d.check(c.d.cuMemHostGetDevicePointer(&h.Dev, h.base, 0), "cuMemHostGetDevicePointer", ""); err != nil {
		return nil, errors.Join(err, c.FreeHost(h))
	}
	return h, nil
}

// FreeHost returns pinned memory.
func (c *Context) FreeHost(h *HostMemory) error {
	h.Bytes = nil
	return c.d.check(c.d.cuMemFreeHost(h.base), "cuMemFreeHost", "")
}

// copy2D is CUDA_MEMCPY2D.
type copy2D struct {
	srcX, srcY  uint64
	srcType     uint32
	_           uint32
	srcHost     uint64
	srcDevice   Ptr
	srcArray    uint64
	srcPitch    uint64
	dstX, dstY  uint64
	dstType     uint32
	_           uint32
	dstHost     uint64
	dstDevice   Ptr
	dstArray    uint64
	dstPitch    uint64
	width, rows uint64
}

// memoryUnified is CU_MEMORYTYPE_UNIFIED: the driver knows from the address
// whether it is pinned host or device memory.
const memoryUnified = 4

// Copy2D copies rows of width bytes, pitch bytes apart, in the stream's order.
// Both addresses are device addresses; that of pinned memory is HostMemory.Dev.
func (s *Stream) Copy2D(dst Ptr, dstPitch int64, src Ptr, srcPitch int64, width, rows int64) error {
	*s.block.copy() = copy2D{
		srcType: memoryUnified, srcDevice: src, srcPitch: uint64(srcPitch),
		dstType: memoryUnified, dstDevice: dst, dstPitch: uint64(dstPitch),
		width: uint64(width), rows: uint64(rows),
	}
	a := s.args[:2]
	a[0], a[1] = s.block.copyAddr, s.handle
	r, _, _ := purego.SyscallN(s.d.memcpy2DAsync, a...)
	if r == 0 {
		return nil
	}
	return s.d.check(Result(r), "cuMemcpy2DAsync", fmt.Sprintf("%d rows of %d bytes", rows, width))
}

// Fill sets n bytes to value in the stream's order.
func (s *Stream) Fill(p Ptr, value byte, n int64) error {
	a := s.args[:4]
	a[0], a[1], a[2], a[3] = uintptr(p), uintptr(value), uintptr(n), s.handle
	r, _, _ := purego.SyscallN(s.d.memsetD8Async, a...)
	if r == 0 {
		return nil
	}
	return s.d.check(Result(r), "cuMemsetD8Async", fmt.Sprintf("%d bytes", n))
}
