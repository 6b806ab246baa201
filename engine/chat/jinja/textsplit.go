package jinja

import (
	"errors"
	"strings"
	"unicode/utf8"
)

func splitter(right bool) textMethod {
	return func(r *render, s string, a args) (any, error) {
		p, err := args{append([]any{nil}, a.pos...), a.kw}.bind("self", "sep", "maxsplit")
		if err != nil {
			return nil, err
		}
		most, ok := integer(given(p[2], int64(-1)))
		if !ok {
			return nil, errors.New("maxsplit must be a number")
		}
		sep, isText := given(p[1], nil).(string)
		if isText && sep == "" {
			return nil, errors.New("the separator is empty")
		}
		n := int(min(most, int64(len(s))))
		var parts []string
		switch {
		case !isText && most < 0:
			parts = strings.FieldsFunc(s, isSpace)
		case !isText:
			parts = fields(s, n, right)
		case most < 0:
			parts = strings.Split(s, sep)
		case right:
			parts = splitRight(s, sep, n)
		default:
			parts = strings.SplitN(s, sep, n+1)
		}
		return textList(r, parts)
	}
}

func textList(r *render, parts []string) (any, error) {
	out := make([]any, len(parts))
	size := elementBytes * len(parts)
	for i, part := range parts {
		out[i] = part
		size += len(part)
	}
	return &List{Items: out}, r.made(size)
}

// fields splits at white space at most n times, from one side.
func fields(s string, n int, right bool) (out []string) {
	for s = strings.TrimFunc(s, isSpace); s != ""; n-- {
		at := strings.IndexFunc(s, isSpace)
		if right {
			at = strings.LastIndexFunc(s, isSpace)
		}
		if n == 0 || at < 0 {
			out = append(out, s)
			break
		}
		if right {
			_, w := utf8.DecodeRuneInString(s[at:])
			out, s = append(out, s[at+w:]), trimRight(s[:at])
		} else {
			out, s = append(out, s[:at]), strings.TrimLeftFunc(s[at:], isSpace)
		}
	}
	if right {
		reverse(out)
	}
	return out
}

func splitRight(s, sep string, n int) (out []string) {
	for ; n != 0; n-- {
		at := strings.LastIndex(s, sep)
		if at < 0 {
			break
		}
		out, s = append(out, s[at+len(sep):]), s[:at]
	}
	out = append(out, s)
	reverse(out)
	return out
}

func reverse[T any](s []T) {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
}

func splitLines(r *render, s string, a args) (any, error) {
	keep := len(a.pos) > 0 && truthy(a.pos[0])
	if a.kw != nil {
		v, _ := a.kw.Get("keepends")
		keep = truthy(v)
	}
	ends := func(c rune) bool {
		return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
	}
	var parts []string
	for s != "" {
		at := strings.IndexFunc(s, ends)
		if at < 0 {
			parts = append(parts, s)
			break
		}
		_, w := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			w = 2
		}
		if keep {
			parts = append(parts, s[:at+w])
		} else {
			parts = append(parts, s[:at])
		}
		s = s[at+w:]
	}
	return textList(r, parts)
}
