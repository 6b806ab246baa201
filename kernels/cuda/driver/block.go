//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"fmt"
	"syscall"
	"unsafe"
)

// ParamBytes is the room for the parameters of one launch.
const ParamBytes = 3072

// Layout of a launch block: the `extra` array of cuLaunchKernel (five words),
// the size word that it points to, a copy descriptor, the parameters, the
// configuration of cuLaunchKernelEx, the shape of a tensor map, and a list of one
// parameter.
const (
	blockSize   = 64
	blockCopy   = 128
	blockParams = 512
	blockConfig = blockParams + ParamBytes
	blockTensor = blockConfig + 256
	blockList   = blockTensor + 64
	blockBytes  = 4096
)

// CU_LAUNCH_PARAM_*: the tags of the extra array.
const (
	launchParamEnd    = 0
	launchParamBuffer = 1
	launchParamSize   = 2
)

// launchBlock is memory outside the Go heap that the driver reads through
// pointers, so that argument slices may hold its address.
type launchBlock struct {
	mem                       []byte
	extraAddr, copyAddr       uintptr
	configAddr, attributeAddr uintptr
	tensorAddr, listAddr      uintptr
}

func newLaunchBlock() (*launchBlock, error) {
	mem, err := syscall.Mmap(-1, 0, blockBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("launch block: mmap %d bytes: %w", blockBytes, err)
	}
	b := &launchBlock{mem: mem}
	base := uintptr(unsafe.Pointer(&mem[0]))
	b.extraAddr, b.copyAddr = base, base+blockCopy
	b.configAddr, b.tensorAddr = base+blockConfig, base+blockTensor
	b.listAddr = base + blockList
	*(*uintptr)(unsafe.Pointer(&mem[blockList])) = base + blockParams
	b.attributeAddr = b.configAddr + unsafe.Offsetof(launchConfig{}.attribute)
	extra := (*[5]uintptr)(unsafe.Pointer(&mem[0]))
	*extra = [5]uintptr{launchParamBuffer, base + blockParams, launchParamSize, base + blockSize, launchParamEnd}
	return b, nil
}

func (b *launchBlock) setSize(n int) {
	*(*uint64)(unsafe.Pointer(&b.mem[blockSize])) = uint64(n)
}

func (b *launchBlock) copy() *copy2D {
	return (*copy2D)(unsafe.Pointer(&b.mem[blockCopy]))
}

func (b *launchBlock) config() *launchConfig {
	return (*launchConfig)(unsafe.Pointer(&b.mem[blockConfig]))
}

func (b *launchBlock) tensor() *tensorShape {
	return (*tensorShape)(unsafe.Pointer(&b.mem[blockTensor]))
}

func (b *launchBlock) params() unsafe.Pointer {
	return unsafe.Pointer(&b.mem[blockParams])
}

func (b *launchBlock) close() error {
	return syscall.Munmap(b.mem)
}
