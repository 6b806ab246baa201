package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxNonStarters is the run of combining marks that norm.NFC leaves whole: in
// longer ones it inserts U+034F (stream-safe text format, UAX 15), which the
// reference does not.
const maxNonStarters = 30

// nfc normalises text to composed form as the reference does: without the
// stream-safe format, and with the marks of its version of Unicode, which is
// older than ours. Marks that are newer stay where they are and nothing moves
// across them. Bytes that are no valid UTF-8 stay as they are.
func nfc(s string) string {
	if norm.NFC.QuickSpanString(s) == len(s) && !longMarks(s) {
		return s
	}
	var out strings.Builder
	from := 0
	for i, r := range s {
		if r >= lateRanges[0][0] && isLate(r) {
			out.WriteString(nfcKnown(s[from:i]))
			from = i + utf8.RuneLen(r)
			out.WriteString(s[i:from])
		}
	}
	if from == 0 {
		return nfcKnown(s)
	}
	out.WriteString(nfcKnown(s[from:]))
	return out.String()
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

// nfcKnown is nfc for text without late code points.
func nfcKnown(s string) string {
	if !longMarks(s) {
		return norm.NFC.String(s)
	}
	var out strings.Builder
	for len(s) > 0 {
		n := segment(s)
		if part := s[:n]; longMarks(part) {
			out.WriteString(compose(decompose(part)))
		} else {
			out.WriteString(norm.NFC.String(part))
		}
		s = s[n:]
	}
	return out.String()
}

// longMarks reports whether s has a run of code points so long that norm.NFC
// might break it. It counts decompositions generously: four marks at most come
// out of one code point.
func longMarks(s string) bool {
	if len(s) <= maxNonStarters/4 {
		return false
	}
	run := 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			run = 0
			i++
			continue
		}
		p := norm.NFC.PropertiesString(s[i:])
		w := max(p.Size(), 1)
		if p.CCC() == 0 && p.TrailCCC() == 0 && p.BoundaryBefore() {
			run = 0
		} else if run++; run > maxNonStarters/4 {
			return true
		}
		i += w
	}
	return false
}

// segment gives the length of the longest prefix of s that does not interact
// with what follows: up to the next code point that begins a new cluster.
func segment(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	for n < len(s) {
		p := norm.NFC.PropertiesString(s[n:])
		if p.Size() == 0 || p.BoundaryBefore() {
			break
		}
		n += p.Size()
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
