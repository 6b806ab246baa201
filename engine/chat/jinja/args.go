package jinja

import (
	"errors"
	"fmt"
)

// argList is the arguments of a call as they are written.
type argList struct {
	pos         []expr
	names       []string
	named       []expr
	star, stars expr
}

func (l *argList) eval(f *frame) (a args, err error) {
	for _, e := range l.pos {
		v, err := f.eval(e)
		if err != nil {
			return a, err
		}
		a.pos = append(a.pos, v)
	}
	if l.star != nil {
		v, err := f.eval(l.star)
		if err != nil {
			return a, err
		}
		more, err := iterate(f.r, v)
		if err != nil {
			return a, err
		}
		a.pos = append(a.pos, more...)
	}
	if len(l.names) == 0 && l.stars == nil {
		return a, nil
	}
	a.kw = NewDict()
	for i, name := range l.names {
		v, err := f.eval(l.named[i])
		if err != nil {
			return a, err
		}
		a.kw.Set(name, v)
	}
	if l.stars != nil {
		v, err := f.eval(l.stars)
		if err != nil {
			return a, err
		}
		d, ok := v.(*Dict)
		if !ok {
			return a, fmt.Errorf("** takes a dict, not %s", what(v))
		}
		for i, k := range d.keys {
			if _, ok := k.(string); !ok {
				return a, errors.New("the keys of a dict behind ** must be text")
			}
			a.kw.Set(k, d.vals[i])
		}
	}
	return a, nil
}

type callExpr struct {
	fn   expr
	args *argList
	line int
}

func (e *callExpr) eval(f *frame) (any, error) { return e.with(f, nil) }

// with calls with a caller, where there is one.
func (e *callExpr) with(f *frame, caller *function) (any, error) {
	v, err := f.eval(e.fn)
	if err != nil {
		return nil, at(e.line, err)
	}
	fn, ok := v.(*function)
	if !ok {
		return nil, at(e.line, fmt.Errorf("%s can't be called", what(v)))
	}
	a, err := e.args.eval(f)
	if err == nil && caller != nil {
		if a.kw == nil {
			a.kw = NewDict()
		}
		a.kw.Set("caller", caller)
	}
	if err == nil {
		v, err = fn.call(f.r, a)
	}
	return v, at(e.line, err)
}

type filterExpr struct {
	val  expr
	name string
	args *argList
	line int
}

func (e *filterExpr) eval(f *frame) (any, error) {
	v, err := f.eval(e.val)
	if err != nil {
		return nil, at(e.line, err)
	}
	fn, ok := filterFuncs[e.name]
	if !ok {
		return nil, at(e.line, fmt.Errorf("there is no filter %q", e.name))
	}
	a, err := e.args.eval(f)
	if err == nil {
		v, err = fn(f.r, v, a)
	}
	if err != nil {
		return nil, at(e.line, fmt.Errorf("filter %s: %w", e.name, err))
	}
	return v, nil
}

type testExpr struct {
	val  expr
	name string
	args *argList
	line int
}

func (e *testExpr) eval(f *frame) (any, error) {
	v, err := f.eval(e.val)
	if err != nil {
		return nil, at(e.line, err)
	}
	fn, known := testFuncs[e.name]
	if !known {
		return nil, at(e.line, fmt.Errorf("there is no test %q", e.name))
	}
	a, err := e.args.eval(f)
	if err != nil {
		return nil, at(e.line, err)
	}
	ok, err := fn(f.r, v, a)
	if err != nil {
		return nil, at(e.line, fmt.Errorf("test %s: %w", e.name, err))
	}
	return ok, nil
}
