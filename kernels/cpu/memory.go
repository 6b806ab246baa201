package cpu

import (
	"fmt"
	"slices"
	"unsafe"

	"exacta.dev/exacta/kernels"
)

const (
	lineBytes  = 64       // alignment of every block
	chunkBytes = 32 << 20 // of a shared mapping; pages become resident when touched
	ownBytes   = 4 << 20  // blocks of this size and more get a mapping of their own
)

// memory hands out blocks of off-heap memory and counts them by purpose.
type memory struct {
	chunks []*chunk
	used   kernels.Memory
	guard  bool // mappings are inaccessible while nothing is open
	opened int
}

// chunk is one mapping: blocks are cut off at top, or from holes that freed
// blocks left.
type chunk struct {
	mem     []byte
	purpose kernels.Purpose
	own     bool
	file    bool // mapped from a file of weights, to be read alone
	top     int
	holes   []hole
}

type hole struct{ off, size int }

// block is a piece of a chunk.
type block struct {
	chunk     *chunk
	off, size int
}

func (b block) ptr() unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(b.chunk.mem[b.off:]))
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// alloc returns a zeroed block of at least size bytes.
func (m *memory) alloc(p kernels.Purpose, size int) (block, error) {
	if size < 0 || size > 1<<46 {
		return block{}, fmt.Errorf("cpu: %d bytes of %s cannot be allocated", size, p)
	}
	size = max(lineBytes, roundUp(size, lineBytes))
	b, err := m.place(p, size)
	if err != nil {
		return block{}, fmt.Errorf("cpu: %d bytes of %s: %w", size, p, err)
	}
	m.used[p] += int64(size)
	return b, nil
}

func (m *memory) place(p kernels.Purpose, size int) (block, error) {
	if size >= ownBytes {
		c, err := m.grow(p, roundUp(size, hugePage))
		if err != nil {
			return block{}, err
		}
		c.own, c.top = true, len(c.mem)
		return block{chunk: c, size: size}, nil
	}
	for _, c := range m.chunks {
		if c.own || c.file || c.purpose != p {
			continue
		}
		if off, ok := c.cut(size); ok {
			return block{chunk: c, off: off, size: size}, nil
		}
	}
	c, err := m.grow(p, chunkBytes)
	if err != nil {
		return block{}, err
	}
	off, _ := c.cut(size)
	return block{chunk: c, off: off, size: size}, nil
}

func (m *memory) grow(p kernels.Purpose, size int) (*chunk, error) {
	mem, err := mapMemory(size)
	if err != nil {
		return nil, err
	}
	c := &chunk{mem: mem, purpose: p}
	m.chunks = append(m.chunks, c)
	return c, nil
}

// cut takes size bytes from the first hole that has them, or from the top.
func (c *chunk) cut(size int) (off int, ok bool) {
	for i, h := range c.holes {
		if h.size < size {
			continue
		}
		if h.size == size {
			c.holes = slices.Delete(c.holes, i, i+1)
		} else {
			c.holes[i] = hole{h.off + size, h.size - size}
		}
		clear(c.mem[h.off : h.off+size])
		return h.off, true
	}
	if c.top+size > len(c.mem) {
		return 0, false
	}
	c.top += size
	return c.top - size, true
}

// free gives a block back.
func (m *memory) free(b block) error {
	c := b.chunk
	m.used[c.purpose] -= int64(b.size)
	if c.file {
		return nil
	}
	if c.own {
		m.chunks = slices.DeleteFunc(m.chunks, func(x *chunk) bool { return x == c })
		return unmapMemory(c.mem)
	}
	i, _ := slices.BinarySearchFunc(c.holes, b.off, func(h hole, off int) int { return h.off - off })
	c.holes = slices.Insert(c.holes, i, hole{b.off, b.size})
	if i+1 < len(c.holes) && c.holes[i].off+c.holes[i].size == c.holes[i+1].off {
		c.holes[i].size += c.holes[i+1].size
		c.holes = slices.Delete(c.holes, i+1, i+2)
	}
	if i > 0 && c.holes[i-1].off+c.holes[i-1].size == c.holes[i].off {
		c.holes[i-1].size += c.holes[i].size
		c.holes = slices.Delete(c.holes, i, i+1)
	}
	return nil
}

// protect turns the guard on or off.
func (m *memory) protect(on bool) error {
	if m.guard == on {
		return nil
	}
	m.guard = on
	if m.opened > 0 {
		return nil
	}
	return m.each(on)
}

// open makes guarded memory accessible until shut is called as often.
func (m *memory) open() {
	if m.opened++; m.guard && m.opened == 1 {
		m.must(m.each(false))
	}
}

func (m *memory) shut() {
	if m.opened--; m.guard && m.opened == 0 {
		m.must(m.each(true))
	}
}

func (m *memory) each(shut bool) error {
	for _, c := range m.chunks {
		if err := guardMemory(c.mem, shut); err != nil {
			return err
		}
	}
	return nil
}

// must reports an operating system that takes protection away but does not give
// it back: there is no state to go on with.
func (m *memory) must(err error) {
	if err != nil {
		panic(err)
	}
}

// close unmaps everything.
func (m *memory) close() error {
	var first error
	for _, c := range m.chunks {
		if err := unmapMemory(c.mem); err != nil && first == nil {
			first = err
		}
	}
	m.chunks, m.used = nil, kernels.Memory{}
	return first
}
