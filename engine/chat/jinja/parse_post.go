package jinja

// postfix reads attributes, subscripts and calls behind an expression.
func (p *parser) postfix(e expr) (expr, error) {
	var err error
	for n := 0; err == nil; n++ {
		if n > maxNesting {
			return nil, p.fail("more than %d attributes, subscripts and calls follow each other", maxNesting)
		}
		switch t := p.cur(); t.kind {
		case ".":
			p.advance()
			if p.is(tInteger) {
				i, err := p.number(p.advance())
				if err != nil {
					return nil, err
				}
				e = &itemExpr{e, i, t.line}
				continue
			}
			name, err := p.want(tName)
			if err != nil {
				return nil, err
			}
			e = &attrExpr{e, name.val, t.line}
		case "[":
			p.advance()
			e, err = p.subscript(e, t.line)
		case "(":
			e, err = p.call(e)
		default:
			return e, nil
		}
	}
	return nil, err
}

// subscript reads an index or a slice, and its bracket.
func (p *parser) subscript(e expr, line int) (expr, error) {
	var parts [3]expr
	n := 0
	slice := false
	for !p.is("]") {
		if p.skip(":") {
			slice = true
			if n++; n > 2 {
				return nil, p.fail("a slice has at most three parts")
			}
			continue
		}
		if parts[n] != nil {
			return nil, p.fail("%s in a subscript", p.cur())
		}
		var err error
		if parts[n], err = p.expr(true); err != nil {
			return nil, err
		}
	}
	p.advance()
	switch {
	case slice:
		return &sliceExpr{e, parts, line}, nil
	case parts[0] == nil:
		return nil, p.fail("a subscript is empty")
	}
	return &itemExpr{e, parts[0], line}, nil
}

func (p *parser) call(e expr) (expr, error) {
	line := p.cur().line
	a, err := p.arguments()
	return &callExpr{e, a, line}, err
}

// arguments reads the arguments of a call, with their parentheses.
func (p *parser) arguments() (*argList, error) {
	a := &argList{}
	p.advance()
	for first := true; !p.skip(")"); first = false {
		if !first {
			if _, err := p.want(","); err != nil {
				return nil, err
			}
			if p.skip(")") {
				break
			}
		}
		var err error
		switch {
		case p.skip("*"):
			a.star, err = p.expr(true)
		case p.skip("**"):
			a.stars, err = p.expr(true)
		case p.is(tName) && p.toks[p.pos+1].kind == "=":
			a.names = append(a.names, p.advance().val)
			p.advance()
			var v expr
			v, err = p.expr(true)
			a.named = append(a.named, v)
		case len(a.names) > 0 || a.star != nil || a.stars != nil:
			return nil, p.fail("a positional argument follows a named one")
		default:
			var v expr
			v, err = p.expr(true)
			a.pos = append(a.pos, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

// filters reads filters, tests and calls behind an expression.
func (p *parser) filters(e expr) (expr, error) {
	var err error
	for n := 0; err == nil; n++ {
		if n > maxNesting {
			return nil, p.fail("more than %d filters and tests follow each other", maxNesting)
		}
		switch {
		case p.skip("|"):
			e, err = p.filterNamed(e)
		case p.isName("is"):
			e, err = p.test(e)
		case p.is("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
	}
	return nil, err
}

// filterNamed reads the name and arguments of a filter.
func (p *parser) filterNamed(e expr) (expr, error) {
	name, err := p.want(tName)
	if err != nil {
		return nil, err
	}
	f := &filterExpr{val: e, name: name.val, args: &argList{}, line: name.line}
	if p.is("(") {
		f.args, err = p.arguments()
	}
	return f, err
}

func (p *parser) test(e expr) (expr, error) {
	line := p.advance().line
	negated := p.skipName("not")
	name := p.cur()
	if !p.is(tName) && !p.is("in") {
		return nil, p.fail("the name of a test is expected, not %s", name)
	}
	p.advance()
	t := &testExpr{val: e, name: name.val, args: &argList{}, line: line}
	var err error
	switch kind := p.cur().kind; {
	case kind == "(":
		t.args, err = p.arguments()
	case p.isName("is"):
		return nil, p.fail("tests can't be chained")
	case kind == tString || kind == tInteger || kind == tFloat || kind == "[" || kind == "{" || kind == tName && !p.isName("else", "or", "and"):
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		t.args.pos = []expr{arg}
	}
	if negated {
		return &notExpr{t}, err
	}
	return t, err
}
