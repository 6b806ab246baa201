//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// moduleAPI holds the sections "Module Management" and "Execution Control" of
// cuda.h.
type moduleAPI struct {
	// CUresult cuModuleLoadData(CUmodule *module, const void *image)
	cuModuleLoadData func(*uintptr, unsafe.Pointer) Result
	// CUresult cuModuleUnload(CUmodule hmod)
	cuModuleUnload func(uintptr) Result
	// CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
	cuModuleGetFunction func(*uintptr, uintptr, string) Result
	// CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
	cuFuncSetAttribute func(uintptr, int32, int32) Result
	// CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
	//   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
	//   unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
	launchKernel uintptr
	// CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
	launchKernelEx uintptr
}

func (a *moduleAPI) bindModule(l *library) {
	l.bind(&a.cuModuleLoadData, "cuModuleLoadData")
	l.bind(&a.cuModuleUnload, "cuModuleUnload")
	l.bind(&a.cuModuleGetFunction, "cuModuleGetFunction")
	l.bind(&a.cuFuncSetAttribute, "cuFuncSetAttribute")
	a.launchKernel = l.addr("cuLaunchKernel")
	a.launchKernelEx = l.addr("cuLaunchKernelEx")
}

// Module is a loaded cubin.
type Module struct {
	d      *Driver
	name   string
	handle uintptr
}

// Load loads a cubin; name is for errors.
func (c *Context) Load(name string, cubin []byte) (*Module, error) {
	m := &Module{d: c.d, name: name}
	err := c.d.check(c.d.cuModuleLoadData(&m.handle, unsafe.Pointer(&cubin[0])), "cuModuleLoadData", name)
	return m, err
}

// Unload frees the module; its functions are dead afterwards.
func (m *Module) Unload() error {
	return m.d.check(m.d.cuModuleUnload(m.handle), "cuModuleUnload", m.name)
}

// Function is a kernel of a module.
type Function struct {
	Name   string
	handle uintptr
}

// Function looks up a kernel by its extern "C" name.
func (m *Module) Function(name string) (Function, error) {
	f := Function{Name: name}
	err := m.d.check(m.d.cuModuleGetFunction(&f.handle, m.handle, name), "cuModuleGetFunction", name+" in "+m.name)
	return f, err
}

// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
const attrMaxDynamicShared = 8

// CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, in percent
const attrSharedCarveout = 9

// AllowShared raises the dynamic shared memory that launches of f may ask for, and
// prefers it to cache.
func (m *Module) AllowShared(f Function, bytes int) error {
	r := m.d.cuFuncSetAttribute(f.handle, attrMaxDynamicShared, int32(bytes))
	if r == success {
		r = m.d.cuFuncSetAttribute(f.handle, attrSharedCarveout, 100)
	}
	return m.d.check(r, "cuFuncSetAttribute", fmt.Sprintf("%s, %d bytes of shared memory", f.Name, bytes))
}

// Grid is the shape of a launch.
type Grid struct {
	X, Y   int // blocks
	Block  int // threads
	Shared int // bytes of dynamic shared memory
}

// Launch runs f with the first size bytes of Params as its one parameter.
func (s *Stream) Launch(f *Function, g Grid, size int) error {
	s.block.setSize(size)
	a := s.args[:11]
	a[0] = f.handle
	a[1], a[2], a[3] = uintptr(g.X), uintptr(g.Y), 1
	a[4], a[5], a[6] = uintptr(g.Block), 1, 1
	a[7], a[8] = uintptr(g.Shared), s.handle
	a[9], a[10] = 0, s.block.extraAddr
	r, _, _ := purego.SyscallN(s.d.launchKernel, a...)
	if r == 0 {
		return nil
	}
	return s.d.check(Result(r), "cuLaunchKernel", fmt.Sprintf("%s, grid %dx%d, %d threads, %d bytes shared", f.Name, g.X, g.Y, g.Block, g.Shared))
}
