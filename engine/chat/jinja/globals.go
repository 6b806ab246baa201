package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// globals are the functions that every template has.
var globals map[string]any

func init() {
	globals = map[string]any{}
	for name, fn := range map[string]func(r *render, a args) (any, error){
		"range": rangeOf, "namespace": newNamespace, "dict": newDict, "raise_exception": raise, "strftime_now": strftimeNow,
		"cycler": newCycler, "joiner": newJoiner,
	} {
		globals[name] = &function{name, func(r *render, a args) (any, error) {
			v, err := fn(r, a)
			var raised *Raised
			if err != nil && !errors.As(err, &raised) {
				err = fmt.Errorf("%s: %w", name, err)
			}
			return v, err
		}}
	}
}

// maxRange is the sandbox's bound on a range.
const maxRange = 100_000

func rangeOf(r *render, a args) (any, error) {
	var n [3]int64
	if len(a.pos) < 1 || len(a.pos) > 3 || a.kw != nil {
		return nil, errors.New("it takes one to three numbers")
	}
	for i, v := range a.pos {
		x, ok := integer(v)
		if !ok {
			return nil, fmt.Errorf("it takes numbers, not %s", what(v))
		}
		n[i] = x
	}
	start, stop, step := n[0], n[1], n[2]
	switch len(a.pos) {
	case 1:
		start, stop, step = 0, n[0], 1
	case 2:
		step = 1
	}
	if step == 0 {
		return nil, errors.New("the step is 0")
	}
	var out []any
	for i := start; step > 0 && i < stop || step < 0 && i > stop; {
		if out = append(out, i); len(out) > maxRange {
			return nil, fmt.Errorf("%w: a range of more than %d numbers", ErrLimit, maxRange)
		}
		next, err := intArith("+", i, step)
		if err != nil {
			break
		}
		i = next.(int64)
	}
	return r.list(out)
}

// newDict is dict(): pairs, or a dict, and named values.
func newDict(r *render, a args) (any, error) {
	d := NewDict()
	if len(a.pos) > 1 {
		return nil, errors.New("it takes one value and named ones")
	}
	if len(a.pos) == 1 {
		if from, ok := a.pos[0].(*Dict); ok {
			for i, k := range from.keys {
				d.Set(k, from.vals[i])
			}
		} else {
			pairs, err := iterate(r, a.pos[0])
			if err != nil {
				return nil, err
			}
			for _, p := range pairs {
				l, ok := p.(*List)
				if !ok || len(l.Items) != 2 || l.Items[0] != nil && hashable(l.Items[0]) == nil {
					return nil, errors.New("it takes pairs of a key and a value")
				}
				d.Set(l.Items[0], l.Items[1])
			}
		}
	}
	if a.kw != nil {
		for i, k := range a.kw.keys {
			d.Set(k, a.kw.vals[i])
		}
	}
	return d, r.made(4 * elementBytes * d.Len())
}

func newNamespace(r *render, a args) (any, error) {
	d, err := newDict(r, a)
	if err != nil {
		return nil, err
	}
	return &namespace{d.(*Dict)}, nil
}

func raise(r *render, a args) (any, error) {
	p, err := a.bind("message")
	if err != nil {
		return nil, err
	}
	msg, err := r.str(p[0])
	if err != nil {
		return nil, err
	}
	return nil, &Raised{msg}
}

func newCycler(_ *render, a args) (any, error) {
	if len(a.pos) == 0 {
		return nil, errors.New("it needs values")
	}
	at := 0
	ns := &namespace{NewDict()}
	ns.vars.Set("current", a.pos[0])
	move := func(to int) {
		at = to % len(a.pos)
		ns.vars.Set("current", a.pos[at])
	}
	ns.vars.Set("next", &function{"next", func(*render, args) (any, error) {
		v := a.pos[at]
		move(at + 1)
		return v, nil
	}})
	ns.vars.Set("reset", &function{"reset", func(*render, args) (any, error) {
		move(0)
		return nil, nil
	}})
	return ns, nil
}

func newJoiner(_ *render, a args) (any, error) {
	sep := any(", ")
	if len(a.pos) > 0 {
		sep = a.pos[0]
	}
	used := false
	return &function{"joiner", func(*render, args) (any, error) {
		if !used {
			used = true
			return "", nil
		}
		return sep, nil
	}}, nil
}

func strftimeNow(r *render, a args) (any, error) {
	p, err := a.texts(1, "format")
	if err != nil {
		return nil, err
	}
	s, err := strftime(r.now(), p[0])
	if err != nil {
		return nil, err
	}
	return r.text(s)
}

// timeParts are the directives of strftime that Go's layouts have.
var timeParts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'm': "01",
	'p': "PM", 'S': "05", 'y': "06", 'Y': "2006", 'j': "002", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04",
	'f': "000000", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

// strftime formats a time as C does in its own locale; naive times have no
// zone.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := format[i] == '-' && i+1 < len(format)
		if bare {
			i++
		}
		c := format[i]
		part, ok := timeParts[c]
		switch {
		case c == '%':
			b.WriteByte('%')
		case c == 'Z' || c == 'z':
		case c == 'f':
			fmt.Fprintf(&b, "%06d", t.Nanosecond()/1000)
		case c == 'w':
			fmt.Fprintf(&b, "%d", t.Weekday())
		case !ok:
			return "", fmt.Errorf("the directive %%%c is not supported", c)
		case bare:
			b.WriteString(strings.TrimLeft(t.Format(part), "0 "))
			if s := t.Format(part); strings.Trim(s, "0 ") == "" {
				b.WriteByte('0')
			}
		default:
			b.WriteString(t.Format(part))
		}
	}
	return b.String(), nil
}
