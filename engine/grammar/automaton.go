package grammar

import (
	"encoding/binary"
	"slices"
)

// maxStates bounds the states that are kept; more are computed anew each time.
const maxStates = 1 << 13

// state is a set of positions in the program: the bytes instructions that may
// come next. Nil is the dead state.
type state struct {
	key     State
	at      []int32 // rising
	matches bool
	next    []*state // by class of the byte, once known
	known   []bool
	mask    Mask // nil until asked for
}

// automaton is the program made deterministic, as far as it was visited.
type automaton struct {
	prog    *program
	live    []bool // by instruction and ended: a match can be reached from it
	class   [256]uint8
	bytes   []byte // one byte of each class
	states  map[State]*state
	visited []uint32 // by instruction and ended, the last closure that met it
	closing uint32
	stack   []int32
	masks   int // bytes of the masks that states hold
}

func newAutomaton(p *program) *automaton {
	a := &automaton{prog: p, states: map[State]*state{}, visited: make([]uint32, 2*len(p.insts))}
	a.classify()
	a.findLive()
	return a
}

// classify gives bytes that no instruction tells apart one class.
func (a *automaton) classify() {
	var border [257]bool
	border[0] = true
	for _, in := range a.prog.insts {
		if in.kind == bytes {
			border[in.lo], border[int(in.hi)+1] = true, true
		}
	}
	for b := range 256 {
		if border[b] {
			a.bytes = append(a.bytes, byte(b))
		}
		a.class[b] = uint8(len(a.bytes) - 1)
	}
}

// findLive walks backwards from the matches, over pairs of an instruction and
// whether the text has ended before it; bytes may only be taken where it has
// not. It is asked of what follows a byte, so begin is never passed.
func (a *automaton) findLive() {
	n := int32(len(a.prog.insts))
	before := make([][]int32, 2*n)
	edge := func(from, to int32) { before[to] = append(before[to], from) }
	var todo []int32
	for pc, in := range a.prog.insts {
		open, ended := int32(pc), int32(pc)+n
		switch in.kind {
		case split:
			edge(open, in.out)
			edge(open, in.alt)
			edge(ended, in.out+n)
			edge(ended, in.alt+n)
		case finish:
			edge(open, in.out+n)
			edge(ended, in.out+n)
		case bytes:
			edge(open, in.out)
		case match:
			todo = append(todo, open, ended)
		}
	}
	a.live = make([]bool, 2*n)
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !a.live[at] {
			a.live[at] = true
			todo = append(todo, before[at]...)
		}
	}
}

// closure returns the state of what can be reached from instructions without a
// byte. atStart passes begin.
func (a *automaton) closure(from []int32, atStart bool) *state {
	n := int32(len(a.prog.insts))
	a.closing++
	s := &state{}
	a.stack = append(a.stack[:0], from...)
	for len(a.stack) > 0 {
		at := a.stack[len(a.stack)-1]
		a.stack = a.stack[:len(a.stack)-1]
		if a.visited[at] == a.closing {
			continue
		}
		a.visited[at] = a.closing
		ended := at / n * n
		switch in := a.prog.insts[at-ended]; in.kind {
		case split:
			a.stack = append(a.stack, in.alt+ended, in.out+ended)
		case begin:
			if atStart {
				a.stack = append(a.stack, in.out+ended)
			}
		case finish:
			a.stack = append(a.stack, in.out+n)
		case match:
			s.matches = true
		case bytes:
			if ended == 0 && a.live[in.out] {
				s.at = append(s.at, at)
			}
		}
	}
	if !s.matches && len(s.at) == 0 {
		return nil
	}
	slices.Sort(s.at)
	return a.intern(s)
}

// intern returns the state that is kept for the same set.
func (a *automaton) intern(s *state) *state {
	s.key = encode(s)
	if kept := a.states[s.key]; kept != nil {
		return kept
	}
	s.next, s.known = make([]*state, len(a.bytes)), make([]bool, len(a.bytes))
	if len(a.states) < maxStates {
		a.states[s.key] = s
	}
	return s
}

// encode names a set: whether it matches, then the instructions.
func encode(s *state) State {
	out := make([]byte, 1, 1+4*len(s.at))
	out[0] = 'o'
	if s.matches {
		out[0] = 'm'
	}
	for _, pc := range s.at {
		out = binary.LittleEndian.AppendUint32(out, uint32(pc))
	}
	return State(out)
}

// find returns the state of a name, which came from encode.
func (a *automaton) find(key State) *state {
	if s := a.states[key]; s != nil {
		return s
	}
	if len(a.states) >= maxStates {
		a.forget()
	}
	s := &state{matches: key[0] == 'm'}
	for i := 1; i < len(key); i += 4 {
		s.at = append(s.at, int32(binary.LittleEndian.Uint32([]byte(key[i:i+4]))))
	}
	return a.intern(s)
}

// forget lets the states go.
func (a *automaton) forget() {
	clear(a.states)
	a.masks = 0
}

// step takes a byte from a state; nil is the dead state.
func (a *automaton) step(s *state, b byte) *state {
	c := a.class[b]
	if s.known[c] {
		return s.next[c]
	}
	var from []int32
	for _, pc := range s.at {
		if in := &a.prog.insts[pc]; in.lo <= b && b <= in.hi {
			from = append(from, in.out)
		}
	}
	var next *state
	if len(from) > 0 {
		next = a.closure(from, false)
	}
	if next == nil || a.states[next.key] == next && a.states[s.key] == s {
		s.next[c], s.known[c] = next, true
	}
	return next
}
