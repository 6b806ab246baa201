package tokenizer

import "strings"

// Stops looks for stop strings in the text of ids as they arrive, wherever they lie
// across tokens. It is for one stream and not safe for concurrent use.
type Stops struct {
	dec     *Decoder
	strings []string
	longest int    // bytes of the longest string
	tail    string // text that a stop string may have begun in
	before  int    // bytes of text before the tail
	found   string
	at      int
}

// NewStops returns a matcher of the strings, none of them empty, in what Decode of
// the same ids with skipSpecial gives.
func (t *Tokenizer) NewStops(stop []string, skipSpecial bool) *Stops {
	s := &Stops{dec: t.NewDecoder(skipSpecial), strings: stop, at: -1}
	for _, x := range stop {
		s.longest = max(s.longest, len(x))
	}
	return s
}

// Push takes ids until a stop string is complete: then it returns how many it took,
// the one that completed the string included, and true. Of strings that one id
// completes, the one that begins first counts, and of these the longest.
func (s *Stops) Push(ids []int32) (n int, ended bool) {
	for i, id := range ids {
		s.tail += s.dec.Push(id)
		first := len(s.tail)
		for _, stop := range s.strings {
			at := strings.Index(s.tail, stop)
			if at >= 0 && (at < first || at == first && len(stop) > len(s.found)) {
				first, s.found, s.at = at, stop, s.before+at
			}
		}
		if s.at >= 0 {
			return i + 1, true
		}
		if cut := len(s.tail) - s.longest + 1; cut > 0 {
			s.before += cut
			s.tail = s.tail[cut:]
		}
	}
	return len(ids), false
}

// Found returns the stop string that was completed, and the byte of the text at
// which it begins; "" and -1 while there is none.
func (s *Stops) Found() (stop string, at int) { return s.found, s.at }
