package jinja

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// iterate gives the elements of a value.
func iterate(r *render, v any) ([]any, error) {
	switch v := v.(type) {
	case *List:
		return v.Items, r.step(len(v.Items) / 16)
	case *Dict:
		return v.keys, nil
	case string:
		n := utf8.RuneCountInString(v)
		if err := r.made(elementBytes * n); err != nil {
			return nil, err
		}
		out := make([]any, 0, n)
		for _, c := range v {
			out = append(out, string(c))
		}
		return out, r.step(n)
	case Undefined:
		return nil, nil
	}
	return nil, fmt.Errorf("%s has no elements", what(v))
}

// integer gives an int or bool as a number.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// float gives any number as a float.
func float(v any) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	i, ok := integer(v)
	return float64(i), ok
}

// numbers gives two numbers as floats; ints says that both are integers.
func numbers(a, b any) (x, y float64, ok bool) {
	x, okX := float(a)
	y, okY := float(b)
	return x, y, okX && okY
}

// equal is Python's ==.
func equal(r *render, a, b any, depth int) (bool, error) {
	if depth > maxData {
		return false, fmt.Errorf("a value is nested deeper than %d", maxData)
	}
	if err := r.step(1); err != nil {
		return false, err
	}
	if i, ok := integer(a); ok {
		if j, ok := integer(b); ok {
			return i == j, nil
		}
	}
	if x, y, ok := numbers(a, b); ok {
		return x == y, nil
	}
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && a == b, r.step(len(a) / 64)
	case Undefined:
		_, ok := b.(Undefined)
		return ok, nil
	case *List:
		b, ok := b.(*List)
		if !ok || a.Tuple != b.Tuple || len(a.Items) != len(b.Items) {
			return false, nil
		}
		for i, x := range a.Items {
			if ok, err := equal(r, x, b.Items[i], depth+1); err != nil || !ok {
				return false, err
			}
		}
		return true, nil
	case *Dict:
		b, ok := b.(*Dict)
		if !ok || a.Len() != b.Len() {
			return false, nil
		}
		for i, k := range a.keys {
			y, ok := b.Get(k)
			if !ok {
				return false, nil
			}
			if ok, err := equal(r, a.vals[i], y, depth+1); err != nil || !ok {
				return false, err
			}
		}
		return true, nil
	}
	return a == b, nil
}

// compare is a comparison or a test of membership.
func compare(r *render, op string, a, b any) (bool, error) {
	switch op {
	case "==":
		return equal(r, a, b, 0)
	case "!=":
		ok, err := equal(r, a, b, 0)
		return !ok, err
	case "in":
		return contains(r, b, a)
	case "not in":
		ok, err := contains(r, b, a)
		return !ok, err
	}
	c, err := order(r, a, b)
	if err != nil {
		return false, fmt.Errorf("%w by %s", err, op)
	}
	switch op {
	case "<":
		return c < 0, nil
	case ">":
		return c == 1, nil
	case "<=":
		return c <= 0, nil
	}
	return c == 0 || c == 1, nil
}

// order compares numbers, texts or lists: -1, 0 or 1, and 2 where a NaN is
// among them.
func order(r *render, a, b any) (int, error) {
	if i, ok := integer(a); ok {
		if j, ok := integer(b); ok {
			return sign(i < j, i > j), nil
		}
	}
	if x, y, ok := numbers(a, b); ok {
		if math.IsNaN(x) || math.IsNaN(y) {
			return 2, nil
		}
		return sign(x < y, x > y), nil
	}
	if s, ok := a.(string); ok {
		if t, ok := b.(string); ok {
			return strings.Compare(s, t), r.step(min(len(s), len(t)) / 64)
		}
	}
	if l, ok := a.(*List); ok {
		if m, ok := b.(*List); ok && l.Tuple == m.Tuple {
			for i := range min(len(l.Items), len(m.Items)) {
				if same, err := equal(r, l.Items[i], m.Items[i], 0); err != nil {
					return 0, err
				} else if !same {
					if err := r.step(8); err != nil {
						return 0, err
					}
					return order(r, l.Items[i], m.Items[i])
				}
			}
			return sign(len(l.Items) < len(m.Items), len(l.Items) > len(m.Items)), nil
		}
	}
	return 0, fmt.Errorf("%s and %s can't be compared", what(a), what(b))
}

func sign(less, more bool) int {
	switch {
	case less:
		return -1
	case more:
		return 1
	}
	return 0
}

// contains is Python's in.
func contains(r *render, whole, part any) (bool, error) {
	switch whole := whole.(type) {
	case string:
		s, ok := part.(string)
		if !ok {
			return false, fmt.Errorf("%s can't be in a text", what(part))
		}
		return strings.Contains(whole, s), r.step(len(whole) / 64)
	case *Dict:
		_, ok := whole.Get(part)
		return ok, nil
	}
	items, err := iterate(r, whole)
	if err != nil {
		return false, err
	}
	for _, x := range items {
		if same, err := equal(r, x, part, 0); err != nil || same {
			return same, err
		}
	}
	return false, nil
}

// length counts code points or elements.
func length(v any) (int, error) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), nil
	case *List:
		return len(v.Items), nil
	case *Dict:
		return v.Len(), nil
	case Undefined:
		return 0, nil
	}
	return 0, fmt.Errorf("%s has no length", what(v))
}
