package jinja

import (
	"errors"
	"fmt"
	"unicode"
)

type testFunc = func(r *render, v any, a args) (bool, error)

var testFuncs map[string]testFunc

func init() {
	testFuncs = map[string]testFunc{
		"defined":   ofType(func(v any) bool { _, none := v.(Undefined); return !none }),
		"undefined": ofType(func(v any) bool { _, none := v.(Undefined); return none }),
		"none":      ofType(func(v any) bool { return v == nil }),
		"boolean":   ofType(func(v any) bool { _, ok := v.(bool); return ok }),
		"true":      ofType(func(v any) bool { return v == true }),
		"false":     ofType(func(v any) bool { return v == false }),
		"string":    ofType(func(v any) bool { _, ok := v.(string); return ok }),
		"mapping":   ofType(func(v any) bool { _, ok := v.(*Dict); return ok }),
		"callable":  ofType(func(v any) bool { _, ok := v.(*function); return ok }),
		"float":     ofType(func(v any) bool { _, ok := v.(float64); return ok }),
		"integer":   ofType(func(v any) bool { return typeName(v) == "int" }),
		"number":    ofType(func(v any) bool { _, ok := float(v); return ok || typeName(v) == "int" }),
		"escaped":   ofType(func(any) bool { return false }),
		"iterable": ofType(func(v any) bool {
			switch v.(type) {
			case string, *List, *Dict, Undefined:
				return true
			}
			return false
		}),
		"sequence": ofType(func(v any) bool {
			switch v.(type) {
			case string, *List, *Dict, Undefined:
				return true
			}
			return false
		}),
		"lower": func(r *render, v any, _ args) (bool, error) {
			s, err := r.str(v)
			return cased(s, unicode.IsUpper), err
		},
		"upper": func(r *render, v any, _ args) (bool, error) {
			s, err := r.str(v)
			return cased(s, unicode.IsLower), err
		},
		"odd":  remainder(1, 2),
		"even": remainder(0, 2),
		"divisibleby": func(r *render, v any, a args) (bool, error) {
			p, err := a.bind("num")
			if err != nil {
				return false, err
			}
			m, err := arith(r, "%", v, p[0])
			f, ok := float(m)
			return ok && f == 0, err
		},
		"sameas": func(r *render, v any, a args) (bool, error) {
			p, err := a.bind("other")
			if err != nil || typeName(v) != typeName(p[0]) {
				return false, err
			}
			switch v.(type) {
			case *List, *Dict:
				return v == p[0], nil
			}
			return equal(r, v, p[0], 0)
		},
		"in":     comparison("in"),
		"filter": known(func(name string) bool { _, ok := filterFuncs[name]; return ok }),
		"test":   known(func(name string) bool { _, ok := testFuncs[name]; return ok }),
	}
	for op, names := range map[string][]string{
		"==": {"eq", "equalto"}, "!=": {"ne"}, "<": {"lt", "lessthan"}, "<=": {"le"}, ">": {"gt", "greaterthan"}, ">=": {"ge"},
	} {
		for _, name := range append(names, op) {
			testFuncs[name] = comparison(op)
		}
	}
}

func ofType(is func(v any) bool) testFunc {
	return func(_ *render, v any, a args) (bool, error) {
		if len(a.pos) > 0 {
			return false, errors.New("it takes no arguments")
		}
		return is(v), nil
	}
}

func remainder(want, of int64) testFunc {
	return func(_ *render, v any, _ args) (bool, error) {
		n, ok := integer(v)
		if !ok {
			return false, fmt.Errorf("it takes an integer, not %s", what(v))
		}
		return (n%of+of)%of == want, nil
	}
}

func comparison(op string) testFunc {
	return func(r *render, v any, a args) (bool, error) {
		p, err := a.bind("other")
		if err != nil {
			return false, err
		}
		return compare(r, op, v, p[0])
	}
}

func known(has func(name string) bool) testFunc {
	return func(_ *render, v any, _ args) (bool, error) {
		name, ok := v.(string)
		return ok && has(name), nil
	}
}
