package tokenizer

// Decoder turns ids into text as they arrive. What it has emitted, joined,
// equals Decode of all ids so far, but for a tail of bytes that may yet become
// a rune. It is for one stream and not safe for concurrent use.
type Decoder struct {
	t           *Tokenizer
	skipSpecial bool
	tail        []byte // bytes held back: the beginning of a rune
}

// NewDecoder begins a stream. With skipSpecial, special tokens give no text.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	return &Decoder{t: t, skipSpecial: skipSpecial}
}

// Push adds one id and returns the text that is now certain; it may be empty.
// Unknown ids give no text, as in Decode.
func (d *Decoder) Push(id int32) string {
	d.tail = d.t.appendText(d.tail, id, d.skipSpecial)
	out, taken := appendLossy(nil, d.tail, false)
	d.tail = append(d.tail[:0], d.tail[taken:]...)
	return string(out)
}

// Flush ends the stream: what was held back becomes U+FFFD. The decoder may be
// used again.
func (d *Decoder) Flush() string {
	out, _ := appendLossy(nil, d.tail, true)
	d.tail = d.tail[:0]
	return string(out)
}
