package server

import (
	"slices"
	"unicode/utf8"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/tokenizer"
)

// text turns the tokens of one answer into text as they arrive. It holds back what
// may yet turn out to belong to a stop string, which is never told.
type text struct {
	dec     *tokenizer.Decoder // nil without a tokenizer
	include bool               // stop strings and tokens are part of the answer
	hold    int                // bytes to hold back
	held    string
	told    int // bytes
}

func newText(t *tokenizer.Tokenizer, c *common, skipSpecial bool) *text {
	x := &text{include: c.IncludeStop}
	if t == nil {
		return x
	}
	x.dec = t.NewDecoder(skipSpecial)
	for _, stop := range c.Stop {
		x.hold = max(x.hold, len(stop)-1)
	}
	return x
}

// push adds tokens, and returns the text that is certain by now. stop is the stop
// string that they complete, or nil; there may be text behind it.
func (x *text) push(ids []int32, stop *found) string {
	if x.dec == nil {
		return ""
	}
	for _, id := range ids {
		x.held += x.dec.Push(id)
	}
	if stop != nil {
		return x.tell(x.until(stop))
	}
	cut := len(x.held) - x.hold
	for cut > 0 && cut < len(x.held) && !utf8.RuneStart(x.held[cut]) {
		cut--
	}
	return x.tell(cut)
}

// end returns the rest of the text.
func (x *text) end(e *ending) string {
	if x.dec == nil {
		return ""
	}
	if e.stop != nil {
		return x.tell(x.until(e.stop))
	}
	x.held += x.dec.Flush()
	return x.tell(len(x.held))
}

// until is how much of what is held comes before the end at a stop string.
func (x *text) until(stop *found) int {
	n := stop.at - x.told
	if x.include {
		n += len(stop.text)
	}
	return n
}

// tell returns n bytes of what was held back.
func (x *text) tell(n int) string {
	if n <= 0 {
		return ""
	}
	out := x.held[:n]
	x.held = x.held[n:]
	x.told += n
	return out
}

// text is what an event adds to the text of an answer.
func (g *generation) text(i int, e event) string {
	if e.end != nil {
		return g.texts[i].end(e.end)
	}
	return g.texts[i].push(g.spoken(g.jobs[i], e), e.stop)
}

// spoken are the ids of a step that are text: without the token that ends the
// answer, unless that is to be told.
func (g *generation) spoken(j *job, e event) []int32 {
	n := len(e.ids)
	if n > 0 && !g.c.IncludeStop && slices.Contains(j.req.Stop, e.ids[n-1]) {
		return e.ids[:n-1]
	}
	return e.ids
}

// finishReason is why an answer ended as clients are told, and what stopped it: a
// text, a token id that is not one of the model's own, or nothing.
func (g *generation) finishReason(j *job, e *ending) (reason string, stop any) {
	switch e.finish {
	case engine.FinishText:
		return "stop", e.stop.text
	case engine.FinishStop:
		if last := j.output[len(j.output)-1]; slices.Contains(g.c.StopTokenIDs, last) {
			stop = last
		}
		return "stop", stop
	case engine.FinishLength:
		return "length", nil
	case engine.FinishCancel:
		return "abort", nil
	}
	return "error", nil
}
