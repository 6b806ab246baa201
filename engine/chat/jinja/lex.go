package jinja

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// The kinds of tokens. Operators have their own text as kind.
const (
	tData    = "data"
	tBegin   = "{{"
	tEnd     = "}}"
	tBlock   = "{%"
	tBlkEnd  = "%}"
	tName    = "name"
	tString  = "string"
	tInteger = "integer"
	tFloat   = "float"
	tEOF     = "end of the template"
)

// token is a piece of the source; for tString its value is unescaped.
type token struct {
	kind, val string
	line      int
}

// lexer cuts a source into tokens.
type lexer struct {
	src    string
	pos    int
	line   int
	starts bool // the last match ended a line, or nothing came before
	out    []token
}

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func trimRight(s string) string { return strings.TrimRightFunc(s, isSpace) }

// lex gives the tokens of a source. Line ends become \n, and one at the end of
// the source is dropped.
func lex(src string) ([]token, error) {
	src = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src)
	l := &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, starts: true}
	for l.pos < len(l.src) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.emit(tEOF, "")
	return l.out, nil
}

func (l *lexer) emit(kind, val string) { l.out = append(l.out, token{kind, val, l.line}) }

// take moves past n bytes.
func (l *lexer) take(n int) string {
	s := l.src[l.pos : l.pos+n]
	l.pos += n
	l.line += strings.Count(s, "\n")
	if s != "" {
		l.starts = s[len(s)-1] == '\n'
	}
	return s
}

func (l *lexer) fail(format string, a ...any) error {
	return &Error{Line: l.line, Msg: fmt.Sprintf(format, a...)}
}

// opening finds the next tag; kind is "" where there is none.
func opening(s string) (at int, kind string) {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' {
			switch k := s[i : i+2]; k {
			case "{{", "{%", "{#":
				return i, k
			}
		}
	}
	return len(s), ""
}

var rawBegin = regexp.MustCompile(`^\{%[-+]?\s*raw\s*(-%\}|%\})`)

// root takes the text up to the next tag, and the tag.
func (l *lexer) root() error {
	at, kind := opening(l.src[l.pos:])
	text, starts := l.src[l.pos:l.pos+at], l.starts
	sign := byte(0)
	if next := l.pos + at + 2; kind != "" && next < len(l.src) && (l.src[next] == '-' || l.src[next] == '+') {
		sign = l.src[next]
	}
	kept := text
	if kind != "" {
		kept = leftOf(text, kind, sign, starts)
	}
	if kept != "" {
		l.emit(tData, kept)
	}
	l.take(at)
	if kind == "" {
		return nil
	}
	if m := rawBegin.FindString(l.src[l.pos:]); m != "" {
		l.take(len(m))
		if strings.HasSuffix(m, "-%}") {
			l.takeSpace()
		}
		return l.raw()
	}
	l.take(2)
	if sign != 0 {
		l.take(1)
	}
	switch kind {
	case "{#":
		return l.comment()
	case "{{":
		l.emit(tBegin, kind)
	default:
		l.emit(tBlock, kind)
	}
	return l.tag(kind)
}

// leftOf strips the text before a tag: all white space for -, else (but before
// {{ and with +) the white space between the line's beginning and the tag.
func leftOf(text, kind string, sign byte, starts bool) string {
	if sign == '-' {
		return trimRight(text)
	}
	if sign == '+' || kind == "{{" {
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || starts) && strings.TrimFunc(text[line:], isSpace) == "" {
		return text[:line]
	}
	return text
}

func (l *lexer) takeSpace() {
	rest := l.src[l.pos:]
	l.take(len(rest) - len(strings.TrimLeftFunc(rest, isSpace)))
}

// closed takes what follows the end of a block or comment: one line end, or
// with - all white space, or with + nothing.
func (l *lexer) closed(sign byte) {
	switch {
	case sign == '-':
		l.takeSpace()
	case sign != '+' && l.pos < len(l.src) && l.src[l.pos] == '\n':
		l.take(1)
	}
}

func (l *lexer) comment() error {
	n := strings.Index(l.src[l.pos:], "#}")
	if n < 0 {
		return l.fail("a comment has no end")
	}
	sign := byte(0)
	if n > 0 {
		sign = l.src[l.pos+n-1]
	}
	l.take(n + 2)
	l.closed(sign)
	return nil
}

var rawEnd = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*([-+]?)%\}`)

func (l *lexer) raw() error {
	m := rawEnd.FindStringSubmatchIndex(l.src[l.pos:])
	if m == nil {
		return l.fail("a raw block has no end")
	}
	part := func(i int) (sign byte) {
		if m[i] < m[i+1] {
			sign = l.src[l.pos+m[i]]
		}
		return sign
	}
	before, after := part(2), part(4)
	if text := leftOf(l.src[l.pos:l.pos+m[0]], "{%", before, l.starts); text != "" {
		l.emit(tData, text)
	}
	l.take(m[1])
	l.closed(after)
	return nil
}

// tag takes the tokens of an expression or statement, and its end.
func (l *lexer) tag(kind string) error {
	end := tEnd
	if kind == "{%" {
		end = tBlkEnd
	}
	depth := 0
	for {
		l.takeSpace()
		rest := l.src[l.pos:]
		if rest == "" {
			return l.fail("a %s has no %s", kind, end)
		}
		if depth == 0 {
			if n, sign := endOf(rest, end); n > 0 {
				l.emit(end, end)
				l.take(n)
				if end == tBlkEnd {
					l.closed(sign)
				} else if sign == '-' {
					l.takeSpace()
				}
				return nil
			}
		}
		change, err := l.expression(rest)
		if err != nil {
			return err
		}
		if depth += change; depth < 0 {
			return l.fail("a bracket is closed that was not opened")
		}
	}
}

// endOf matches the end of a tag, with its sign.
func endOf(s, end string) (n int, sign byte) {
	if strings.HasPrefix(s, end) {
		return 2, 0
	}
	if len(s) > 2 && s[1:3] == end && (s[0] == '-' || s[0] == '+' && end == tBlkEnd) {
		return 3, s[0]
	}
	return 0, 0
}
