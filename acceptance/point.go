package acceptance

import (
	"strconv"
	"strings"
)

// SplitRequest splits a request's id into its point, with the round, and its
// prompt's id, which may have slashes of its own. An id without a slash is its
// own point and prompt.
func SplitRequest(id string) (point, prompt string) {
	point, prompt, ok := strings.Cut(id, "/")
	if !ok {
		return id, id
	}
	return point, prompt
}

// Point is what the name of a point says (SCHEMA.md, column request).
type Point struct {
	Name  string // without the round
	Round int    // from 0; -1 where the name has none
	// Plain: plain decoding, measured; Reference: the plain run that outputs
	// are compared with, not measured.
	Plain, Reference bool
	Rule             string
	Concurrency      int // sequences in flight; 0 where the name does not say
}

// ParsePoint reads the name of a point, "plain.RULE.cN" or
// "STRATEGY.kK.RULE.cN", with ".rROUND" behind it or without. Any other name is
// a point of its own, of which nothing else is known.
func ParsePoint(name string) Point {
	p := Point{Name: name, Round: -1}
	if rest, n, ok := cutNumber(name, ".r"); ok {
		p.Name, p.Round = rest, n
	}
	p.Reference = strings.HasPrefix(name, "reference-")
	p.Plain = strings.HasPrefix(name, "plain.")
	if rest, n, ok := cutNumber(p.Name, ".c"); ok {
		p.Concurrency = n
		at, _, _ := strings.Cut(rest, ":") // settings of the rule may have dots
		p.Rule = rest[strings.LastIndexByte(at, '.')+1:]
	}
	return p
}

// cutNumber cuts mark and the number behind it off the end of a name.
func cutNumber(name, mark string) (rest string, n int, ok bool) {
	i := strings.LastIndex(name, mark)
	if i < 0 {
		return name, 0, false
	}
	n, err := strconv.Atoi(name[i+len(mark):])
	if err != nil || n < 0 {
		return name, 0, false
	}
	return name[:i], n, true
}

// Is reports whether a point, with its round, is the one that name means: a name
// without a round means all rounds.
func (p Point) Is(name string) bool {
	return name == p.Name || p.Round >= 0 && name == p.Name+".r"+strconv.Itoa(p.Round)
}
