package jinja

import (
	"errors"
	"fmt"
)

// loop is the variable of that name in a for statement.
type loop struct {
	items   []any
	at      int
	changed []any // what changed() saw last; nil before
}

func (l *loop) attribute(name string) (any, bool) {
	n := len(l.items)
	switch name {
	case "index":
		return int64(l.at + 1), true
	case "index0":
		return int64(l.at), true
	case "revindex":
		return int64(n - l.at), true
	case "revindex0":
		return int64(n - l.at - 1), true
	case "first":
		return l.at == 0, true
	case "last":
		return l.at == n-1, true
	case "length":
		return int64(n), true
	case "depth":
		return int64(1), true
	case "depth0":
		return int64(0), true
	case "previtem":
		if l.at == 0 {
			return Undefined{"there is no previous item"}, true
		}
		return l.items[l.at-1], true
	case "nextitem":
		if l.at == n-1 {
			return Undefined{"there is no next item"}, true
		}
		return l.items[l.at+1], true
	case "cycle":
		return &function{name, func(_ *render, a args) (any, error) {
			if len(a.pos) == 0 {
				return nil, errors.New("cycle needs values")
			}
			return a.pos[l.at%len(a.pos)], nil
		}}, true
	case "changed":
		return &function{name, func(r *render, a args) (any, error) {
			same, err := equal(r, &List{Items: a.pos}, &List{Items: l.changed}, 0)
			first := l.changed == nil
			l.changed = append([]any{}, a.pos...)
			return first || !same, err
		}}, true
	}
	return nil, false
}

// attribute is v.name: an attribute or method, else the element of that key.
func attribute(v any, name string) (any, error) {
	switch v := v.(type) {
	case Undefined:
		return nil, fmt.Errorf("%s has no attribute %q", what(v), name)
	case *loop:
		if x, ok := v.attribute(name); ok {
			return x, nil
		}
	case *namespace:
		if x, ok := v.vars.Get(name); ok {
			return x, nil
		}
	case *Dict:
		if m := method(v, name); m != nil {
			return m, nil
		}
		if x, ok := v.Get(name); ok {
			return x, nil
		}
	default:
		if m := method(v, name); m != nil {
			return m, nil
		}
	}
	return Undefined{name}, nil
}

// item is v[key]: the element, else the attribute of that name.
func item(r *render, v, key any) (any, error) {
	name, isName := key.(string)
	switch v := v.(type) {
	case Undefined:
		return nil, fmt.Errorf("%s has no element", what(v))
	case *Dict:
		if x, ok := v.Get(key); ok {
			return x, nil
		}
	case *List, string:
		if i, ok := integer(key); ok {
			return element(r, v, i)
		}
	}
	if isName {
		return attribute(v, name)
	}
	return Undefined{fmt.Sprintf("element %v", key)}, nil
}

// element indexes a list or text; beyond its ends is undefined.
func element(r *render, v any, i int64) (any, error) {
	n, err := length(v)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return Undefined{fmt.Sprintf("element %d", i)}, nil
	}
	if l, ok := v.(*List); ok {
		return l.Items[i], nil
	}
	s := v.(string)
	if err := r.step(len(s) / 16); err != nil {
		return nil, err
	}
	for _, c := range s {
		if i == 0 {
			return string(c), nil
		}
		i--
	}
	return nil, nil
}

// slice is v[start:stop:step].
func slice(r *render, v any, b [3]*int64) (any, error) {
	var items []any
	text, isText := v.(string)
	switch v := v.(type) {
	case string:
		// Most slices of texts are of whole ones: count first, cut by runes.
		var err error
		if items, err = iterate(r, v); err != nil {
			return nil, err
		}
	case *List:
		items = v.Items
	default:
		return nil, fmt.Errorf("%s has no slices", what(v))
	}
	step := int64(1)
	if b[2] != nil {
		step = *b[2]
	}
	if step == 0 {
		return nil, errors.New("the step of a slice is 0")
	}
	n := int64(len(items))
	start, stop := bounds(b, step, n)
	var out []any
	for i := start; (step > 0 && i < stop || step < 0 && i > stop) && len(out) <= len(items); i += step {
		out = append(out, items[i])
	}
	if !isText {
		return &List{out, v.(*List).Tuple}, r.made(elementBytes * len(out))
	}
	cut := make([]byte, 0, len(text))
	for _, c := range out {
		cut = append(cut, c.(string)...)
	}
	return r.text(string(cut))
}

// bounds brings the start and stop of a slice into range.
func bounds(b [3]*int64, step, n int64) (start, stop int64) {
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	clip := func(p *int64, none int64) int64 {
		if p == nil {
			return none
		}
		i := *p
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	if step > 0 {
		return clip(b[0], low), clip(b[1], high)
	}
	return clip(b[0], high), clip(b[1], low)
}
