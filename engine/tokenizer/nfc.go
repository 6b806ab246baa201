package tokenizer

import (
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc normalises text to composed form as the reference does: without the
// stream-safe text format (UAX 15), which norm.NFC follows, and with the marks
// of its version of Unicode, which is older than ours. Marks that are newer stay
// where they are and nothing moves across them. Bytes that are no valid UTF-8 stay as they are.
func nfc(s string) string {
	n := norm.NFC.QuickSpanString(s)
	if n == len(s) {
		return s
	}
	out := make([]byte, 0, len(s)+16)
	points := make([]point, 0, 32)
	for {
		n = boundary(s, n)
		out = append(out, s[:n]...)
		s = s[n:]
		n = segment(s)
		out, points = appendSegment(out, s[:n], points)
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
func appendSegment(dst []byte, s string, points []point) ([]byte, []point) {
	if isBad(s) {
		return append(dst, s...), points // a bad byte
	}
	from := 0
	for i, r := range s {
		if r >= lateRanges[0][0] && isLate(r) {
			dst, points = appendKnown(dst, s[from:i], points)
			from = i + utf8.RuneLen(r)
			dst = append(dst, s[i:from]...)
		}
	}
	return appendKnown(dst, s[from:], points)
}

func isBad(s string) bool {
	r, w := utf8.DecodeRuneInString(s)
	return r == utf8.RuneError && w == 1
}

// appendKnown normalises a part of a segment without late code points. The
// points are working space, which it returns.
func appendKnown(dst []byte, s string, points []point) ([]byte, []point) {
	if s == "" {
		return dst, points
	}
	points = decompose(points[:0], s)
	return compose(dst, points), points
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
	if isBad(s) {
		return 1 // no mark joins it
	}
	_, n := utf8.DecodeRuneInString(s)
	for n < len(s) && !beginsCluster(s[n:]) {
		_, w := utf8.DecodeRuneInString(s[n:])
		n += w
	}
	return n
}

// point is a code point with its canonical combining class.
type point struct {
	r     rune
	class uint8
}

// The Hangul syllables are composed by arithmetic (Unicode, section 3.12).
const (
	hangulL, hangulV, hangulT = 0x1100, 0x1161, 0x11a7
	hangulS, hangulLast       = 0xac00, 0xd7a3
	hangulVs, hangulTs        = 21, 28
)

// decompose appends the canonical decomposition of one segment, in canonical
// order.
func decompose(out []point, s string) []point {
	for len(s) > 0 {
		p := norm.NFC.PropertiesString(s)
		r, _ := utf8.DecodeRuneInString(s)
		s = s[max(p.Size(), 1):]
		switch d := p.Decomposition(); {
		case r >= hangulS && r <= hangulLast:
			i := r - hangulS
			out = append(out, point{hangulL + i/hangulTs/hangulVs, 0}, point{hangulV + i/hangulTs%hangulVs, 0})
			if t := i % hangulTs; t > 0 {
				out = append(out, point{hangulT + t, 0})
			}
		case len(d) == 0:
			out = append(out, point{r, p.CCC()})
		default:
			for len(d) > 0 {
				q := norm.NFC.Properties(d)
				r, w := utf8.DecodeRune(d)
				out = append(out, point{r, q.CCC()})
				d = d[w:]
			}
		}
	}
	for i := 0; i < len(out); {
		j := i
		for j < len(out) && out[j].class != 0 {
			j++
		}
		if j-i > 1 {
			slices.SortStableFunc(out[i:j], func(a, b point) int { return int(a.class) - int(b.class) })
		}
		i = j + 1
	}
	return out
}

// compositions gives the code point that two others compose to, but for
// Hangul. It is made when a long segment first asks for it.
var compositions = sync.OnceValue(func() map[[2]rune]rune {
	table := map[[2]rune]rune{}
	for _, part := range [...][2]rune{{0xc0, 0x30ff}, {0xfb1d, 0xfb4e}, {0x11000, 0x1d1c0}} {
		for r := part[0]; r <= part[1]; r++ {
			c := string(r)
			d := []rune(string(norm.NFC.PropertiesString(c).Decomposition()))
			if len(d) < 2 || norm.NFC.String(c) != c {
				continue
			}
			if first := []rune(norm.NFC.String(string(d[:len(d)-1]))); len(first) == 1 {
				table[[2]rune{first[0], d[len(d)-1]}] = r
			}
		}
	}
	return table
})

// pair composes two code points; ok is false where they stay two.
func pair(a, b rune) (c rune, ok bool) {
	switch {
	case a >= hangulL && a < hangulL+19 && b >= hangulV && b < hangulV+hangulVs:
		return hangulS + ((a-hangulL)*hangulVs+b-hangulV)*hangulTs, true
	case a >= hangulS && a <= hangulLast && (a-hangulS)%hangulTs == 0 && b > hangulT && b < hangulT+hangulTs:
		return a + b - hangulT, true
	}
	c, ok = compositions()[[2]rune{a, b}]
	return c, ok
}

// compose is the canonical composition algorithm: each code point joins the
// last starter unless one between them blocks it. It appends what is left, and
// overwrites the points.
func compose(dst []byte, points []point) []byte {
	out := points[:0]
	starter, last := -1, -1 // index of the last starter; class of the last code point kept after it
	for _, p := range points {
		class := int(p.class)
		if starter >= 0 && last < class {
			if c, ok := pair(out[starter].r, p.r); ok {
				out[starter].r = c
				continue
			}
		}
		out = append(out, p)
		if class == 0 {
			starter, last = len(out)-1, -1
		} else {
			last = class
		}
	}
	for _, p := range out {
		dst = utf8.AppendRune(dst, p.r)
	}
	return dst
}
