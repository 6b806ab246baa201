package tokenizer

import "unicode/utf8"

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

var (
	_ splitter = patternSplit{}
	_ splitter = digitSplit{}
)
