package grammar

import "unicode/utf8"

// byteRange is the bytes lo..hi.
type byteRange struct{ lo, hi byte }

// encoded calls each for sequences of byte ranges that together spell, in UTF-8,
// the runes lo..hi without the surrogates.
func encoded(lo, hi rune, each func([]byteRange)) {
	if lo > hi {
		return
	}
	if lo <= 0xdfff && hi >= 0xd800 {
		encoded(lo, min(hi, 0xd7ff), each)
		encoded(max(lo, 0xe000), hi, each)
		return
	}
	for _, last := range []rune{0x7f, 0x7ff, 0xffff} {
		if lo <= last && hi > last {
			encoded(lo, last, each)
			encoded(last+1, hi, each)
			return
		}
	}
	// Of equal length: split where the leading bytes differ and the trailing
	// ones do not run over their whole range.
	for shift := 6; shift < 6*utf8.RuneLen(lo); shift += 6 {
		mask := rune(1)<<shift - 1
		if lo&^mask == hi&^mask {
			continue
		}
		if lo&mask != 0 {
			encoded(lo, lo|mask, each)
			encoded(lo|mask+1, hi, each)
			return
		}
		if hi&mask != mask {
			encoded(lo, hi&^mask-1, each)
			encoded(hi&^mask, hi, each)
			return
		}
	}
	var from, to [utf8.UTFMax]byte
	n := utf8.EncodeRune(from[:], lo)
	utf8.EncodeRune(to[:], hi)
	ranges := make([]byteRange, n)
	for i := range ranges {
		ranges[i] = byteRange{from[i], to[i]}
	}
	each(ranges)
}
