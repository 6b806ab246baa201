package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decoder turns ids into text as they arrive. What it has emitted, joined,
// equals Decode of all ids so far, but for a tail that later ids decide: bytes
// that may yet become a rune; and, with byte fallback, the run of byte tokens
// that has not ended, since one bad byte in it spoils it whole (the
// reference's rule). It is for one stream and not safe for concurrent use.
type Decoder struct {
	t           *Tokenizer
	skipSpecial bool
	tail        []byte // bytes held back
	begun       bool   // a token has given text
	stripped    int    // characters taken off the beginning; stripDone when no more are
}

// stripDone is a count of characters that no file asks for.
const stripDone = int(^uint(0) >> 1)

// NewDecoder begins a stream. With skipSpecial, special tokens give no text.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	return &Decoder{t: t, skipSpecial: skipSpecial}
}

// Push adds one id and returns the text that is now certain, which is valid
// UTF-8 and may be empty. Unknown ids give no text, as in Decode.
func (d *Decoder) Push(id int32) string {
	t := d.t
	if !t.Known(id) || d.skipSpecial && t.tokens[id].special {
		return ""
	}
	tok := &t.tokens[id]
	switch {
	case t.decoding.bytes:
		d.tail = append(d.tail, tok.text...)
		out, taken := appendLossy(nil, d.tail, false)
		d.tail = append(d.tail[:0], d.tail[taken:]...)
		return string(out)
	case tok.single:
		d.tail = append(d.tail, tok.text...)
		return ""
	}
	text := tok.text
	if t.decoding.metaDrop && !d.begun {
		text = strings.ReplaceAll(tok.spelling, t.decoding.meta, "")
	}
	d.begun = true
	return d.strip(d.endRun() + text)
}

// Flush ends the stream: bytes that were held back and are no rune become
// U+FFFD. The decoder may be used again.
func (d *Decoder) Flush() string {
	var text string
	if d.t.decoding.bytes {
		out, _ := appendLossy(nil, d.tail, true)
		d.tail = d.tail[:0]
		text = string(out)
	} else {
		text = d.strip(d.endRun())
	}
	d.begun, d.stripped = false, 0
	return text
}

// endRun gives the text of a run of byte tokens: their characters, or U+FFFD
// for each byte where the run is no valid UTF-8.
func (d *Decoder) endRun() string {
	if len(d.tail) == 0 {
		return ""
	}
	text := string(d.tail)
	if !utf8.Valid(d.tail) {
		text = strings.Repeat(string(utf8.RuneError), len(d.tail))
	}
	d.tail = d.tail[:0]
	d.begun = true
	return text
}

// strip takes the characters off the beginning of the stream that the file's
// Strip step takes.
func (d *Decoder) strip(text string) string {
	dec := d.t.decoding
	for text != "" && d.stripped < dec.stripMax {
		rest, ok := strings.CutPrefix(text, dec.strip)
		if !ok {
			d.stripped = stripDone
			break
		}
		text = rest
		d.stripped++
	}
	return text
}
