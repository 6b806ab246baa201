package jinja

import (
	"errors"
	"strings"
	"unicode/utf8"
)

func filterTrim(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "chars")
	if err != nil {
		return nil, err
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if chars, ok := given(p[1], nil).(string); ok {
		return textMethods["strip"](r, s, args{pos: []any{chars}})
	}
	return r.text(strings.TrimFunc(s, isSpace))
}

func filterReplace(r *render, v any, a args) (any, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	p, err := a.bind("old", "new", "count")
	if err != nil {
		return nil, err
	}
	for i := range p[:2] {
		if p[i], err = r.str(p[i]); err != nil {
			return nil, err
		}
	}
	if n := given(p[2], nil); n == nil {
		p = p[:2]
	}
	return replace(r, s, args{pos: p})
}

func filterCenter(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "width")
	if err != nil {
		return nil, err
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	width, _ := integer(given(p[1], int64(80)))
	pad := width - int64(utf8.RuneCountInString(s))
	if pad <= 0 {
		return s, nil
	}
	if pad > int64(r.bytes) {
		return nil, r.made(r.bytes + 1)
	}
	left := pad/2 + (pad & width & 1)
	return r.text(strings.Repeat(" ", int(left)) + s + strings.Repeat(" ", int(pad-left)))
}

func filterIndent(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("s", "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	by, ok := given(p[1], int64(4)).(string)
	if n, isInt := integer(given(p[1], int64(4))); isInt {
		if n > 1000 {
			return nil, errors.New("the width is above 1000")
		}
		by, ok = strings.Repeat(" ", int(max(n, 0))), true
	}
	if !ok {
		return nil, errors.New("width must be a number or text")
	}
	lines := strings.Split(s+"\n", "\n")
	lines = lines[:len(lines)-1]
	if err := r.made(len(s) + len(lines)*len(by)); err != nil {
		return nil, err
	}
	for i := range lines {
		if i == 0 && !truthy(given(p[2], false)) || lines[i] == "" && !truthy(given(p[3], false)) && i > 0 {
			continue
		}
		lines[i] = by + lines[i]
	}
	return strings.Join(lines, "\n"), nil
}

func filterTruncate(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("s", "length", "killwords", "end", "leeway")
	if err != nil {
		return nil, err
	}
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	n, _ := integer(given(p[1], int64(255)))
	end, _ := given(p[3], "...").(string)
	leeway, _ := integer(given(p[4], int64(5)))
	runes := []rune(s)
	room := int(n) - utf8.RuneCountInString(end)
	switch {
	case room < 0:
		return nil, errors.New("the length is less than that of the end")
	case int64(len(runes)) <= n+leeway:
		return s, nil
	}
	s = string(runes[:room])
	if !truthy(given(p[2], false)) {
		if at := strings.LastIndexByte(s, ' '); at >= 0 {
			s = s[:at]
		}
	}
	return r.text(s + end)
}

func filterFormat(r *render, v any, a args) (any, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if a.kw != nil {
		return nil, errors.New("named values are not supported")
	}
	return percent(r, s, &List{a.pos, true})
}
