package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

func filterItems(r *render, v any, _ args) (any, error) {
	switch v := v.(type) {
	case *Dict:
		return items(r, v)
	case Undefined:
		return &List{}, nil
	}
	return nil, errors.New("it can only get pairs from a dict")
}

func filterFirst(r *render, v any, _ args) (any, error) {
	list, err := iterate(r, v)
	if err != nil || len(list) == 0 {
		return Undefined{"the first of no elements"}, err
	}
	return list[0], nil
}

func filterLast(r *render, v any, _ args) (any, error) {
	list, err := iterate(r, v)
	if err != nil || len(list) == 0 {
		return Undefined{"the last of no elements"}, err
	}
	return list[len(list)-1], nil
}

func filterList(r *render, v any, _ args) (any, error) {
	list, err := iterate(r, v)
	if err != nil {
		return nil, err
	}
	return r.list(list)
}

func filterReverse(r *render, v any, _ args) (any, error) {
	list, err := iterate(r, v)
	if err != nil {
		return nil, err
	}
	list = slices.Clone(list)
	slices.Reverse(list)
	if _, ok := v.(string); ok {
		return joined(r, list, "", true)
	}
	return r.list(list)
}

func filterJoin(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "d", "attribute")
	if err != nil {
		return nil, err
	}
	list, err := iterate(r, v)
	if err != nil {
		return nil, err
	}
	sep, err := r.str(given(p[1], ""))
	if err != nil {
		return nil, err
	}
	if name := given(p[2], nil); name != nil {
		list = slices.Clone(list)
		for i, x := range list {
			if list[i], err = path(r, x, name); err != nil {
				return nil, err
			}
		}
	}
	return joined(r, list, sep, false)
}

// path is the attribute of an element that filters name, such as "a.b" or 0.
func path(r *render, v, name any) (any, error) {
	if s, ok := name.(string); ok {
		for part := range strings.SplitSeq(s, ".") {
			var key any = part
			if all(part, func(c rune) bool { return c >= '0' && c <= '9' }) && len(part) < 10 {
				n := int64(0)
				for _, c := range part {
					n = 10*n + int64(c-'0')
				}
				key = n
			}
			var err error
			if v, err = item(r, v, key); err != nil {
				return nil, err
			}
		}
		return v, nil
	}
	return item(r, v, name)
}

// elements is iterate for the filters that take whatever is false as empty.
func elements(r *render, v any) ([]any, error) {
	if !truthy(v) {
		return nil, nil
	}
	return iterate(r, v)
}

func filterMap(r *render, v any, a args) (any, error) {
	list, err := elements(r, v)
	if err != nil {
		return nil, err
	}
	out := make([]any, 0, len(list))
	if len(a.pos) > 0 {
		name, _ := a.pos[0].(string)
		fn, ok := filterFuncs[name]
		if !ok {
			return nil, fmt.Errorf("there is no filter %q", name)
		}
		for _, x := range list {
			y, err := fn(r, x, args{a.pos[1:], a.kw})
			if err != nil {
				return nil, fmt.Errorf("filter %s: %w", name, err)
			}
			out = append(out, y)
		}
		return r.list(out)
	}
	if a.kw == nil {
		return nil, errors.New("it takes the name of a filter, or an attribute")
	}
	name, ok := a.kw.Get("attribute")
	if !ok {
		return nil, errors.New("it takes the name of a filter, or an attribute")
	}
	instead, hasDefault := a.kw.Get("default")
	for _, x := range list {
		y, err := path(r, x, name)
		if err != nil {
			return nil, err
		}
		if _, none := y.(Undefined); none && hasDefault {
			y = instead
		}
		out = append(out, y)
	}
	return r.list(out)
}

// chooser makes select and reject, and their forms for an attribute.
func chooser(keep, byAttr bool) filterFunc {
	return func(r *render, v any, a args) (any, error) {
		list, err := elements(r, v)
		if err != nil {
			return nil, err
		}
		pos := a.pos
		var attr any
		if byAttr {
			if len(pos) == 0 {
				return nil, errors.New("it takes the name of an attribute")
			}
			attr, pos = pos[0], pos[1:]
		}
		test := func(_ *render, v any, _ args) (bool, error) { return truthy(v), nil }
		if len(pos) > 0 {
			name, _ := pos[0].(string)
			fn, ok := testFuncs[name]
			if !ok {
				return nil, fmt.Errorf("there is no test %q", name)
			}
			test, pos = fn, pos[1:]
		}
		var out []any
		for _, x := range list {
			y := x
			if byAttr {
				if y, err = path(r, x, attr); err != nil {
					return nil, err
				}
			}
			ok, err := test(r, y, args{pos, a.kw})
			if err != nil {
				return nil, err
			}
			if ok == keep {
				out = append(out, x)
			}
		}
		return r.list(out)
	}
}
