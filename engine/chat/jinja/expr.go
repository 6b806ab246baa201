package jinja

import "fmt"

// expr is an expression.
type expr interface {
	eval(f *frame) (any, error)
}

type constExpr struct{ v any }

func (e *constExpr) eval(*frame) (any, error) { return e.v, nil }

type nameExpr struct{ name string }

func (e *nameExpr) eval(f *frame) (any, error) {
	if v, ok := f.sc.lookup(e.name); ok {
		return v, nil
	}
	return Undefined{e.name}, nil
}

type listExpr struct {
	items []expr
	tuple bool
	line  int
}

func (e *listExpr) eval(f *frame) (any, error) {
	out := make([]any, 0, len(e.items))
	for _, x := range e.items {
		v, err := f.eval(x)
		if err != nil {
			return nil, at(e.line, err)
		}
		out = append(out, v)
	}
	return &List{out, e.tuple}, at(e.line, f.r.made(elementBytes*len(out)))
}

type dictExpr struct {
	keys, vals []expr
	line       int
}

func (e *dictExpr) eval(f *frame) (any, error) {
	d := NewDict()
	for i := range e.keys {
		k, err := f.eval(e.keys[i])
		if err == nil && k != nil && hashable(k) == nil {
			err = fmt.Errorf("a %s can't be the key of a dict", typeName(k))
		}
		var v any
		if err == nil {
			v, err = f.eval(e.vals[i])
		}
		if err != nil {
			return nil, at(e.line, err)
		}
		d.Set(k, v)
	}
	return d, at(e.line, f.r.made(4*elementBytes*len(e.keys)))
}

type condExpr struct {
	cond, yes, no expr
	line          int
}

func (e *condExpr) eval(f *frame) (any, error) {
	c, err := f.eval(e.cond)
	switch {
	case err != nil:
		return nil, at(e.line, err)
	case truthy(c):
		return f.eval(e.yes)
	case e.no == nil:
		return Undefined{"the value of an if without else"}, nil
	}
	return f.eval(e.no)
}

type boolExpr struct {
	or          bool
	left, right expr
	line        int
}

func (e *boolExpr) eval(f *frame) (any, error) {
	v, err := f.eval(e.left)
	if err != nil || truthy(v) == e.or {
		return v, at(e.line, err)
	}
	return f.eval(e.right)
}

type notExpr struct{ e expr }

func (e *notExpr) eval(f *frame) (any, error) {
	v, err := f.eval(e.e)
	return !truthy(v), err
}

type compareExpr struct {
	first expr
	ops   []string
	rest  []expr
	line  int
}

func (e *compareExpr) eval(f *frame) (any, error) {
	left, err := f.eval(e.first)
	if err != nil {
		return nil, at(e.line, err)
	}
	for i, op := range e.ops {
		right, err := f.eval(e.rest[i])
		if err != nil {
			return nil, at(e.line, err)
		}
		ok, err := compare(f.r, op, left, right)
		if err != nil || !ok {
			return false, at(e.line, err)
		}
		left = right
	}
	return true, nil
}

type binExpr struct {
	op          string
	left, right expr
	line        int
}

func (e *binExpr) eval(f *frame) (any, error) {
	a, err := f.eval(e.left)
	if err != nil {
		return nil, at(e.line, err)
	}
	b, err := f.eval(e.right)
	if err != nil {
		return nil, at(e.line, err)
	}
	v, err := arith(f.r, e.op, a, b)
	return v, at(e.line, err)
}

type signExpr struct {
	minus bool
	e     expr
	line  int
}

func (e *signExpr) eval(f *frame) (any, error) {
	v, err := f.eval(e.e)
	if err != nil {
		return nil, err
	}
	op := "+"
	if e.minus {
		op = "-"
	}
	if _, _, ok := numbers(v, v); !ok {
		return nil, at(e.line, fmt.Errorf("%s can't be put before %s", op, what(v)))
	}
	v, err = arith(f.r, op, int64(0), v)
	return v, at(e.line, err)
}

// what describes a value for an error.
func what(v any) string {
	if u, ok := v.(Undefined); ok {
		return fmt.Sprintf("%q, which is undefined", u.Name)
	}
	return "a value of type " + typeName(v)
}

type attrExpr struct {
	e    expr
	name string
	line int
}

func (e *attrExpr) eval(f *frame) (any, error) {
	v, err := f.eval(e.e)
	if err == nil {
		v, err = attribute(v, e.name)
	}
	return v, at(e.line, err)
}

type itemExpr struct {
	e, key expr
	line   int
}

func (e *itemExpr) eval(f *frame) (any, error) {
	v, err := f.eval(e.e)
	if err != nil {
		return nil, at(e.line, err)
	}
	k, err := f.eval(e.key)
	if err == nil {
		v, err = item(f.r, v, k)
	}
	return v, at(e.line, err)
}

type sliceExpr struct {
	e     expr
	parts [3]expr
	line  int
}

func (e *sliceExpr) eval(f *frame) (any, error) {
	v, err := f.eval(e.e)
	if err != nil {
		return nil, at(e.line, err)
	}
	var bounds [3]*int64
	for i, part := range e.parts {
		if part == nil {
			continue
		}
		x, err := f.eval(part)
		if err != nil {
			return nil, at(e.line, err)
		}
		if x == nil {
			continue
		}
		n, ok := integer(x)
		if !ok {
			return nil, at(e.line, fmt.Errorf("%s is no bound of a slice", what(x)))
		}
		bounds[i] = &n
	}
	v, err = slice(f.r, v, bounds)
	return v, at(e.line, err)
}
