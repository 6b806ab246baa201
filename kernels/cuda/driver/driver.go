//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"fmt"
	"unsafe"
)

// Driver is the opened CUDA driver library.
type Driver struct {
	lib *library

	contextAPI
	memoryAPI
	moduleAPI
	streamAPI
	graphAPI
	tensorAPI

	// CUresult cuGetErrorName(CUresult error, const char **pStr)
	cuGetErrorName func(Result, *unsafe.Pointer) Result
	// CUresult cuGetErrorString(CUresult error, const char **pStr)
	cuGetErrorString func(Result, *unsafe.Pointer) Result
}

// libraryNames are the names under which the driver is looked for.
var libraryNames = []string{"libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"}

// Open loads libcuda.so.1 and initialises it. Where there is no driver the
// error says which names were tried.
func Open() (*Driver, error) {
	lib, err := openLibrary("the NVIDIA driver (libcuda.so.1)", libraryNames)
	if err != nil {
		return nil, err
	}
	d := &Driver{lib: lib}
	lib.bind(&d.cuGetErrorName, "cuGetErrorName")
	lib.bind(&d.cuGetErrorString, "cuGetErrorString")
	d.bindContext(lib)
	d.bindMemory(lib)
	d.bindModule(lib)
	d.bindStream(lib)
	d.bindGraph(lib)
	d.bindTensor(lib)
	if err := lib.complete("a driver for CUDA 12 or later is needed"); err != nil {
		return nil, err
	}
	if err := d.check(d.cuInit(0), "cuInit", ""); err != nil {
		return nil, fmt.Errorf("%s found, but: %w", lib.name, err)
	}
	return d, nil
}

// Version returns the CUDA version of the driver, for instance 13.0 as (13, 0).
func (d *Driver) Version() (major, minor int, err error) {
	var v int32
	if err := d.check(d.cuDriverGetVersion(&v), "cuDriverGetVersion", ""); err != nil {
		return 0, 0, err
	}
	return int(v) / 1000, int(v) % 1000 / 10, nil
}
