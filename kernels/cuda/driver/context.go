//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// contextAPI holds the sections "Initialization", "Version Management",
// "Device Management" and "Primary Context Management" of cuda.h.
type contextAPI struct {
	// CUresult cuInit(unsigned int Flags)
	cuInit func(uint32) Result
	// CUresult cuDriverGetVersion(int *driverVersion)
	cuDriverGetVersion func(*int32) Result
	// CUresult cuDeviceGetCount(int *count)
	cuDeviceGetCount func(*int32) Result
	// CUresult cuDeviceGet(CUdevice *device, int ordinal)
	cuDeviceGet func(*int32, int32) Result
	// CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
	cuDeviceGetName func(*byte, int32, int32) Result
	// CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
	cuDeviceTotalMem func(*uint64, int32) Result
	// CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
	cuDeviceGetAttribute func(*int32, int32, int32) Result
	// CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
	cuDevicePrimaryCtxRetain func(*uintptr, int32) Result
	// CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
	cuDevicePrimaryCtxRelease func(int32) Result
	// CUresult cuCtxSetCurrent(CUcontext ctx)
	ctxSetCurrent uintptr
}

func (a *contextAPI) bindContext(l *library) {
	l.bind(&a.cuInit, "cuInit")
	l.bind(&a.cuDriverGetVersion, "cuDriverGetVersion")
	l.bind(&a.cuDeviceGetCount, "cuDeviceGetCount")
	l.bind(&a.cuDeviceGet, "cuDeviceGet")
	l.bind(&a.cuDeviceGetName, "cuDeviceGetName")
	l.bind(&a.cuDeviceTotalMem, "cuDeviceTotalMem_v2")
	l.bind(&a.cuDeviceGetAttribute, "cuDeviceGetAttribute")
	l.bind(&a.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")
	l.bind(&a.cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2")
	a.ctxSetCurrent = l.addr("cuCtxSetCurrent")
}

// Device attributes (CUdevice_attribute).
const (
	attrMultiprocessors   = 16
	attrMajor             = 75
	attrMinor             = 76
	attrSharedPerBlockOpt = 97
)

// Device describes a GPU.
type Device struct {
	Ordinal         int
	Name            string
	Major, Minor    int   // compute capability
	Memory          int64 // bytes in all
	Multiprocessors int
	SharedPerBlock  int // bytes of shared memory that a block may opt in to
	handle          int32
}

// Device returns the GPU of an ordinal. The error says how many there are.
func (d *Driver) Device(ordinal int) (Device, error) {
	var n int32
	if err := d.check(d.cuDeviceGetCount(&n), "cuDeviceGetCount", ""); err != nil {
		return Device{}, err
	}
	if ordinal < 0 || ordinal >= int(n) {
		return Device{}, fmt.Errorf("no GPU %d: the driver sees %d", ordinal, n)
	}
	v := Device{Ordinal: ordinal}
	if err := d.check(d.cuDeviceGet(&v.handle, int32(ordinal)), "cuDeviceGet", ""); err != nil {
		return Device{}, err
	}
	name := make([]byte, 256)
	if err := d.check(d.cuDeviceGetName(&name[0], 255, v.handle), "cuDeviceGetName", ""); err != nil {
		return Device{}, err
	}
	for i, c := range name {
		if c == 0 {
			v.Name = string(name[:i])
			break
		}
	}
	var total uint64
	if err := d.check(d.cuDeviceTotalMem(&total, v.handle), "cuDeviceTotalMem", ""); err != nil {
		return Device{}, err
	}
	v.Memory = int64(total)
	for _, q := range []struct {
		attr int32
		dst  *int
	}{
		{attrMajor, &v.Major}, {attrMinor, &v.Minor},
		{attrMultiprocessors, &v.Multiprocessors}, {attrSharedPerBlockOpt, &v.SharedPerBlock},
	} {
		var x int32
		if err := d.check(d.cuDeviceGetAttribute(&x, q.attr, v.handle), "cuDeviceGetAttribute", ""); err != nil {
			return Device{}, err
		}
		*q.dst = int(x)
	}
	return v, nil
}

// Context is the primary context of a device.
type Context struct {
	d      *Driver
	dev    Device
	handle uintptr
	args   []uintptr // reused by SetCurrent
}

// Retain takes the device's primary context.
func (d *Driver) Retain(dev Device) (*Context, error) {
	c := &Context{d: d, dev: dev}
	if err := d.check(d.cuDevicePrimaryCtxRetain(&c.handle, dev.handle), "cuDevicePrimaryCtxRetain", dev.Name); err != nil {
		return nil, err
	}
	c.args = []uintptr{c.handle}
	return c, nil
}

// SetCurrent makes the context current on the calling thread, which the caller
// must have locked.
func (c *Context) SetCurrent() error {
	r, _, _ := purego.SyscallN(c.d.ctxSetCurrent, c.args...)
	if r == 0 {
		return nil
	}
	return c.d.check(Result(r), "cuCtxSetCurrent", "")
}

// Release gives the context back; the driver frees what is left in it.
func (c *Context) Release() error {
	return c.d.check(c.d.cuDevicePrimaryCtxRelease(c.dev.handle), "cuDevicePrimaryCtxRelease", "")
}
