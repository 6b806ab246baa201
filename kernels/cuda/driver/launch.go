//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// launchConfig is CUlaunchConfig with its one attribute (CUlaunchAttribute) behind it.
type launchConfig struct {
	grid, block [3]uint32
	shared, _   uint32
	stream      uintptr
	attributes  uintptr
	count, _    uint32
	attribute   struct {
		id, _ uint32
		value [64]byte
	}
}

// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
const attributeOverlap = 6

// LaunchEarly is Launch of a kernel that may start while the kernel in front of it
// still runs: it must wait for that one (griddepcontrol.wait) before it reads or writes
// what other kernels write or read. It is for devices of compute capability 9.0 on. The
// parameter may be aligned to 64 bytes; Launch knows none beyond 16.
func (s *Stream) LaunchEarly(f *Function, g Grid) error {
	c := s.block.config()
	*c = launchConfig{
		grid: [3]uint32{uint32(g.X), uint32(g.Y), 1}, block: [3]uint32{uint32(g.Block), 1, 1},
		shared: uint32(g.Shared), stream: s.handle, attributes: s.block.attributeAddr, count: 1,
	}
	c.attribute.id = attributeOverlap
	c.attribute.value[0] = 1
	a := s.args[:4]
	a[0], a[1], a[2], a[3] = s.block.configAddr, f.handle, s.block.listAddr, 0
	r, _, _ := purego.SyscallN(s.d.launchKernelEx, a...)
	if r == 0 {
		return nil
	}
	return s.d.check(Result(r), "cuLaunchKernelEx", fmt.Sprintf("%s, grid %dx%d, %d threads, %d bytes shared", f.Name, g.X, g.Y, g.Block, g.Shared))
}
