package jinja

import "fmt"

// stmt is a statement.
type stmt interface{ run(f *frame) error }

type dataStmt struct{ text string }

func (s *dataStmt) run(f *frame) error { return f.r.write(s.text) }

// printStmt is {{ expression }}.
type printStmt struct {
	e    expr
	line int
}

func (s *printStmt) run(f *frame) error {
	v, err := f.eval(s.e)
	if err != nil {
		return at(s.line, err)
	}
	text, err := f.r.str(v)
	if err == nil {
		err = f.r.write(text)
	}
	return at(s.line, err)
}

type ifStmt struct {
	conds  []expr
	bodies [][]stmt
	other  []stmt
	line   int
}

func (s *ifStmt) run(f *frame) error {
	for i, c := range s.conds {
		v, err := f.eval(c)
		if err != nil {
			return at(s.line, err)
		}
		if truthy(v) {
			return f.run(s.bodies[i])
		}
	}
	return f.run(s.other)
}

type jumpStmt struct{ ends bool }

func (s *jumpStmt) run(*frame) error {
	if s.ends {
		return errBreak
	}
	return errContinue
}

// target is what is assigned to: a name, an attribute of a namespace, or a
// tuple of targets.
type target struct {
	name, field string
	items       []*target // of a tuple
}

func (t *target) assign(f *frame, v any) error {
	if t.items != nil {
		vals, err := iterate(f.r, v)
		if err != nil {
			return err
		}
		if len(vals) != len(t.items) {
			return fmt.Errorf("%d values can't be put into %d names", len(vals), len(t.items))
		}
		for i, item := range t.items {
			if err := item.assign(f, vals[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if t.field == "" {
		f.sc.set(t.name, v)
		return nil
	}
	held, _ := f.sc.lookup(t.name)
	ns, ok := held.(*namespace)
	if !ok {
		return fmt.Errorf("an attribute of %s can't be set: it is no namespace", t.name)
	}
	ns.vars.Set(t.field, v)
	return f.r.made(elementBytes)
}

// setStmt is {% set x = value %}, or the block up to endset.
type setStmt struct {
	target *target
	val    expr
	block  bool
	filter expr // of a block; nil for none
	body   []stmt
	line   int
}

func (s *setStmt) run(f *frame) error {
	if !s.block {
		v, err := f.eval(s.val)
		if err == nil {
			err = s.target.assign(f, v)
		}
		return at(s.line, err)
	}
	v, err := f.inner().filtered(s.body, s.filter)
	if err == nil {
		err = s.target.assign(f, v)
	}
	return at(s.line, err)
}

// blockValue stands for the text of a block that a filter is put to.
type blockValue struct{}

func (*blockValue) eval(f *frame) (any, error) {
	v, _ := f.sc.lookup(blockName)
	return v, nil
}

// blockName is no identifier, so that no template can name it.
const blockName = "block text"

// filtered gives the output of statements, passed through a filter if there is
// one.
func (f *frame) filtered(body []stmt, filter expr) (any, error) {
	text, err := f.captured(body)
	if err != nil || filter == nil {
		return text, err
	}
	f.sc.set(blockName, text)
	return f.eval(filter)
}

type filterStmt struct {
	filter expr
	body   []stmt
	line   int
}

func (s *filterStmt) run(f *frame) error {
	v, err := f.inner().filtered(s.body, s.filter)
	if err != nil {
		return at(s.line, err)
	}
	text, err := f.r.str(v)
	if err == nil {
		err = f.r.write(text)
	}
	return at(s.line, err)
}

// scopeStmt is with, and the generation tag, which is a group with names of its
// own.
type scopeStmt struct {
	names []*target
	vals  []expr
	body  []stmt
	line  int
}

func (s *scopeStmt) run(f *frame) error {
	in := f.inner()
	for i, name := range s.names {
		v, err := f.eval(s.vals[i])
		if err == nil {
			err = name.assign(in, v)
		}
		if err != nil {
			return at(s.line, err)
		}
	}
	return in.run(s.body)
}

type forStmt struct {
	target      *target
	list, cond  expr
	body, other []stmt
	line        int
}

func (s *forStmt) run(f *frame) error {
	v, err := f.eval(s.list)
	var items []any
	if err == nil {
		items, err = iterate(f.r, v)
	}
	if err == nil && s.cond != nil {
		items, err = s.chosen(f, items)
	}
	if err != nil {
		return at(s.line, err)
	}
	if len(items) == 0 {
		return f.run(s.other)
	}
	lp := &loop{items: items}
	for lp.at = range items {
		in := f.inner()
		in.sc.set("loop", lp)
		if err := s.target.assign(in, items[lp.at]); err != nil {
			return at(s.line, err)
		}
		switch err := in.run(s.body); err {
		case nil, errContinue:
		case errBreak:
			return nil
		default:
			return err
		}
		if err := f.r.step(1); err != nil {
			return at(s.line, err)
		}
	}
	return nil
}

// chosen filters the items by the loop's condition.
func (s *forStmt) chosen(f *frame, items []any) (out []any, err error) {
	for _, x := range items {
		in := f.inner()
		if err := s.target.assign(in, x); err != nil {
			return nil, err
		}
		v, err := in.eval(s.cond)
		if err != nil {
			return nil, err
		}
		if truthy(v) {
			out = append(out, x)
		}
	}
	return out, nil
}
