package jinja

import "fmt"

// macro is a macro, or the body of a call statement.
type macro struct {
	name     string
	params   []string
	defaults []expr // nil for none
	body     []stmt
	// varargs, kwargs and caller say that the body uses these names.
	varargs, kwargs, caller bool
}

type macroStmt struct{ m *macro }

func (s *macroStmt) run(f *frame) error {
	f.sc.set(s.m.name, s.m.function(f))
	return nil
}

// function binds a macro to the scope in which it stands.
func (m *macro) function(f *frame) *function {
	return &function{m.name, func(_ *render, a args) (any, error) {
		in := f.inner()
		if err := m.bind(in, a); err != nil {
			return nil, err
		}
		text, err := in.captured(m.body)
		return text, err
	}}
}

// bind puts arguments into a macro's scope.
func (m *macro) bind(in *frame, a args) error {
	given := NewDict()
	if a.kw != nil {
		for i, k := range a.kw.keys {
			given.Set(k, a.kw.vals[i])
		}
	}
	rest := NewDict()
	for i, name := range m.params {
		v, ok := given.Get(name)
		switch {
		case i < len(a.pos) && ok:
			return fmt.Errorf("macro %s got two values for %s", m.name, name)
		case i < len(a.pos):
			v = a.pos[i]
		case ok:
		case m.defaults[i] == nil:
			v = Undefined{name}
		default:
			var err error
			if v, err = in.eval(m.defaults[i]); err != nil {
				return err
			}
		}
		in.sc.set(name, v)
	}
	for i, k := range given.keys {
		if in.sc.find(k.(string)) < 0 && k != "caller" {
			rest.Set(k, given.vals[i])
		} else if k == "caller" {
			in.sc.set("caller", given.vals[i])
		}
	}
	if !m.kwargs && rest.Len() > 0 {
		return fmt.Errorf("macro %s has no parameter %v", m.name, rest.keys[0])
	}
	extra := a.pos[min(len(a.pos), len(m.params)):]
	if !m.varargs && len(extra) > 0 {
		return fmt.Errorf("macro %s takes %d arguments, not %d", m.name, len(m.params), len(a.pos))
	}
	if m.kwargs {
		in.sc.set("kwargs", rest)
	}
	if m.varargs {
		in.sc.set("varargs", &List{Items: extra, Tuple: true})
	}
	return nil
}

// callStmt calls something with its body as caller.
type callStmt struct {
	call  *callExpr
	macro *macro
	line  int
}

func (s *callStmt) run(f *frame) error {
	caller := s.macro.function(f)
	v, err := s.call.with(f, caller)
	if err != nil {
		return at(s.line, err)
	}
	text, err := f.r.str(v)
	if err == nil {
		err = f.r.write(text)
	}
	return at(s.line, err)
}
