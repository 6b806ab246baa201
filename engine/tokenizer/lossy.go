package tokenizer

import "unicode/utf8"

// appendLossy appends the text of bytes that may be no valid UTF-8: each
// maximal invalid part becomes one U+FFFD, where a part is a prefix of some
// valid sequence, or one byte that begins none. It returns how many bytes it
// took: all of them when final is set, else all but a tail that further bytes
// may complete.
func appendLossy(dst, src []byte, final bool) (out []byte, taken int) {
	i := 0
	for i < len(src) {
		if src[i] < utf8.RuneSelf {
			dst = append(dst, src[i])
			i++
			continue
		}
		n, whole := sequence(src[i:])
		switch {
		case whole:
			dst = append(dst, src[i:i+n]...)
		case i+n == len(src) && !final && open(src[i:]):
			return dst, i
		default:
			dst = utf8.AppendRune(dst, utf8.RuneError)
		}
		i += n
	}
	return dst, i
}

// sequence gives the length of the valid sequence, or of the maximal invalid
// part, that begins p; whole says which.
func sequence(p []byte) (n int, whole bool) {
	need, low, high := lead(p[0])
	if need == 0 {
		return 1, false
	}
	n = 1
	for n <= need {
		if n == len(p) || p[n] < low || p[n] > high {
			return n, false
		}
		low, high = 0x80, 0xbf
		n++
	}
	return n, true
}

// open reports whether p, which is a maximal invalid part, might become valid
// by more bytes.
func open(p []byte) bool {
	need, _, _ := lead(p[0])
	return len(p) <= need
}

// lead gives the number of bytes that must follow a leading byte and the range
// of the first of them; need is 0 for bytes that lead nothing.
func lead(b byte) (need int, low, high byte) {
	switch {
	case b >= 0xc2 && b <= 0xdf:
		return 1, 0x80, 0xbf
	case b == 0xe0:
		return 2, 0xa0, 0xbf
	case b == 0xed:
		return 2, 0x80, 0x9f
	case b >= 0xe1 && b <= 0xef:
		return 2, 0x80, 0xbf
	case b == 0xf0:
		return 3, 0x90, 0xbf
	case b == 0xf4:
		return 3, 0x80, 0x8f
	case b >= 0xf1 && b <= 0xf3:
		return 3, 0x80, 0xbf
	}
	return 0, 0, 0
}
