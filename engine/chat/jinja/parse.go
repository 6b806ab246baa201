package jinja

import (
	"fmt"
	"slices"
)

// maxNesting bounds how deep expressions and statements hold each other.
const maxNesting = 150

// maxSource is the longest template, in bytes; the longest published ones have
// a hundredth of it.
const maxSource = 2 << 20

// Error is what is wrong with a template, or went wrong while it rendered.
type Error struct {
	Template string // its name
	Line     int    // from 1; 0 where there is none
	Msg      string
	Err      error // the cause, where it has a type: ErrLimit, *Raised
}

func (e *Error) Error() string {
	msg := e.Msg
	if e.Err != nil {
		msg = e.Err.Error()
	}
	if e.Line > 0 {
		msg = fmt.Sprintf("line %d: %s", e.Line, msg)
	}
	return fmt.Sprintf("template %s: %s", e.Template, msg)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// parser reads tokens by recursive descent.
type parser struct {
	toks  []token
	pos   int
	depth int
	loops int             // for statements around, within the macro
	names map[string]bool // names read since the macro around began
}

func (p *parser) cur() token { return p.toks[p.pos] }

func (p *parser) advance() token {
	t := p.toks[p.pos]
	if t.kind != tEOF {
		p.pos++
	}
	return t
}

func (p *parser) is(kind string) bool { return p.cur().kind == kind }

func (p *parser) isName(names ...string) bool {
	return p.is(tName) && slices.Contains(names, p.cur().val)
}

// skip takes a token of a kind if it is there.
func (p *parser) skip(kind string) bool {
	if p.is(kind) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) fail(format string, a ...any) error {
	return &Error{Line: p.cur().line, Msg: fmt.Sprintf(format, a...)}
}

func (p *parser) want(kind string) (token, error) {
	if !p.is(kind) {
		return token{}, p.fail("%s is expected, not %s", kind, p.cur())
	}
	return p.advance(), nil
}

// String names a token for an error.
func (t token) String() string {
	if t.val == "" {
		return t.kind
	}
	return fmt.Sprintf("%q", t.val)
}

// enter counts a level of nesting.
func (p *parser) enter() error {
	if p.depth++; p.depth > maxNesting {
		return p.fail("it is nested deeper than %d", maxNesting)
	}
	return nil
}

// body reads statements up to a tag with one of the names, which it leaves to
// be read; without names, to the end of the template.
func (p *parser) body(ends ...string) ([]stmt, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	var out []stmt
	for {
		switch t := p.advance(); t.kind {
		case tData:
			out = append(out, &dataStmt{t.val})
		case tBegin:
			e, err := p.tuple(true)
			if err != nil {
				return nil, err
			}
			if _, err := p.want(tEnd); err != nil {
				return nil, err
			}
			out = append(out, &printStmt{e, t.line})
		case tBlock:
			if p.isName(ends...) {
				return out, nil
			}
			s, err := p.statement()
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		default:
			if len(ends) > 0 {
				return nil, p.fail("%s is missing", ends[len(ends)-1])
			}
			return out, nil
		}
	}
}

// block reads a body and the tag that ends it.
func (p *parser) block(end string) ([]stmt, error) {
	if _, err := p.want(tBlkEnd); err != nil {
		return nil, err
	}
	body, err := p.body(end)
	if err == nil {
		p.advance()
		_, err = p.want(tBlkEnd)
	}
	return body, err
}

// statement reads what follows {%.
func (p *parser) statement() (stmt, error) {
	t, err := p.want(tName)
	if err != nil {
		return nil, err
	}
	switch t.val {
	case "if":
		return p.ifStmt()
	case "for":
		return p.forStmt()
	case "set":
		return p.setStmt()
	case "macro":
		return p.macroStmt()
	case "call":
		return p.callStmt()
	case "with":
		return p.withStmt()
	case "generation":
		body, err := p.block("endgeneration")
		return &scopeStmt{body: body}, err
	case "filter":
		return p.filterStmt()
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.fail("%s stands outside of a loop", t.val)
		}
		_, err := p.want(tBlkEnd)
		return &jumpStmt{t.val == "break"}, err
	}
	return nil, p.fail("the statement %q is unknown, or not supported in chat templates", t.val)
}

func (p *parser) ifStmt() (stmt, error) {
	s := &ifStmt{line: p.cur().line}
	for {
		cond, err := p.tuple(false)
		if err != nil {
			return nil, err
		}
		if _, err := p.want(tBlkEnd); err != nil {
			return nil, err
		}
		body, err := p.body("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.conds, s.bodies = append(s.conds, cond), append(s.bodies, body)
		switch p.advance().val {
		case "elif":
			continue
		case "else":
			s.other, err = p.block("endif")
			return s, err
		}
		_, err = p.want(tBlkEnd)
		return s, err
	}
}

func (p *parser) forStmt() (stmt, error) {
	s := &forStmt{line: p.cur().line}
	var err error
	if s.target, err = p.target(false); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.fail("\"in\" is expected, not %s", p.cur())
	}
	if s.list, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.cond, err = p.expr(true); err != nil {
			return nil, err
		}
	}
	if p.isName("recursive") {
		return nil, p.fail("recursive loops are not supported in chat templates")
	}
	if _, err := p.want(tBlkEnd); err != nil {
		return nil, err
	}
	p.loops++
	s.body, err = p.body("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	if p.advance().val == "else" {
		s.other, err = p.block("endfor")
		return s, err
	}
	_, err = p.want(tBlkEnd)
	return s, err
}
