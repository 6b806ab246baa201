package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// AddedToken is a token that is cut out of the text before it is split.
type AddedToken struct {
	ID         int32
	Content    string
	SingleWord bool // only where no word character touches it
	LStrip     bool // takes the white space before it
	RStrip     bool // takes the white space after it
	Normalized bool // matches in normalised text
	Special    bool // left out when decoding skips special tokens
}

// addedSet finds added tokens in text, by a trie over the bytes of their
// contents.
type addedSet struct {
	first [256]bool // bytes that begin a token
	only  byte      // the one first byte, when alone is set
	alone bool
	nodes []addedNode
}

type addedNode struct {
	next  map[byte]int32
	token *AddedToken // that ends here, or nil
}

// newAddedSet makes a set from texts and their tokens; nil for none.
func newAddedSet(texts []string, tokens []*AddedToken) *addedSet {
	if len(texts) == 0 {
		return nil
	}
	s := &addedSet{nodes: []addedNode{{next: map[byte]int32{}}}}
	for i, text := range texts {
		at := int32(0)
		for j := range len(text) {
			to, ok := s.nodes[at].next[text[j]]
			if !ok {
				to = int32(len(s.nodes))
				s.nodes = append(s.nodes, addedNode{next: map[byte]int32{}})
				s.nodes[at].next[text[j]] = to
			}
			at = to
		}
		s.nodes[at].token = tokens[i]
		s.first[text[0]] = true
		s.only = text[0]
	}
	s.alone = len(s.nodes[0].next) == 1
	return s
}

// match gives the longest token that begins at s[i:], and its end.
func (a *addedSet) match(s string, i int) (token *AddedToken, end int) {
	at := int32(0)
	for j := i; j < len(s); j++ {
		to, ok := a.nodes[at].next[s[j]]
		if !ok {
			break
		}
		at = to
		if t := a.nodes[at].token; t != nil {
			token, end = t, j+1
		}
	}
	return token, end
}

// find gives the leftmost of the longest matches from s[i:] on; token is nil
// where there is none.
func (a *addedSet) find(s string, i int) (token *AddedToken, start, end int) {
	for ; i < len(s); i++ {
		if a.alone {
			n := strings.IndexByte(s[i:], a.only)
			if n < 0 {
				break
			}
			i += n
		} else if !a.first[s[i]] {
			continue
		}
		if token, end = a.match(s, i); token != nil {
			return token, i, end
		}
	}
	return nil, 0, 0
}

// split cuts s into tokens and the text between them, in order; text gets
// whether its piece begins s. A match that fails its single-word condition
// stays text, whole.
func (a *addedSet) split(s string, token func(*AddedToken), text func(s string, first bool)) {
	if a == nil {
		if s != "" {
			text(s, true)
		}
		return
	}
	done := 0
	for from := 0; ; {
		t, start, end := a.find(s, from)
		if t == nil {
			break
		}
		from = end
		if t.SingleWord && (endsInWord(s[:start]) || beginsWithWord(s[end:])) {
			continue
		}
		// White space that the token before took is taken, and not looked at
		// again.
		start, end = max(start, done), max(end, done)
		if t.LStrip {
			start = spaceBefore(s, done, start)
		}
		if t.RStrip {
			end = run(s, end, space)
		}
		if done < start {
			text(s[done:start], done == 0)
		}
		token(t)
		done = end
	}
	if done < len(s) {
		text(s[done:], done == 0)
	}
}

func endsInWord(s string) bool {
	r, w := utf8.DecodeLastRuneInString(s)
	return w > 0 && classOf(r)&word != 0
}

func beginsWithWord(s string) bool {
	if s == "" {
		return false
	}
	c, _ := classAt(s, 0)
	return c&word != 0
}

// spaceBefore gives the start of the white space in s[low:end] that ends at
// end.
func spaceBefore(s string, low, end int) int {
	for end > low {
		r, w := utf8.DecodeLastRuneInString(s[low:end])
		if classOf(r)&space == 0 {
			break
		}
		end -= w
	}
	return end
}
