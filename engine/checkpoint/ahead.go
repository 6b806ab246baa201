package checkpoint

import (
	"sync"
	"unsafe"
)

const (
	aheadBytes = 64 << 20 // how far ahead of its reader a file is asked for
	aheadChunk = 4 << 20  // in what pieces
)

// mapping is a file that is mapped, to be read from front to back for the most part,
// and the file of the checkpoint that is read after it.
type mapping struct {
	data []byte
	next *mapping

	mu    sync.Mutex
	asked []bool // by chunk
}

func newMapping(data []byte) *mapping {
	return &mapping{data: data, asked: make([]bool, (len(data)+aheadChunk-1)/aheadChunk)}
}

// mapped returns the mapping of a file of the checkpoint, behind those before it.
func (ck *Checkpoint) mapped(data []byte) *mapping {
	m := newMapping(data)
	if ck.last != nil {
		ck.last.next = m
	}
	ck.last = m
	return m
}

// reach asks the system for what lies at part and behind it, in this file and the next
// ones, so that the disk is at work while what came before is taken in.
func (m *mapping) reach(part []byte) {
	c := int(uintptr(unsafe.Pointer(unsafe.SliceData(part)))-uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))) / aheadChunk
	for range aheadBytes / aheadChunk {
		for c >= len(m.asked) {
			if m, c = m.next, 0; m == nil {
				return
			}
		}
		m.ask(c)
		c++
	}
}

// ask asks for chunk c once.
func (m *mapping) ask(c int) {
	m.mu.Lock()
	was := m.asked[c]
	m.asked[c] = true
	m.mu.Unlock()
	if !was {
		fetch(m.data[c*aheadChunk : min((c+1)*aheadChunk, len(m.data))])
	}
}
