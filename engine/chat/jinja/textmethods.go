package jinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

type textMethod = func(r *render, s string, a args) (any, error)

// plain makes a method without arguments.
func plain(fn func(string) any) textMethod {
	return func(r *render, s string, a args) (any, error) {
		if len(a.pos) > 0 || a.kw != nil {
			return nil, errors.New("it takes no arguments")
		}
		return fn(s), r.made(len(s))
	}
}

var textMethods = map[string]textMethod{
	"upper":      plain(func(s string) any { return upper(s) }),
	"lower":      plain(func(s string) any { return lower(s) }),
	"casefold":   plain(func(s string) any { return lower(s) }),
	"capitalize": plain(func(s string) any { return capitalize(s) }),
	"title":      plain(func(s string) any { return title(s) }),
	"swapcase":   plain(func(s string) any { return swapCase(s) }),
	"isdigit":    plain(func(s string) any { return all(s, unicode.IsDigit) }),
	"isdecimal":  plain(func(s string) any { return all(s, unicode.IsDigit) }),
	"isnumeric":  plain(func(s string) any { return all(s, unicode.IsNumber) }),
	"isalpha":    plain(func(s string) any { return all(s, unicode.IsLetter) }),
	"isalnum": plain(func(s string) any {
		return all(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
	}),
	"isspace": plain(func(s string) any { return all(s, isSpace) }),
	"isupper": plain(func(s string) any { return cased(s, unicode.IsLower) }),
	"islower": plain(func(s string) any { return cased(s, unicode.IsUpper) }),
	"strip":   stripper(strings.TrimFunc),
	"lstrip":  stripper(strings.TrimLeftFunc),
	"rstrip":  stripper(strings.TrimRightFunc),
	"split":   splitter(false), "rsplit": splitter(true),
	"splitlines": splitLines,
	"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
	"removeprefix": cut(strings.TrimPrefix), "removesuffix": cut(strings.TrimSuffix),
	"replace": replace,
	"find":    finder(strings.Index, false), "rfind": finder(strings.LastIndex, false),
	"index": finder(strings.Index, true), "rindex": finder(strings.LastIndex, true),
	"count": func(_ *render, s string, a args) (any, error) {
		p, err := a.texts(1, "text")
		if err != nil {
			return nil, err
		}
		return int64(strings.Count(s, p[0])), nil
	},
	"join": func(r *render, s string, a args) (any, error) {
		p, err := a.bind("list")
		if err != nil {
			return nil, err
		}
		list, err := iterate(r, p[0])
		if err != nil {
			return nil, err
		}
		return joined(r, list, s, true)
	},
	"partition":  partition(strings.Index, false),
	"rpartition": partition(strings.LastIndex, true),
	"format":     format,
	"zfill": func(r *render, s string, a args) (any, error) {
		p, err := a.bind("width")
		if err != nil {
			return nil, err
		}
		n, _ := integer(p[0])
		sign := ""
		if s != "" && (s[0] == '-' || s[0] == '+') {
			sign, s = s[:1], s[1:]
		}
		zeros, err := repeat(r, "0", n-int64(utf8.RuneCountInString(s)+len(sign)))
		if err != nil {
			return nil, err
		}
		return sign + zeros.(string) + s, nil
	},
}

func stripper(trim func(string, func(rune) bool) string) textMethod {
	return func(r *render, s string, a args) (any, error) {
		if len(a.pos) == 1 && a.pos[0] == nil {
			a.pos = nil
		}
		p, err := a.texts(0, "characters")
		if err != nil {
			return nil, err
		}
		if len(a.pos) == 0 {
			return r.text(trim(s, isSpace))
		}
		if err := r.step(len(s) * len(p[0]) / 64); err != nil {
			return nil, err
		}
		return r.text(trim(s, func(c rune) bool { return strings.ContainsRune(p[0], c) }))
	}
}

// affix is startswith or endswith, of a text or any of a tuple.
func affix(has func(s, part string) bool) textMethod {
	return func(r *render, s string, a args) (any, error) {
		p, err := a.bind("text")
		if err != nil {
			return nil, err
		}
		tries := []any{p[0]}
		if l, ok := p[0].(*List); ok && l.Tuple {
			tries = l.Items
		}
		for _, x := range tries {
			part, ok := x.(string)
			if !ok {
				return nil, fmt.Errorf("it takes text or a tuple of texts, not %s", what(x))
			}
			if has(s, part) {
				return true, nil
			}
		}
		return false, nil
	}
}

func cut(fn func(s, part string) string) textMethod {
	return func(r *render, s string, a args) (any, error) {
		p, err := a.texts(1, "text")
		if err != nil {
			return nil, err
		}
		return r.text(fn(s, p[0]))
	}
}

func replace(r *render, s string, a args) (any, error) {
	p, err := a.bind("old", "new", "count")
	if err != nil {
		return nil, err
	}
	from, ok1 := p[0].(string)
	to, ok2 := p[1].(string)
	n, ok3 := integer(given(p[2], int64(-1)))
	if !ok1 || !ok2 || !ok3 {
		return nil, errors.New("it takes two texts, and a number at most")
	}
	// What the result may be as long as is paid before it is made.
	found := int64(strings.Count(s, from))
	if n >= 0 {
		found = min(found, n)
	}
	if grow := len(to) - len(from); grow > 0 && found > int64(r.bytes/grow) {
		return nil, r.made(r.bytes + 1)
	} else if err := r.made(len(s) + int(found)*max(grow, 0)); err != nil {
		return nil, err
	}
	return strings.Replace(s, from, to, int(max(n, -1))), nil
}

func finder(find func(s, part string) int, must bool) textMethod {
	return func(_ *render, s string, a args) (any, error) {
		p, err := a.texts(1, "text")
		if err != nil {
			return nil, err
		}
		at := find(s, p[0])
		if at < 0 && must {
			return nil, errors.New("the text is not found")
		}
		return int64(utf8.RuneCountInString(s[:max(at, 0)]) + min(at, 0)), nil
	}
}

func partition(find func(s, part string) int, right bool) textMethod {
	return func(r *render, s string, a args) (any, error) {
		p, err := a.texts(1, "text")
		if err != nil {
			return nil, err
		}
		parts := []any{s, "", ""}
		if at := find(s, p[0]); at >= 0 {
			parts = []any{s[:at], p[0], s[at+len(p[0]):]}
		} else if right {
			parts = []any{"", "", s}
		}
		return &List{parts, true}, r.made(len(s))
	}
}

// joined joins the texts of values.
func joined(r *render, list []any, sep string, strict bool) (any, error) {
	var b strings.Builder
	for i, x := range list {
		if i > 0 {
			b.WriteString(sep)
		}
		if _, ok := x.(string); !ok && strict {
			return nil, fmt.Errorf("it joins texts, not %s", what(x))
		}
		s, err := r.str(x)
		if err == nil {
			err = r.made(len(s) + len(sep))
		}
		if err != nil {
			return nil, err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
