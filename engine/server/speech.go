package server

import "strings"

// speech splits what a model writes into reasoning, content and tool calls, as the
// text arrives. Text that may yet become a mark is held back.
type speech struct {
	f        family
	kinds    argumentKinds
	tools    bool // calls are looked for
	thinking bool
	started  bool // a text of the answer has begun: reasoning can only be before it
	calling  bool
	called   bool            // at least once
	plain    strings.Builder // of a family without marks: the whole answer, if it may be a call
	whole    bool            // it may be
	trim     bool            // line ends that come next are no text
	held     string
}

// said is a piece of what a model says. One of its fields is set.
type said struct {
	reasoning, content string
	call               *toolCall
}

// toolCall is a call that a model makes.
type toolCall struct{ name, arguments string }

// newSpeech begins an answer to a prompt, which may end inside of reasoning.
func newSpeech(f family, prompt string, tools bool, kinds argumentKinds) *speech {
	s := &speech{f: f, kinds: kinds, tools: tools && f.parse != nil}
	s.thinking = f.thinkOpen != "" && strings.HasSuffix(strings.TrimRight(prompt, " \t\r\n"), f.thinkOpen)
	s.whole = s.tools && f.callOpen == ""
	return s
}

// push takes more text.
func (s *speech) push(text string) []said {
	s.held += text
	return s.split(false)
}

// end takes what is left.
func (s *speech) end() []said {
	out := s.split(true)
	if s.whole {
		text := s.plain.String()
		s.plain.Reset()
		out = append(out, s.jsonCalls(text)...)
	}
	return out
}

// split takes from the held text what is certain; at the end that is all.
func (s *speech) split(last bool) (out []said) {
	for s.held != "" {
		piece, again := s.next(last)
		if piece != (said{}) {
			out = append(out, piece)
		}
		if !again {
			break
		}
	}
	return out
}

// next takes one piece; again says whether to look once more.
func (s *speech) next(last bool) (piece said, again bool) {
	if s.trim {
		s.held = strings.TrimLeft(s.held, "\n")
		s.trim = s.held == ""
	}
	switch {
	case s.thinking:
		text, found := s.until(s.f.thinkClose, last)
		if found {
			s.thinking, s.started, s.trim = false, true, true
		}
		return said{reasoning: text}, found
	case s.calling:
		body, rest, found := strings.Cut(s.held, s.f.callClose)
		if !found && !last {
			return said{}, false
		}
		s.held, s.calling = rest, false
		name, args, ok := s.f.parse(body, s.kinds)
		if !ok { // then it was none
			return said{content: s.f.callOpen + body + map[bool]string{true: s.f.callClose}[found]}, found
		}
		s.called = true
		return said{call: &toolCall{name, args}}, found
	}
	mark, text, found := s.mark(last)
	switch {
	case found && mark == s.f.thinkOpen:
		s.thinking, s.trim = true, true
	case found && mark == s.f.callOpen:
		s.calling = true
	}
	if s.started = s.started || strings.TrimSpace(text) != ""; s.whole {
		text = s.gather(text)
	}
	return said{content: text}, found
}

// gather keeps an answer that may be a call as a whole, and returns it once it can't
// be.
func (s *speech) gather(text string) string {
	s.plain.WriteString(text)
	if all := strings.TrimSpace(s.plain.String()); all == "" || all[0] == '{' {
		return ""
	}
	s.whole = false
	return s.plain.String()
}

// mark looks for the first mark that may come now. It takes the text before it, and
// the mark.
func (s *speech) mark(last bool) (mark, text string, found bool) {
	var marks []string
	if s.f.thinkOpen != "" && !s.started {
		marks = append(marks, s.f.thinkOpen)
	}
	if s.tools {
		marks = append(marks, s.f.around...)
		if s.f.callOpen != "" {
			marks = append(marks, s.f.callOpen)
		}
	}
	at := len(s.held)
	for _, m := range marks {
		if i := strings.Index(s.held, m); i >= 0 && i < at {
			at, mark = i, m
		}
	}
	if mark != "" {
		text, s.held = s.held[:at], s.held[at+len(mark):]
		if s.tools {
			text = strings.TrimRight(text, spaces)
		}
		return mark, text, true
	}
	text = s.release(last, marks...)
	if last && s.called && strings.Trim(text, spaces) == "" {
		text = ""
	}
	if trimmed := strings.TrimRight(text, spaces); s.tools && !last {
		s.held = text[len(trimmed):] + s.held // it is no text if a call follows
		text = trimmed
	}
	return "", text, false
}

// spaces stand between calls, and are no text there.
const spaces = " \t\r\n"

// until takes the text up to a mark, and the mark if it is there.
func (s *speech) until(mark string, last bool) (text string, found bool) {
	if before, after, ok := strings.Cut(s.held, mark); ok {
		s.held = after
		return before, true
	}
	return s.release(last, mark), false
}

// release takes all of the text but an end in which a mark may begin.
func (s *speech) release(last bool, marks ...string) string {
	keep := 0
	for _, m := range marks {
		for n := min(len(m)-1, len(s.held)); n > keep && !last; n-- {
			if strings.HasSuffix(s.held, m[:n]) {
				keep = n
			}
		}
	}
	text := s.held[:len(s.held)-keep]
	s.held = s.held[len(s.held)-keep:]
	return text
}

// jsonCalls reads an answer that may be calls as a whole: JSON objects with
// semicolons between them.
func (s *speech) jsonCalls(text string) []said {
	var calls []said
	for _, part := range strings.Split(strings.TrimSpace(text), "; ") {
		name, args, ok := s.f.parse(part, s.kinds)
		if !ok {
			return []said{{content: text}}
		}
		calls = append(calls, said{call: &toolCall{name, args}})
	}
	return calls
}
