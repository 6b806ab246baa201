package jinja

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

type filterFunc = func(r *render, v any, a args) (any, error)

// filterFuncs is filled by init: some filters call others by name.
var filterFuncs map[string]filterFunc

func init() {
	filterFuncs = map[string]filterFunc{
		"abs": filterAbs, "attr": filterAttr, "batch": filterBatch, "capitalize": onText(capitalize), "center": filterCenter,
		"count": filterLength, "length": filterLength, "d": filterDefault, "default": filterDefault, "dictsort": filterDictSort,
		"e": onText(escapeHTML), "escape": onText(escapeHTML), "first": filterFirst, "float": filterFloat, "format": filterFormat,
		"groupby": filterGroupBy, "indent": filterIndent, "int": filterInt, "items": filterItems, "join": filterJoin,
		"last": filterLast, "list": filterList, "lower": onText(lower), "map": filterMap, "max": extreme(1), "min": extreme(-1),
		"reject": chooser(false, false), "rejectattr": chooser(false, true), "replace": filterReplace, "reverse": filterReverse,
		"round": filterRound, "safe": onText(func(s string) string { return s }), "select": chooser(true, false),
		"selectattr": chooser(true, true), "slice": filterSlice, "sort": filterSort, "string": onText(func(s string) string { return s }),
		"sum": filterSum, "title": onText(filterTitle), "tojson": filterToJSON, "trim": filterTrim, "truncate": filterTruncate,
		"unique": filterUnique, "upper": onText(upper), "urlencode": onText(urlEncode),
		"wordcount": func(r *render, v any, _ args) (any, error) {
			s, err := r.str(v)
			return int64(len(strings.FieldsFunc(s, isSpace))), err
		},
	}
}

// onText makes a filter of a function of text.
func onText(fn func(string) string) filterFunc {
	return func(r *render, v any, a args) (any, error) {
		if len(a.pos) > 0 || a.kw != nil {
			return nil, errors.New("it takes no arguments")
		}
		s, err := r.str(v)
		if err != nil {
			return nil, err
		}
		return r.text(fn(s))
	}
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

func escapeHTML(s string) string { return htmlEscapes.Replace(s) }

// filterTitle is Jinja's title: words begin behind white space and some
// brackets.
func filterTitle(s string) string {
	var b strings.Builder
	begins := true
	for _, c := range s {
		if begins {
			b.WriteString(upper(string(c)))
		} else {
			b.WriteString(lower(string(c)))
		}
		begins = isSpace(c) || strings.ContainsRune("-({[<", c)
	}
	return b.String()
}

func urlEncode(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c == '/' || c == '-' || c == '_' || c == '.' || c == '~' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func filterAbs(r *render, v any, _ args) (any, error) {
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	i, ok := integer(v)
	if !ok {
		return nil, fmt.Errorf("it takes a number, not %s", what(v))
	}
	if i < 0 {
		return intArith("-", 0, i)
	}
	return i, nil
}

func filterAttr(_ *render, v any, a args) (any, error) {
	p, err := a.texts(1, "name")
	if err != nil {
		return nil, err
	}
	if _, none := v.(Undefined); none {
		return v, nil
	}
	if m := method(v, p[0]); m != nil {
		return m, nil
	}
	if ns, ok := v.(*namespace); ok {
		if x, ok := ns.vars.Get(p[0]); ok {
			return x, nil
		}
	}
	return Undefined{p[0]}, nil
}

func filterLength(_ *render, v any, _ args) (any, error) {
	n, err := length(v)
	return int64(n), err
}

func filterDefault(_ *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	_, none := v.(Undefined)
	if none || truthy(given(p[2], false)) && !truthy(v) {
		return given(p[1], ""), nil
	}
	return v, nil
}

func filterFloat(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "default")
	if err != nil {
		return nil, err
	}
	if f, ok := float(v); ok {
		return f, nil
	}
	if s, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return f, nil
		}
	}
	return given(p[1], 0.0), nil
}

func filterInt(_ *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "default", "base")
	if err != nil {
		return nil, err
	}
	base, ok := integer(given(p[2], int64(10)))
	if !ok || base < 2 || base > 36 {
		return nil, errors.New("base must be 2 to 36")
	}
	f, isFloat := v.(float64)
	if s, ok := v.(string); ok {
		s = strings.TrimFunc(s, isSpace)
		if i, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), int(base), 64); err == nil {
			return i, nil
		}
		var err error
		f, err = strconv.ParseFloat(s, 64)
		isFloat = err == nil
	}
	if isFloat && math.Abs(f) < 1<<62 {
		return int64(f), nil
	}
	if i, ok := integer(v); ok {
		return i, nil
	}
	return given(p[1], int64(0)), nil
}

func filterRound(_ *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "precision", "method")
	if err != nil {
		return nil, err
	}
	f, ok := float(v)
	digits, ok2 := integer(given(p[1], int64(0)))
	if !ok || !ok2 || digits < -300 || digits > 300 {
		return nil, errors.New("it takes a number, and a precision")
	}
	scale := math.Pow(10, float64(digits))
	switch given(p[2], "common") {
	case "ceil":
		return math.Ceil(f*scale) / scale, nil
	case "floor":
		return math.Floor(f*scale) / scale, nil
	}
	if digits >= 0 {
		return strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(digits), 64), 64)
	}
	return math.RoundToEven(f*scale) / scale, nil
}
