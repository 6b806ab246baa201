package load

import (
	"bytes"
	"strings"
)

// quick reads the events that a stream is made of, those of a piece of text in the
// middle, without allocating: at 100,000 of them a second package encoding/json alone
// would take a third of a processor. What it doesn't understand, or is more than text
// and token ids, it leaves to chunk.
type quick struct {
	text []byte  // of the event
	ids  []int32 // overwritten by the next event

	data []byte
	at   int
}

// read reads an event, and reports whether it understood all that matters of it.
func (q *quick) read(data []byte) bool {
	q.text, q.ids, q.data, q.at = nil, q.ids[:0], data, 0
	var seen [3]bool
	ok := q.object(func(key []byte) bool {
		switch first(key, &seen, "choices", "usage", "error") {
		case 0:
			return q.choices()
		case 1, 2:
			return q.null()
		case other:
			return q.skip()
		}
		return false
	})
	q.space()
	return ok && seen[0] && q.at == len(data)
}

// choices reads a list of one choice.
func (q *quick) choices() bool {
	var seen [3]bool
	return q.is('[') && q.object(func(key []byte) bool {
		switch first(key, &seen, "text", "token_ids", "finish_reason") {
		case 0:
			text, ok := q.string()
			q.text = text
			return ok
		case 1:
			return q.numbers()
		case 2:
			return q.null()
		case other:
			return q.skip()
		}
		return false
	}) && q.is(']')
}

// other is a key that has no meaning here, odd one that has it for encoding/json: a
// key that was there before, or is one but for its case.
const (
	other = -1
	odd   = -2
)

// first tells which of three keys a key is, the first time that it is there.
func first(key []byte, seen *[3]bool, names ...string) int {
	for i, name := range names {
		switch {
		case string(key) == name && !seen[i]:
			seen[i] = true
			return i
		case len(key) == len(name) && strings.EqualFold(string(key), name):
			return odd
		}
	}
	return other
}

// is goes over a character, and over the spaces before it, if it is there.
func (q *quick) is(c byte) bool {
	q.space()
	if q.at < len(q.data) && q.data[q.at] == c {
		q.at++
		return true
	}
	return false
}

func (q *quick) space() {
	for q.at < len(q.data) && (q.data[q.at] == ' ' || q.data[q.at] == '\n' || q.data[q.at] == '\t' || q.data[q.at] == '\r') {
		q.at++
	}
}

// object reads an object, of whose keys each reads the value.
func (q *quick) object(each func(key []byte) bool) bool {
	if !q.is('{') {
		return false
	}
	if q.is('}') {
		return true
	}
	for {
		q.space()
		key, ok := q.string()
		if !ok || !q.is(':') || !each(key) {
			return false
		}
		if q.is('}') {
			return true
		}
		if !q.is(',') {
			return false
		}
	}
}

// string reads a text without escapes.
func (q *quick) string() ([]byte, bool) {
	if !q.is('"') {
		return nil, false
	}
	n := bytes.IndexByte(q.data[q.at:], '"')
	if n < 0 {
		return nil, false
	}
	text := q.data[q.at : q.at+n]
	for _, c := range text {
		if c == '\\' || c < ' ' || c >= 0x80 { // escapes, and bytes that may not be UTF-8
			return nil, false
		}
	}
	q.at += n + 1
	return text, true
}

// null reads null.
func (q *quick) null() bool {
	q.space()
	if bytes.HasPrefix(q.data[q.at:], []byte("null")) {
		q.at += len("null")
		return true
	}
	return false
}

// numbers reads a list of token ids, or null.
func (q *quick) numbers() bool {
	if q.null() {
		return true
	}
	if !q.is('[') {
		return false
	}
	if q.is(']') {
		return true
	}
	for {
		q.space()
		from, n := q.at, int64(0)
		for q.at < len(q.data) && q.data[q.at] >= '0' && q.data[q.at] <= '9' && q.at-from < 10 {
			n = n*10 + int64(q.data[q.at]-'0')
			q.at++
		}
		if q.at == from || n > 1<<31-1 || q.data[from] == '0' && q.at > from+1 {
			return false
		}
		q.ids = append(q.ids, int32(n))
		if q.is(']') {
			return true
		}
		if !q.is(',') {
			return false
		}
	}
}

// skip goes over a value that doesn't matter: a text, null, a truth, or a whole number.
func (q *quick) skip() bool {
	q.space()
	for _, word := range []string{"null", "true", "false"} {
		if bytes.HasPrefix(q.data[q.at:], []byte(word)) {
			q.at += len(word)
			return true
		}
	}
	if q.at < len(q.data) && q.data[q.at] == '"' {
		_, ok := q.string()
		return ok
	}
	from := q.at
	for q.at < len(q.data) && q.data[q.at] >= '0' && q.data[q.at] <= '9' {
		q.at++
	}
	return q.at > from && (q.data[from] != '0' || q.at == from+1)
}
