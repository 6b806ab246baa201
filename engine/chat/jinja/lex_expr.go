package jinja

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	floatRE   = regexp.MustCompile(`^(\d+_)*\d+((\.(\d+_)*\d+)?[eE][+-]?(\d+_)*\d+|\.(\d+_)*\d+)`)
	integerRE = regexp.MustCompile(`^(0[bB](_?[01])+|0[oO](_?[0-7])+|0[xX](_?[\da-fA-F])+|[1-9](_?\d)*|0(_?0)*)`)
)

var operators = []string{"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

// expression takes one token of an expression; change is what it does to the
// depth of brackets.
func (l *lexer) expression(s string) (change int, err error) {
	c, _ := utf8.DecodeRuneInString(s)
	afterDot := len(l.out) > 0 && l.out[len(l.out)-1].kind == "."
	switch {
	case c >= '0' && c <= '9':
		m, kind := "", tFloat
		if !afterDot {
			m = floatRE.FindString(s)
		}
		if m == "" {
			m, kind = integerRE.FindString(s), tInteger
		}
		l.emit(kind, strings.ReplaceAll(m, "_", ""))
		l.take(len(m))
		return 0, nil
	case c == '_' || unicode.IsLetter(c):
		n := strings.IndexFunc(s, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
		})
		if n < 0 {
			n = len(s)
		}
		l.emit(tName, s[:n])
		l.take(n)
		return 0, nil
	case c == '"' || c == '\'':
		return 0, l.quoted(s, byte(c))
	}
	for _, op := range operators {
		if strings.HasPrefix(s, op) {
			l.emit(op, op)
			l.take(len(op))
			switch op {
			case "(", "[", "{":
				return 1, nil
			case ")", "]", "}":
				return -1, nil
			}
			return 0, nil
		}
	}
	return 0, l.fail("unexpected character %q", c)
}

func (l *lexer) quoted(s string, quote byte) error {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case quote:
			text, err := unescape(s[1:i])
			if err != nil {
				return l.fail("%v", err)
			}
			l.emit(tString, text)
			l.take(i + 1)
			return nil
		}
	}
	return l.fail("a string has no end")
}

// escapes are the escapes of Python's strings that stand for one character.
var escapes = map[byte]string{'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}

// unescape reads the escapes of a Python string; unknown ones stay as they are.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if one, ok := escapes[s[i]]; ok {
			b.WriteString(one)
			continue
		}
		digits, base, skip := 0, 16, 1
		switch c := s[i]; {
		case c == 'x':
			digits = 2
		case c == 'u':
			digits = 4
		case c == 'U':
			digits = 8
		case c >= '0' && c <= '7':
			base, skip = 8, 0
			for digits < 3 && i+digits < len(s) && s[i+digits] >= '0' && s[i+digits] <= '7' {
				digits++
			}
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
			continue
		}
		if i+skip+digits > len(s) {
			return "", fmt.Errorf("the escape \\%s is cut short", s[i:])
		}
		v, err := strconv.ParseUint(s[i+skip:i+skip+digits], base, 32)
		if err != nil || v > unicode.MaxRune {
			return "", fmt.Errorf("the escape \\%s stands for no character", s[i:i+skip+digits])
		}
		b.WriteRune(rune(v))
		i += skip + digits - 1
	}
	return b.String(), nil
}
