package jinja

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// directive is one of the % operator's, with flags, width and precision.
var directive = regexp.MustCompile(`%(?:\(([^)]*)\))?([-+ 0#]*)(\d*)(?:\.(\d*))?(.)`)

// maxWidth bounds the width and precision of a formatted value.
const maxWidth = 1000

// percent is Python's % operator on a text.
func percent(r *render, s string, v any) (any, error) {
	vals := []any{v}
	if l, ok := v.(*List); ok && l.Tuple {
		vals = l.Items
	}
	var b strings.Builder
	done, used := 0, 0
	for _, m := range directive.FindAllStringSubmatchIndex(s, -1) {
		b.WriteString(s[done:m[0]])
		done = m[1]
		part := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return s[m[2*i]:m[2*i+1]]
		}
		if part(5) == "%" {
			b.WriteByte('%')
			continue
		}
		var x any
		if d, ok := v.(*Dict); ok && m[2] >= 0 {
			x, _ = d.Get(part(1))
		} else if used < len(vals) {
			x = vals[used]
			used++
		} else {
			return nil, errors.New("there are fewer values than directives")
		}
		text, err := oneDirective(r, "%"+part(2)+part(3), part(4), m[8] >= 0, part(5), x)
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
		if err := r.made(len(text)); err != nil {
			return nil, err
		}
	}
	if _, ok := v.(*Dict); !ok && used < len(vals) {
		return nil, errors.New("there are more values than directives")
	}
	b.WriteString(s[done:])
	return r.text(b.String())
}

// oneDirective formats a value; head is % with flags and width.
func oneDirective(r *render, head, precision string, has bool, verb string, x any) (string, error) {
	width := strings.TrimLeft(head, "%-+ 0#")
	for _, n := range []string{width, precision} {
		if i, err := strconv.Atoi("0" + n); err != nil || i > maxWidth {
			return "", fmt.Errorf("a width of %s is above %d", n, maxWidth)
		}
	}
	if has {
		head += "." + precision
	}
	switch verb {
	case "s", "r":
		text, err := r.str(x)
		if verb == "r" {
			var b strings.Builder
			err = r.repr(&b, x, 0)
			text = b.String()
		}
		return fmt.Sprintf(head+"s", text), err
	case "d", "i", "x", "X", "o":
		n, ok := integer(x)
		if f, isFloat := x.(float64); isFloat {
			n, ok = int64(f), true
		}
		if !ok {
			return "", fmt.Errorf("%%%s takes a number, not %s", verb, what(x))
		}
		if verb == "i" {
			verb = "d"
		}
		return fmt.Sprintf(head+verb, n), nil
	case "f", "F", "e", "E", "g", "G":
		f, ok := float(x)
		if !ok {
			return "", fmt.Errorf("%%%s takes a number, not %s", verb, what(x))
		}
		if !has {
			head += ".6"
		}
		return fmt.Sprintf(head+verb, f), nil
	}
	return "", fmt.Errorf("the directive %%%s is not supported", verb)
}

// format is str.format, with fields that are numbered, named or in order, and
// have no format of their own.
func format(r *render, s string, a args) (any, error) {
	var b strings.Builder
	next := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c == '{' || c == '}') && i+1 < len(s) && s[i+1] == c {
			b.WriteByte(c)
			i++
			continue
		}
		if c != '{' {
			b.WriteByte(c)
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return nil, errors.New("a { has no }")
		}
		field := s[i+1 : i+end]
		i += end
		v, err := a.field(field, &next)
		if err != nil {
			return nil, err
		}
		text, err := r.str(v)
		if err == nil {
			err = r.made(len(text))
		}
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	return r.text(b.String())
}

func (a args) field(name string, next *int) (any, error) {
	if name == "" {
		name = strconv.Itoa(*next)
		*next++
	}
	if i, err := strconv.Atoi(name); err == nil {
		if i < 0 || i >= len(a.pos) {
			return nil, fmt.Errorf("there is no value %d", i)
		}
		return a.pos[i], nil
	}
	if a.kw != nil {
		if v, ok := a.kw.Get(name); ok {
			return v, nil
		}
	}
	return nil, fmt.Errorf("there is no value for the field {%s}; formats in fields are not supported", name)
}
