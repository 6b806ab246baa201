package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// splitter cuts a text into pieces; next gives the length of the first piece
// of s, which is not empty.
type splitter interface {
	next(s string) int
}

// patternSplit isolates the matches of a pattern: each match is a piece, and
// so is the text between two matches.
type patternSplit struct{ match scanner }

func (p patternSplit) next(s string) int {
	if n := p.match(s); n > 0 {
		return n
	}
	i := 0
	for i < len(s) {
		_, w := utf8.DecodeRuneInString(s[i:])
		i += w
		if i < len(s) && p.match(s[i:]) > 0 {
			break
		}
	}
	return i
}

// The behaviours of a split at a literal text.
const (
	isolated           = "Isolated"
	mergedWithPrevious = "MergedWithPrevious"
	mergedWithNext     = "MergedWithNext"
)

// literalSplit cuts at the occurrences of a text. An occurrence is a piece of
// its own, or the end or beginning of a piece that is none.
type literalSplit struct{ text, behavior string }

func newLiteralSplit(text, behavior string) (splitter, error) {
	switch behavior {
	case isolated, mergedWithPrevious, mergedWithNext:
	default:
		return nil, fmt.Errorf("behavior %q is not supported; known are %q, %q and %q", behavior, isolated, mergedWithPrevious, mergedWithNext)
	}
	if text == "" {
		return nil, fmt.Errorf("the pattern is an empty text")
	}
	return literalSplit{text, behavior}, nil
}

func (l literalSplit) next(s string) int {
	at := strings.Index(s, l.text)
	switch {
	case at < 0:
		return len(s)
	case at > 0 && l.behavior == mergedWithPrevious:
		return at + len(l.text)
	case at > 0:
		return at
	case l.behavior != mergedWithNext:
		return len(l.text)
	}
	next := strings.Index(s[len(l.text):], l.text)
	if next < 0 {
		return len(s)
	}
	return len(l.text) + next
}

// digitSplit isolates numbers, one by one or in runs.
type digitSplit struct{ individual bool }

func (d digitSplit) next(s string) int {
	c, w := classAt(s, 0)
	switch {
	case c&digit == 0:
		return runWithout(s, w, digit)
	case d.individual:
		return w
	}
	return run(s, w, digit)
}

// seams cuts text between characters that no merge joins, so that a model
// without a pre-tokenizer, to which the whole text is one word, still works on
// short pieces. It changes no ids: a merge joins the last character of one
// symbol and the first of another, and if no merge of the file does that for
// two neighbours, they stay in different symbols whatever is around them.
type seams struct {
	ascii [128][128]bool
	pairs map[uint64]struct{}
}

func newSeams() *seams { return &seams{pairs: map[uint64]struct{}{}} }

// join notes that a merge joins two symbols.
func (m *seams) join(left, right string) {
	a, _ := utf8.DecodeLastRuneInString(left)
	b, _ := utf8.DecodeRuneInString(right)
	if a < 128 && b < 128 {
		m.ascii[a][b] = true
		return
	}
	m.pairs[pairKey(a, b)] = struct{}{}
}

func (m *seams) next(s string) int {
	a, i := utf8.DecodeRuneInString(s)
	for i < len(s) {
		b, w := rune(s[i]), 1
		if b >= utf8.RuneSelf {
			b, w = utf8.DecodeRuneInString(s[i:])
		}
		joined := false
		if a < 128 && b < 128 {
			joined = m.ascii[a][b]
		} else {
			_, joined = m.pairs[pairKey(a, b)]
		}
		if !joined {
			return i
		}
		a = b
		i += w
	}
	return i
}

var (
	_ splitter = patternSplit{}
	_ splitter = literalSplit{}
	_ splitter = digitSplit{}
	_ splitter = (*seams)(nil)
)
