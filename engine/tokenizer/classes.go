package tokenizer

import "unicode/utf8"

// The classes of a code point that the steps of the reference ask for, as bits;
// tables.go, made by testdata/make_tables.py, has them in this order.
const (
	letter  uint8 = 1 << iota // \p{L}
	mark                      // \p{M}
	number                    // \p{N}: all three kinds of number
	space                     // \s: the property White_Space
	symbol                    // \p{P} or \p{S}
	newline                   // \r or \n
	word                      // \w: alphabetic, mark, decimal, connector, joiner
	digit                     // what the Digits step isolates: \p{N} of a newer Unicode
)

// classBlock is the number of code points in a block of the class table.
const classBlock = 256

// classIndex and classData are the two stages of the class table: equal blocks
// are stored once.
var classIndex, classData = buildClasses()

// asciiClass is the first block, for the fast path.
var asciiClass = [128]uint8(classData[int(classIndex[0])*classBlock:])

func buildClasses() (index [(utf8.MaxRune + 1) / classBlock]uint16, data []uint8) {
	known := map[[classBlock]uint8]uint16{}
	run := 0
	for b := range index {
		var block [classBlock]uint8
		for i := range block {
			r := uint32(b*classBlock + i)
			for run+1 < len(classRuns) && classRuns[run+1]>>8 <= r {
				run++
			}
			block[i] = uint8(classRuns[run])
		}
		at, ok := known[block]
		if !ok {
			at = uint16(len(data) / classBlock)
			known[block] = at
			data = append(data, block[:]...)
		}
		index[b] = at
	}
	return index, data
}

// classOf is the class of a code point.
func classOf(r rune) uint8 {
	return classData[int(classIndex[r/classBlock])*classBlock+int(r%classBlock)]
}

// classAt decodes the rune at s[i:], which is not empty, and gives its class
// and width. An invalid byte has width 1 and the class of U+FFFD, a symbol.
func classAt(s string, i int) (class uint8, width int) {
	if b := s[i]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	r, w := utf8.DecodeRuneInString(s[i:])
	return classOf(r), w
}

// run returns the end of the run of runes from s[i:] on with any of the
// classes in mask.
func run(s string, i int, mask uint8) int {
	for i < len(s) {
		c, w := classAt(s, i)
		if c&mask == 0 {
			break
		}
		i += w
	}
	return i
}

// runWithout is like run for runes with none of the classes in mask.
func runWithout(s string, i int, mask uint8) int {
	for i < len(s) {
		c, w := classAt(s, i)
		if c&mask != 0 {
			break
		}
		i += w
	}
	return i
}
