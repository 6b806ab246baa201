package jinja

import "slices"

// signature reads the parameters of a macro or call block, in parentheses.
func (p *parser) signature(m *macro) error {
	if _, err := p.want("("); err != nil {
		return err
	}
	for !p.skip(")") {
		if len(m.params) > 0 {
			if _, err := p.want(","); err != nil {
				return err
			}
		}
		name, err := p.want(tName)
		if err != nil {
			return err
		}
		var def expr
		if p.skip("=") {
			if def, err = p.expr(true); err != nil {
				return err
			}
		} else if n := len(m.defaults); n > 0 && m.defaults[n-1] != nil {
			return p.fail("the parameter %q without a default follows one that has a default", name.val)
		}
		m.params, m.defaults = append(m.params, name.val), append(m.defaults, def)
	}
	return nil
}

// macroBody reads the body of a macro, whose loops and names are its own.
func (p *parser) macroBody(m *macro, end string) (err error) {
	loops, names := p.loops, p.names
	p.loops, p.names = 0, map[string]bool{}
	m.body, err = p.block(end)
	m.varargs, m.kwargs, m.caller = p.names["varargs"], p.names["kwargs"], p.names["caller"]
	for name := range p.names {
		names[name] = true
	}
	p.loops, p.names = loops, names
	return err
}

func (p *parser) macroStmt() (stmt, error) {
	name, err := p.want(tName)
	if err != nil {
		return nil, err
	}
	m := &macro{name: name.val}
	if err := p.signature(m); err != nil {
		return nil, err
	}
	return &macroStmt{m}, p.macroBody(m, "endmacro")
}

func (p *parser) callStmt() (stmt, error) {
	s := &callStmt{macro: &macro{name: "caller"}, line: p.cur().line}
	if p.is("(") {
		if err := p.signature(s.macro); err != nil {
			return nil, err
		}
	}
	e, err := p.expr(true)
	if err != nil {
		return nil, err
	}
	call, ok := e.(*callExpr)
	if !ok {
		return nil, p.fail("a call statement must call something")
	}
	s.call = call
	return s, p.macroBody(s.macro, "endcall")
}

func (p *parser) withStmt() (stmt, error) {
	s := &scopeStmt{line: p.cur().line}
	for !p.is(tBlkEnd) {
		if len(s.names) > 0 {
			if _, err := p.want(","); err != nil {
				return nil, err
			}
		}
		t, err := p.target(false)
		if err != nil {
			return nil, err
		}
		if _, err := p.want("="); err != nil {
			return nil, err
		}
		v, err := p.expr(true)
		if err != nil {
			return nil, err
		}
		s.names, s.vals = append(s.names, t), append(s.vals, v)
	}
	var err error
	s.body, err = p.block("endwith")
	return s, err
}

func (p *parser) filterStmt() (stmt, error) {
	s := &filterStmt{line: p.cur().line}
	var err error
	if s.filter, err = p.filterNamed(&blockValue{}); err != nil {
		return nil, err
	}
	if s.filter, err = p.filters(s.filter); err != nil {
		return nil, err
	}
	s.body, err = p.block("endfilter")
	return s, err
}

// target reads what is assigned to: names, tuples of them, or with attr an
// attribute of a namespace.
func (p *parser) target(attr bool) (*target, error) {
	first, err := p.oneTarget(attr)
	if err != nil || !p.is(",") {
		return first, err
	}
	t := &target{items: []*target{first}}
	for p.skip(",") {
		if !p.is("(") && (!p.is(tName) || p.isName("in")) {
			break
		}
		one, err := p.oneTarget(attr)
		if err != nil {
			return nil, err
		}
		t.items = append(t.items, one)
	}
	return t, nil
}

func (p *parser) oneTarget(attr bool) (*target, error) {
	if p.is("(") {
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer func() { p.depth-- }()
		p.advance()
		t, err := p.target(attr)
		if err == nil {
			_, err = p.want(")")
		}
		return t, err
	}
	name, err := p.want(tName)
	if err != nil {
		return nil, err
	}
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name.val) {
		return nil, p.fail("%s can't be assigned to", name.val)
	}
	t := &target{name: name.val}
	if attr && p.skip(".") {
		field, err := p.want(tName)
		if err != nil {
			return nil, err
		}
		t.field = field.val
	}
	return t, nil
}

func (p *parser) setStmt() (stmt, error) {
	s := &setStmt{line: p.cur().line}
	var err error
	if s.target, err = p.target(true); err != nil {
		return nil, err
	}
	if p.skip("=") {
		if s.val, err = p.tuple(true); err != nil {
			return nil, err
		}
		_, err = p.want(tBlkEnd)
		return s, err
	}
	s.block = true
	if p.is("|") {
		if s.filter, err = p.filters(&blockValue{}); err != nil {
			return nil, err
		}
	}
	s.body, err = p.block("endset")
	return s, err
}
