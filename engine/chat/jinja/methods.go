package jinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// method gives a bound method of a text, dict or list; nil where there is none.
func method(v any, name string) *function {
	bind := func(fn func(r *render, a args) (any, error)) *function {
		return &function{name, func(r *render, a args) (any, error) {
			v, err := fn(r, a)
			if err != nil {
				err = fmt.Errorf("method %s: %w", name, err)
			}
			return v, err
		}}
	}
	switch v := v.(type) {
	case string:
		if fn, ok := textMethods[name]; ok {
			return bind(func(r *render, a args) (any, error) {
				if err := r.step(len(v) / 64); err != nil {
					return nil, err
				}
				return fn(r, v, a)
			})
		}
	case *Dict:
		if fn, ok := dictMethods[name]; ok {
			return bind(func(r *render, a args) (any, error) { return fn(r, v, a) })
		}
	case *List:
		if fn, ok := listMethods[name]; ok {
			return bind(func(r *render, a args) (any, error) { return fn(r, v, a) })
		}
	}
	return nil
}

var errChanges = errors.New("templates may not change lists and dicts")

func changes[T any](*render, T, args) (any, error) { return nil, errChanges }

var dictMethods = map[string]func(r *render, d *Dict, a args) (any, error){
	"keys":   func(r *render, d *Dict, _ args) (any, error) { return r.list(d.keys) },
	"values": func(r *render, d *Dict, _ args) (any, error) { return r.list(d.vals) },
	"items":  func(r *render, d *Dict, _ args) (any, error) { return items(r, d) },
	"get": func(_ *render, d *Dict, a args) (any, error) {
		p, err := a.bind("key", "default")
		if err != nil {
			return nil, err
		}
		if v, ok := d.Get(p[0]); ok {
			return v, nil
		}
		if _, none := p[1].(missing); none {
			return nil, nil
		}
		return p[1], nil
	},
	"copy": func(r *render, d *Dict, _ args) (any, error) {
		out := NewDict()
		for i, k := range d.keys {
			out.Set(k, d.vals[i])
		}
		return out, r.made(4 * elementBytes * d.Len())
	},
	"pop": changes[*Dict], "update": changes[*Dict], "setdefault": changes[*Dict], "clear": changes[*Dict], "popitem": changes[*Dict],
}

// items gives the pairs of a dict.
func items(r *render, d *Dict) (any, error) {
	out := make([]any, d.Len())
	for i, k := range d.keys {
		out[i] = &List{[]any{k, d.vals[i]}, true}
	}
	if err := r.made(3 * elementBytes * len(out)); err != nil {
		return nil, err
	}
	return &List{Items: out}, nil
}

var listMethods = map[string]func(r *render, l *List, a args) (any, error){
	"index": func(r *render, l *List, a args) (any, error) {
		p, err := a.bind("value")
		if err != nil {
			return nil, err
		}
		for i, x := range l.Items {
			if same, err := equal(r, x, p[0], 0); err != nil || same {
				return int64(i), err
			}
		}
		return nil, errors.New("the value is not in the list")
	},
	"count": func(r *render, l *List, a args) (any, error) {
		p, err := a.bind("value")
		n := int64(0)
		for _, x := range l.Items {
			same, e := equal(r, x, p[0], 0)
			if err = errors.Join(err, e); err != nil {
				return nil, err
			}
			if same {
				n++
			}
		}
		return n, err
	},
	"append": changes[*List], "extend": changes[*List], "insert": changes[*List], "pop": changes[*List], "remove": changes[*List],
	"reverse": changes[*List], "sort": changes[*List], "clear": changes[*List],
}

// missing is the value of a parameter that was not given.
type missing struct{}

// bind puts arguments to names. Parameters that are not given are missing{};
// the first is required.
func (a args) bind(names ...string) ([]any, error) {
	out := make([]any, len(names))
	for i := range out {
		out[i] = missing{}
	}
	if len(a.pos) > len(names) {
		return out, fmt.Errorf("it takes %d arguments at most, not %d", len(names), len(a.pos))
	}
	copy(out, a.pos)
	if a.kw != nil {
		for i, k := range a.kw.keys {
			at := -1
			for j, name := range names {
				if name == k {
					at = j
				}
			}
			if at < 0 {
				return out, fmt.Errorf("it has no parameter %v", k)
			}
			out[at] = a.kw.vals[i]
		}
	}
	if len(names) > 0 {
		if _, none := out[0].(missing); none {
			return out, fmt.Errorf("%s is not given", names[0])
		}
	}
	return out, nil
}

// given replaces a parameter that was not given.
func given(v, instead any) any {
	if _, none := v.(missing); none {
		return instead
	}
	return v
}

// texts gives parameters that must be text.
func (a args) texts(least int, names ...string) ([]string, error) {
	if len(a.pos) > len(names) || a.kw != nil || len(a.pos) < least {
		return nil, fmt.Errorf("it takes %d to %d positional arguments", least, len(names))
	}
	out := make([]string, len(names))
	for i, v := range a.pos {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%s must be text, not %s", names[i], what(v))
		}
		out[i] = s
	}
	return out, nil
}

// all reports whether s is not empty and of characters with a property.
func all(s string, is func(rune) bool) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
}

// cased reports whether s has cased characters, none of them of the kind that
// is named.
func cased(s string, not func(rune) bool) bool {
	return strings.IndexFunc(s, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) }) >= 0 && strings.IndexFunc(s, not) < 0
}

func capitalize(s string) string {
	r, w := utf8.DecodeRuneInString(s)
	if w == 0 {
		return s
	}
	return string(unicode.ToTitle(r)) + lower(s[w:])
}

// title makes the first letter of each word large, the others small.
func title(s string) string {
	var b strings.Builder
	inWord := false
	for _, r := range s {
		if inWord {
			b.WriteRune(unicode.ToLower(r))
		} else {
			b.WriteRune(unicode.ToTitle(r))
		}
		inWord = unicode.IsLetter(r)
	}
	return b.String()
}

// upper is Python's upper: the sharp s becomes two letters.
func upper(s string) string {
	if strings.Contains(s, "ß") {
		s = strings.ReplaceAll(s, "ß", "SS")
	}
	return strings.ToUpper(s)
}

// lower is Python's lower: the dotted capital I becomes two characters.
func lower(s string) string {
	if strings.Contains(s, "İ") {
		s = strings.ReplaceAll(s, "İ", "i\u0307")
	}
	return finalSigma(strings.ToLower(s), s)
}

// finalSigma puts a final sigma where a capital one ended a word.
func finalSigma(low, from string) string {
	if !strings.Contains(from, "Σ") {
		return low
	}
	before, out := false, []rune(low)
	src := []rune(from)
	for i, r := range src {
		if r == 'Σ' && before && (i+1 == len(src) || !unicode.IsLetter(src[i+1])) && len(src) == len(out) {
			out[i] = 'ς'
		}
		before = unicode.IsLetter(r)
	}
	return string(out)
}

func swapCase(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsUpper(r) {
			b.WriteString(lower(string(r)))
		} else {
			b.WriteString(upper(string(r)))
		}
	}
	return b.String()
}
