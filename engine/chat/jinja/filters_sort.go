package jinja

import (
	"errors"
	"fmt"
	"slices"
)

// sorted sorts a copy stably by keys; without case, unless asked for, as
// Jinja's filters do.
func sorted(r *render, list []any, key func(any) (any, error), cased, down bool) ([]any, error) {
	keys := make([]any, len(list))
	places := make([]int, len(list))
	for i, x := range list {
		k, err := key(x)
		if err != nil {
			return nil, err
		}
		if s, ok := k.(string); ok && !cased {
			k = lower(s)
		}
		keys[i], places[i] = k, i
	}
	var failed error
	slices.SortStableFunc(places, func(i, j int) int {
		if failed != nil {
			return 0
		}
		c, err := order(r, keys[i], keys[j])
		failed = errors.Join(err, r.step(1))
		if down {
			c = -c
		}
		return c
	})
	out := make([]any, len(list))
	for i, j := range places {
		out[i] = list[j]
	}
	return out, failed
}

func filterSort(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	list, err := iterate(r, v)
	if err != nil {
		return nil, err
	}
	name := given(p[3], nil)
	out, err := sorted(r, list, func(x any) (any, error) {
		if name == nil {
			return x, nil
		}
		return path(r, x, name)
	}, truthy(given(p[2], false)), truthy(given(p[1], false)))
	if err != nil {
		return nil, err
	}
	return r.list(out)
}

func filterDictSort(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("it takes a dict, not %s", what(v))
	}
	pairs, err := items(r, d)
	if err != nil {
		return nil, err
	}
	at := 0
	if given(p[2], "key") == "value" {
		at = 1
	}
	out, err := sorted(r, pairs.(*List).Items, func(x any) (any, error) { return x.(*List).Items[at], nil },
		truthy(given(p[1], false)), truthy(given(p[3], false)))
	if err != nil {
		return nil, err
	}
	return r.list(out)
}

func filterGroupBy(r *render, v any, a args) (any, error) {
	p, err := a.bind("attribute", "default")
	if err != nil {
		return nil, err
	}
	list, err := iterate(r, v)
	if err != nil {
		return nil, err
	}
	key := func(x any) (any, error) {
		k, err := path(r, x, p[0])
		if _, none := k.(Undefined); none {
			k = given(p[1], k)
		}
		return k, err
	}
	if list, err = sorted(r, list, key, false, false); err != nil {
		return nil, err
	}
	var out []any
	var last *List
	for _, x := range list {
		k, err := key(x)
		if err != nil {
			return nil, err
		}
		if len(out) > 0 {
			if same, err := equal(r, out[len(out)-1].(*List).Items[0], k, 0); err != nil {
				return nil, err
			} else if same {
				last.Items = append(last.Items, x)
				continue
			}
		}
		last = &List{Items: []any{x}}
		out = append(out, &List{[]any{k, last}, true})
	}
	return r.list(out)
}

func filterUnique(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	list, err := iterate(r, v)
	if err != nil {
		return nil, err
	}
	seen := NewDict()
	var out []any
	for _, x := range list {
		k := x
		if name := given(p[2], nil); name != nil {
			if k, err = path(r, x, name); err != nil {
				return nil, err
			}
		}
		if s, ok := k.(string); ok && !truthy(given(p[1], false)) {
			k = lower(s)
		}
		if k != nil && hashable(k) == nil {
			return nil, fmt.Errorf("%s can't be told apart from others", what(k))
		}
		if _, ok := seen.Get(k); !ok {
			seen.Set(k, nil)
			out = append(out, x)
		}
	}
	return r.list(out)
}

func extreme(want int) filterFunc {
	return func(r *render, v any, a args) (any, error) {
		p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		list, err := iterate(r, v)
		if err != nil || len(list) == 0 {
			return Undefined{"the extreme of no elements"}, err
		}
		name := given(p[2], nil)
		out, err := sorted(r, list, func(x any) (any, error) {
			if name == nil {
				return x, nil
			}
			return path(r, x, name)
		}, truthy(given(p[1], false)), want > 0)
		if err != nil {
			return nil, err
		}
		return out[0], nil
	}
}

func filterSum(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("value", "attribute", "start")
	if err != nil {
		return nil, err
	}
	list, err := iterate(r, v)
	if err != nil {
		return nil, err
	}
	total := given(p[2], int64(0))
	for _, x := range list {
		if name := given(p[1], nil); name != nil {
			if x, err = path(r, x, name); err != nil {
				return nil, err
			}
		}
		if total, err = arith(r, "+", total, x); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// cutter reads the arguments of batch and slice.
func cutter(r *render, v any, a args) (list []any, n int, fill any, err error) {
	p, err := a.bind("n", "fill_with")
	if err != nil {
		return nil, 0, nil, err
	}
	size, ok := integer(p[0])
	if !ok || size < 1 || size > 1<<20 {
		return nil, 0, nil, errors.New("it takes a number from 1 on")
	}
	list, err = iterate(r, v)
	return list, int(size), given(p[1], nil), err
}

func filterBatch(r *render, v any, a args) (any, error) {
	list, n, fill, err := cutter(r, v, a)
	if err != nil {
		return nil, err
	}
	if err := r.made(elementBytes * (len(list) + n)); err != nil {
		return nil, err
	}
	var out []any
	for i := 0; i < len(list); i += n {
		part := slices.Clone(list[i:min(i+n, len(list))])
		for len(part) < n && fill != nil {
			part = append(part, fill)
		}
		out = append(out, &List{Items: part})
	}
	return r.list(out)
}

func filterSlice(r *render, v any, a args) (any, error) {
	list, n, fill, err := cutter(r, v, a)
	if err != nil {
		return nil, err
	}
	if err := r.made(elementBytes * (len(list) + n)); err != nil {
		return nil, err
	}
	var out []any
	per, more := len(list)/n, len(list)%n
	from := 0
	for i := range n {
		to := from + per
		if i < more {
			to++
		}
		part := slices.Clone(list[from:to])
		if fill != nil && i >= more {
			part = append(part, fill)
		}
		out, from = append(out, &List{Items: part}), to
	}
	return r.list(out)
}
