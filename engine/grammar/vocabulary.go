package grammar

import (
	"slices"
	"strings"
	"sync"
)

// State is where an output is in a pattern: a value, comparable and without
// references. The zero value is the dead state, of an output that no
// continuation makes match.
type State string

// over is the state after a token that ends the text.
const over State = "."

// Mask is a set of token ids, a bit each.
type Mask []uint64

// Has reports whether a token is in the set.
func (m Mask) Has(id int32) bool {
	w := int(id) >> 6
	return id >= 0 && w < len(m) && m[w]>>(id&63)&1 != 0
}

// Empty reports whether no token is in the set.
func (m Mask) Empty() bool { return !slices.ContainsFunc(m, func(w uint64) bool { return w != 0 }) }

func (m Mask) set(id int32) { m[id>>6] |= 1 << (id & 63) }

// maxMaskBytes bounds the masks that a grammar keeps.
const maxMaskBytes = 64 << 20

// Vocabulary is the tokens of a model, sorted by what they stand for. It is
// immutable and may be shared.
type Vocabulary struct {
	size   int
	text   []string // by id; empty for tokens that stand for nothing
	order  []int32  // ids of tokens with text, by text
	common []int    // of order[i]: the length of the prefix that it shares with order[i-1]
	end    []int32
}

// NewVocabulary takes the bytes that each id stands for, and the ids that end
// the text. An id with no bytes is never allowed, nor is one that ends the text
// but at the end; give none for ids without a token and for special tokens.
func NewVocabulary(tokens [][]byte, end []int32) *Vocabulary {
	v := &Vocabulary{size: len(tokens), text: make([]string, len(tokens))}
	for id, b := range tokens {
		if len(b) > 0 && !slices.Contains(end, int32(id)) {
			v.text[id] = string(b)
			v.order = append(v.order, int32(id))
		}
	}
	for _, id := range end {
		if id >= 0 && int(id) < len(tokens) {
			v.end = append(v.end, id)
		}
	}
	slices.SortFunc(v.order, func(a, b int32) int { return strings.Compare(v.text[a], v.text[b]) })
	v.common = make([]int, len(v.order))
	for i := 1; i < len(v.order); i++ {
		a, b := v.text[v.order[i-1]], v.text[v.order[i]]
		n := 0
		for n < len(a) && n < len(b) && a[n] == b[n] {
			n++
		}
		v.common[i] = n
	}
	return v
}

// Size returns the number of ids.
func (v *Vocabulary) Size() int { return v.size }

// Grammar is a pattern over a vocabulary. It is safe for concurrent use.
type Grammar struct {
	pattern string
	v       *Vocabulary
	start   State

	mu   sync.Mutex
	auto *automaton
	path []*state
}

// Compile returns the grammar of a pattern, or a PatternError. The work for a
// state is done when it is first met.
func (v *Vocabulary) Compile(pattern string) (*Grammar, error) {
	p, err := compile(pattern)
	if err != nil {
		return nil, err
	}
	g := &Grammar{pattern: pattern, v: v, auto: newAutomaton(p)}
	s := g.auto.closure([]int32{p.start}, true)
	if s == nil {
		return nil, &PatternError{pattern, 1, "it matches no text"}
	}
	g.start = s.key
	return g, nil
}

// Pattern returns the pattern.
func (g *Grammar) Pattern() string { return g.pattern }

// Size returns the number of instructions of the pattern's automaton, which the time
// for a state, and so for a token, grows with.
func (g *Grammar) Size() int { return len(g.auto.prog.insts) }

// Start returns the state of the empty output.
func (g *Grammar) Start() State { return g.start }

// Matches reports whether an output in a state of the grammar matches as it is.
func (g *Grammar) Matches(s State) bool { return s == over || s != "" && s[0] == 'm' }

// Next returns the state after a token, and the dead one if it is not allowed.
func (g *Grammar) Next(s State, token int32) State {
	switch {
	case s == "":
		return ""
	case slices.Contains(g.v.end, token):
		if g.Matches(s) {
			return over
		}
		return ""
	case s == over || token < 0 || int(token) >= g.v.size || g.v.text[token] == "":
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.auto.find(s)
	for _, b := range []byte(g.v.text[token]) {
		if at = g.auto.step(at, b); at == nil {
			return ""
		}
	}
	return at.key
}

// Allowed returns the tokens that may come next in a state. After the end of the
// text only tokens that end it may.
func (g *Grammar) Allowed(s State) Mask {
	if s == "" || s == over {
		m := g.empty()
		if s == over {
			g.allowEnd(m)
		}
		return m
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.auto.find(s)
	if at.mask != nil {
		return at.mask
	}
	m := g.empty()
	if at.matches {
		g.allowEnd(m)
	}
	g.walk(at, m)
	if g.auto.states[at.key] == at {
		if g.auto.masks += 8 * len(m); g.auto.masks > maxMaskBytes {
			g.auto.forget()
		} else {
			at.mask = m
		}
	}
	return m
}

func (g *Grammar) empty() Mask { return make(Mask, (g.v.size+63)/64) }

func (g *Grammar) allowEnd(m Mask) {
	for _, id := range g.v.end {
		m.set(id)
	}
}

// walk sets the tokens that can be taken from a state, going through the sorted
// tokens with the states along the current one's bytes at hand.
func (g *Grammar) walk(at *state, m Mask) {
	path := append(g.path[:0], at)
	dead := 1 << 30 // the current token dies at its byte dead-1
	for i, id := range g.v.order {
		common := g.v.common[i]
		if dead <= common {
			continue // with the same bytes
		}
		dead = 1 << 30
		path = path[:min(len(path), common+1)]
		text := g.v.text[id]
		for n := len(path) - 1; n < len(text); n++ {
			next := g.auto.step(path[n], text[n])
			if next == nil {
				dead = n + 1
				break
			}
			path = append(path, next)
		}
		if dead > len(text) {
			m.set(id)
		}
	}
	g.path = path
}
