package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxNonStarters is the run of combining marks that norm.NFC leaves whole: in
// longer ones it inserts U+034F (stream-safe text format, UAX 15), which the
// reference does not.
const maxNonStarters = 30

// maxDecomposed is the most code points that one decomposes to.
const maxDecomposed = 4

// nfc normalises text to composed form as the reference does: without the
// stream-safe format, and with the marks of its version of Unicode, which is
// older than ours. Marks that are newer stay where they are and nothing moves
// across them. Bytes that are no valid UTF-8 stay as they are.
func nfc(s string) string {
	n := norm.NFC.QuickSpanString(s)
	if n == len(s) {
		return s
	}
	out := make([]byte, 0, len(s)+16)
	for {
		n = boundary(s, n)
		out = append(out, s[:n]...)
		s = s[n:]
		n = segment(s)
		out = appendSegment(out, s[:n])
		s = s[n:]
		if n = norm.NFC.QuickSpanString(s); n == len(s) {
			return string(append(out, s...))
		}
	}
}

// boundary moves n back to where a cluster begins: nothing before it interacts
// with anything from it on.
func boundary(s string, n int) int {
	for n > 0 && !beginsCluster(s[n:]) {
		_, w := utf8.DecodeLastRuneInString(s[:n])
		n -= w
	}
	return n
}

func beginsCluster(s string) bool {
	p := norm.NFC.PropertiesString(s)
	return p.Size() == 0 || p.BoundaryBefore()
}

// appendSegment normalises one segment, taking late code points as barriers.
func appendSegment(dst []byte, s string) []byte {
	from := 0
	for i, r := range s {
		if r >= lateRanges[0][0] && isLate(r) {
			dst = appendKnown(dst, s[from:i])
			from = i + utf8.RuneLen(r)
			dst = append(dst, s[i:from]...)
		}
	}
	return appendKnown(dst, s[from:])
}

// appendKnown normalises a part of a segment without late code points.
func appendKnown(dst []byte, s string) []byte {
	switch {
	case s == "":
		return dst
	case utf8.RuneCountInString(s) <= maxNonStarters/maxDecomposed:
		return append(dst, norm.NFC.String(s)...)
	}
	return append(dst, compose(decompose(s))...)
}

func isLate(r rune) bool {
	_, found := slices.BinarySearchFunc(lateRanges[:], r, func(lr [2]rune, r rune) int {
		switch {
		case lr[1] < r:
			return -1
		case lr[0] > r:
			return 1
		}
		return 0
	})
	return found
}

// segment gives the length of the longest prefix of s that does not interact
// with what follows: up to the next code point that begins a new cluster.
func segment(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	for n < len(s) && !beginsCluster(s[n:]) {
		_, w := utf8.DecodeRuneInString(s[n:])
		n += w
	}
	return n
}

// decompose gives the canonical decomposition of one segment, in canonical
// order.
func decompose(s string) []rune {
	var out []rune
	for len(s) > 0 {
		p := norm.NFC.PropertiesString(s)
		if d := p.Decomposition(); len(d) > 0 {
			out = append(out, []rune(string(d))...)
		} else {
			r, _ := utf8.DecodeRuneInString(s)
			out = append(out, []rune(norm.NFD.String(string(r)))...)
		}
		s = s[max(p.Size(), 1):]
	}
	for i := 0; i < len(out); {
		j := i
		for j < len(out) && ccc(out[j]) != 0 {
			j++
		}
		slices.SortStableFunc(out[i:j], func(a, b rune) int { return int(ccc(a)) - int(ccc(b)) })
		i = j + 1
	}
	return out
}

func ccc(r rune) uint8 { return norm.NFC.PropertiesString(string(r)).CCC() }

// compose is the canonical composition algorithm: each code point joins the
// last starter unless one between them blocks it.
func compose(rs []rune) string {
	out := rs[:0:0]
	starter, last := -1, -1 // index of the last starter; class of the last code point kept after it
	for _, r := range rs {
		class := int(ccc(r))
		if starter >= 0 && last < class {
			pair := string(out[starter]) + string(r)
			if c := norm.NFC.String(pair); utf8.RuneCountInString(c) == 1 {
				out[starter], _ = utf8.DecodeRuneInString(c)
				continue
			}
		}
		out = append(out, r)
		if class == 0 {
			starter, last = len(out)-1, -1
		} else {
			last = class
		}
	}
	return string(out)
}
