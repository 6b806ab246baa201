package jinja

import (
	"slices"
	"strconv"
)

// tuple reads expressions with commas between them; conds says whether they may
// be conditional.
func (p *parser) tuple(conds bool) (expr, error) {
	line := p.cur().line
	first, err := p.expr(conds)
	if err != nil || !p.is(",") {
		return first, err
	}
	list := &listExpr{items: []expr{first}, tuple: true, line: line}
	for p.skip(",") {
		if p.endsTuple() {
			break
		}
		e, err := p.expr(conds)
		if err != nil {
			return nil, err
		}
		list.items = append(list.items, e)
	}
	return list, nil
}

func (p *parser) endsTuple() bool {
	return slices.Contains([]string{tEnd, tBlkEnd, ")", "]"}, p.cur().kind) || p.isName("recursive", "if")
}

// expr reads one expression.
func (p *parser) expr(conds bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	e, err := p.or()
	for err == nil && conds && p.isName("if") {
		c := &condExpr{yes: e, line: p.advance().line}
		if c.cond, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			c.no, err = p.expr(true)
		}
		e = c
	}
	return e, err
}

func (p *parser) or() (expr, error) {
	left, err := p.and()
	for err == nil && p.isName("or") {
		b := &boolExpr{or: true, left: left, line: p.advance().line}
		b.right, err = p.and()
		left = b
	}
	return left, err
}

func (p *parser) and() (expr, error) {
	left, err := p.not()
	for err == nil && p.isName("and") {
		b := &boolExpr{left: left, line: p.advance().line}
		b.right, err = p.not()
		left = b
	}
	return left, err
}

func (p *parser) not() (expr, error) {
	if !p.isName("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	p.advance()
	e, err := p.not()
	return &notExpr{e}, err
}

func (p *parser) compare() (expr, error) {
	left, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{first: left, line: p.cur().line}
	for {
		op := p.cur().kind
		switch {
		case slices.Contains([]string{"==", "!=", "<", ">", "<=", ">="}, op):
			p.advance()
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.toks[p.pos+1].kind == tName && p.toks[p.pos+1].val == "in":
			p.advance()
			p.advance()
			op = "not in"
		case len(c.ops) == 0:
			return left, nil
		default:
			return c, nil
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, right)
	}
}

// binary reads a chain of operators of one strength.
func (p *parser) binary(next func() (expr, error), ops ...string) (expr, error) {
	left, err := next()
	for err == nil && slices.Contains(ops, p.cur().kind) {
		b := &binExpr{op: p.cur().kind, left: left, line: p.cur().line}
		p.advance()
		b.right, err = next()
		left = b
	}
	return left, err
}

func (p *parser) sum() (expr, error) { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() (expr, error) { return p.binary(p.product, "~") }

func (p *parser) product() (expr, error) { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() (expr, error) {
	return p.binary(func() (expr, error) { return p.unary(true) }, "**")
}

func (p *parser) unary(filter bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	var e expr
	var err error
	if op := p.cur(); op.kind == "-" || op.kind == "+" {
		p.advance()
		e, err = p.unary(false)
		e = &signExpr{op.kind == "-", e, op.line}
	} else {
		e, err = p.primary()
	}
	if err == nil {
		e, err = p.postfix(e)
	}
	if err == nil && filter {
		e, err = p.filters(e)
	}
	return e, err
}

func (p *parser) primary() (expr, error) {
	t := p.advance()
	switch t.kind {
	case tName:
		switch t.val {
		case "true", "True":
			return &constExpr{true}, nil
		case "false", "False":
			return &constExpr{false}, nil
		case "none", "None":
			return &constExpr{nil}, nil
		}
		p.names[t.val] = true
		return &nameExpr{t.val}, nil
	case tString:
		for p.is(tString) {
			t.val += p.advance().val
		}
		return &constExpr{t.val}, nil
	case tInteger, tFloat:
		return p.number(t)
	case "(":
		if p.skip(")") {
			return &listExpr{tuple: true, line: t.line}, nil
		}
		e, err := p.tuple(true)
		if err == nil {
			_, err = p.want(")")
		}
		return e, err
	case "[":
		items, err := p.items("]")
		return &listExpr{items: items, line: t.line}, err
	case "{":
		return p.dict(t.line)
	}
	p.pos = max(p.pos-1, 0)
	return nil, p.fail("an expression is expected, not %s", t)
}

func (p *parser) number(t token) (expr, error) {
	if t.kind == tFloat {
		f, err := strconv.ParseFloat(t.val, 64)
		if err != nil {
			return nil, p.fail("%s is out of range", t)
		}
		return &constExpr{f}, nil
	}
	base := 10
	if len(t.val) > 2 && t.val[1] > '9' {
		base = 0
	}
	i, err := strconv.ParseInt(t.val, base, 64)
	if err != nil {
		return nil, p.fail("%s is out of range", t)
	}
	return &constExpr{i}, nil
}

// items reads expressions with commas between them up to a bracket.
func (p *parser) items(end string) (out []expr, err error) {
	for !p.skip(end) {
		if len(out) > 0 {
			if _, err := p.want(","); err != nil {
				return nil, err
			}
			if p.skip(end) {
				break
			}
		}
		e, err := p.expr(true)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (p *parser) dict(line int) (expr, error) {
	d := &dictExpr{line: line}
	for !p.skip("}") {
		if len(d.keys) > 0 {
			if _, err := p.want(","); err != nil {
				return nil, err
			}
			if p.skip("}") {
				break
			}
		}
		k, err := p.expr(true)
		if err != nil {
			return nil, err
		}
		if _, err := p.want(":"); err != nil {
			return nil, err
		}
		v, err := p.expr(true)
		if err != nil {
			return nil, err
		}
		d.keys, d.vals = append(d.keys, k), append(d.vals, v)
	}
	return d, nil
}
