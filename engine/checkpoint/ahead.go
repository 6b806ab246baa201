package checkpoint

import (
	"sync"
	"unsafe"
)

const (
	aheadBytes = 64 << 20 // how far ahead of its reader a file is asked for
	aheadChunk = 4 << 20  // in what pieces
	aheadAsks  = 2        // how many pieces at once
)

// ahead has the files of a checkpoint brought into memory before they are read. It does
// so in goroutines, since each waits for the disk; there are none while there is
// nothing to ask for.
type ahead struct {
	mu     sync.Mutex
	todo   [][]byte
	busy   int // goroutines
	closed bool
	run    sync.WaitGroup
	last   *mapping
}

// mapping is a file that is mapped, to be read from front to back for the most part,
// and the file that is read after it.
type mapping struct {
	ahead *ahead
	data  []byte
	next  *mapping
	asked []bool // by chunk, guarded by ahead.mu
}

// alone returns the mapping of a file.
func (a *ahead) alone(data []byte) *mapping {
	return &mapping{ahead: a, data: data, asked: make([]bool, (len(data)+aheadChunk-1)/aheadChunk)}
}

// file returns the mapping of a file that is read behind those before it.
func (a *ahead) file(data []byte) *mapping {
	m := a.alone(data)
	if a.last != nil {
		a.last.next = m
	}
	a.last = m
	return m
}

// reach asks for what lies at part and behind it, in this file and the next ones, so
// that the disk is at work while what came before is taken in.
func (m *mapping) reach(part []byte) {
	a := m.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	c := int(uintptr(unsafe.Pointer(unsafe.SliceData(part)))-uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))) / aheadChunk
	for range aheadBytes / aheadChunk {
		for c >= len(m.asked) {
			if m, c = m.next, 0; m == nil {
				return
			}
		}
		if !m.asked[c] {
			m.asked[c] = true
			a.todo = append(a.todo, m.data[c*aheadChunk:min((c+1)*aheadChunk, len(m.data))])
			if a.busy < aheadAsks {
				a.busy++
				a.run.Go(a.ask)
			}
		}
		c++
	}
}

// ask asks for what is to be asked for.
func (a *ahead) ask() {
	for {
		a.mu.Lock()
		if a.closed || len(a.todo) == 0 {
			a.todo = nil
			a.busy--
			a.mu.Unlock()
			return
		}
		p := a.todo[0]
		a.todo = a.todo[1:]
		a.mu.Unlock()
		fetch(p)
	}
}

// close ends the asking; the mappings may go.
func (a *ahead) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.run.Wait()
}
