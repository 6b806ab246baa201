package tokenizer

// The split patterns that have a scanner, exactly as tokenizer.json holds
// them. The letters are those of the project's notes on tokenizers.
const (
	// patternA is that of Llama 3 and GLM: up to three digits.
	patternA = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// patternB is that of Qwen2, Qwen2.5 and Qwen3: single digits.
	patternB = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// patternC is that of Qwen3.5: combining marks join letters.
	patternC = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// patternD is GPT-2's, built into the ByteLevel pre-tokenizer (SmolLM2).
	patternD = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	// patternE1 to patternE3 are applied in turn by DeepSeek V3 and V4.
	patternE1 = `\p{N}{1,3}`
	patternE2 = `[一-龥぀-ゟ゠-ヿ]+`
	patternE3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanner gives the length of a pattern's match at the start of s, which is
// not empty, or 0 where it does not match there.
type scanner func(s string) int

var scanners = map[string]scanner{
	patternA:  func(s string) int { return scanABC(s, letter, 3) },
	patternB:  func(s string) int { return scanABC(s, letter, 1) },
	patternC:  func(s string) int { return scanABC(s, letter|mark, 1) },
	patternD:  scanD,
	patternE1: scanE1,
	patternE2: scanE2,
	patternE3: scanE3,
}

// scanABC follows patterns A, B and C, one alternative after the other.
// letters is what makes a word, digits the longest run of numbers.
func scanABC(s string, letters uint8, digits int) int {
	// (?i:'s|'t|'re|'ve|'m|'ll|'d)
	if s[0] == '\'' {
		if n := contraction(s, true); n > 0 {
			return n
		}
	}
	c, w := classAt(s, 0)
	// [^\r\n\p{L}\p{N}]?[letters]+
	if c&letters != 0 {
		return run(s, w, letters)
	}
	if c&(newline|number) == 0 && w < len(s) {
		if c2, w2 := classAt(s, w); c2&letters != 0 {
			return run(s, w+w2, letters)
		}
	}
	// \p{N} or \p{N}{1,3}
	if c&number != 0 {
		return numbers(s, digits)
	}
	//  ?[^\s letters \p{N}]+[\r\n]*
	if n := spaced(s, func(i int) int { return runWithout(s, i, space|letters|number) }); n > 0 {
		return newlines(s, n)
	}
	// \s*[\r\n]+|\s+(?!\S)|\s+
	return spaces(s, true)
}

// scanD follows pattern D, whose contractions are lower case alone.
func scanD(s string) int {
	if s[0] == '\'' {
		if n := contraction(s, false); n > 0 {
			return n
		}
	}
	for _, mask := range [...]uint8{letter, number} {
		if n := spaced(s, func(i int) int { return run(s, i, mask) }); n > 0 {
			return n
		}
	}
	if n := spaced(s, func(i int) int { return runWithout(s, i, space|letter|number) }); n > 0 {
		return n
	}
	return spaces(s, false)
}

func scanE1(s string) int { return numbers(s, 3) }

func scanE2(s string) int {
	for i, r := range s {
		if !(r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff) {
			return i
		}
	}
	return len(s)
}

func scanE3(s string) int {
	c, w := classAt(s, 0)
	// [ASCII punctuation][A-Za-z]+
	if c&symbol != 0 && s[0] < 0x80 {
		i := 1
		for i < len(s) && (s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z') {
			i++
		}
		if i > 1 {
			return i
		}
	}
	// [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
	if c&(letter|mark) != 0 {
		return run(s, w, letter|mark)
	}
	if c&(newline|symbol) == 0 && w < len(s) {
		if c2, w2 := classAt(s, w); c2&(letter|mark) != 0 {
			return run(s, w+w2, letter|mark)
		}
	}
	//  ?[\p{P}\p{S}]+[\r\n]*
	if n := spaced(s, func(i int) int { return run(s, i, symbol) }); n > 0 {
		return newlines(s, n)
	}
	// \s*[\r\n]+|\s+(?!\S)|\s+, and no match for the rest
	return spaces(s, true)
}

// contraction matches the endings of English contractions at an apostrophe.
// Without regard to case, the long s (U+017F) is an s.
func contraction(s string, fold bool) int {
	const longS = "'\u017f"
	if fold && len(s) >= len(longS) && s[:len(longS)] == longS {
		return len(longS)
	}
	at := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		b := s[i]
		if fold && b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		return b
	}
	switch a, b := at(1), at(2); {
	case a == 's', a == 't', a == 'm', a == 'd':
		return 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 3
	}
	return 0
}

// spaced matches an optional space and a run that must not be empty; end gives
// the end of the run that begins at an index.
func spaced(s string, end func(int) int) int {
	if s[0] == ' ' {
		if n := end(1); n > 1 {
			return n
		}
		return 0
	}
	return end(0)
}

// numbers matches at most limit numbers.
func numbers(s string, limit int) int {
	i := 0
	for n := 0; n < limit && i < len(s); n++ {
		c, w := classAt(s, i)
		if c&number == 0 {
			break
		}
		i += w
	}
	return i
}

// newlines extends a match that ends at i by [\r\n]*.
func newlines(s string, i int) int {
	for i < len(s) && (s[i] == '\n' || s[i] == '\r') {
		i++
	}
	return i
}

// spaces matches \s*[\r\n]+ (where lines is set), else \s+(?!\S), else \s+: a
// run of white space up to its last line end, or else, when text follows, all
// but its last rune.
func spaces(s string, lines bool) int {
	i, lastStart, lineEnd := 0, 0, 0
	for i < len(s) {
		c, w := classAt(s, i)
		if c&space == 0 {
			break
		}
		lastStart = i
		i += w
		if c&newline != 0 {
			lineEnd = i
		}
	}
	switch {
	case lines && lineEnd > 0:
		return lineEnd
	case i < len(s) && lastStart > 0:
		return lastStart
	}
	return i
}
