package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits bound the work of one rendering; zero fields take the default.
type Limits struct {
	Steps int // expressions and statements evaluated, and characters looked at, by the dozen
	Bytes int // text and lists made, in bytes, whether kept or not
}

// The default limits: far above what chat templates need for a long
// conversation, and done within a second or two.
const (
	DefaultSteps = 10_000_000
	DefaultBytes = 256 << 20
)

// maxDepth bounds how deep evaluation goes, over all macros.
const maxDepth = 2500

// ErrLimit is the cause of an error by which a limit was kept.
var ErrLimit = errors.New("it does more than a template may")

// Raised is the cause of an error that the template raised by raise_exception.
type Raised struct{ Msg string }

func (r *Raised) Error() string { return r.Msg }

// Template is a parsed template. It does not change and is safe for concurrent
// use.
type Template struct {
	name string
	body []stmt
}

// Parse parses a template; the name is for errors, which are of type *Error.
func Parse(name, source string) (*Template, error) {
	t, err := parse(source)
	if err != nil {
		return nil, named(name, err)
	}
	return &Template{name, t}, nil
}

func parse(source string) ([]stmt, error) {
	if len(source) > maxSource {
		return nil, &Error{Msg: fmt.Sprintf("it has %d bytes; the most is %d", len(source), maxSource)}
	}
	toks, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks, names: map[string]bool{}}
	return p.body()
}

// named puts the template's name into an error.
func named(name string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Template: name, Err: err}
	}
	out := *e
	out.Template = name
	return &out
}

// render is the state of one rendering.
type render struct {
	out   *strings.Builder
	steps int
	bytes int
	depth int
	now   func() time.Time
}

// Render renders the template with variables; now is the clock of
// strftime_now.
func (t *Template) Render(vars *Dict, limits Limits, now func() time.Time) (string, error) {
	if limits.Steps == 0 {
		limits.Steps = DefaultSteps
	}
	if limits.Bytes == 0 {
		limits.Bytes = DefaultBytes
	}
	r := &render{out: &strings.Builder{}, steps: limits.Steps, bytes: limits.Bytes, now: now}
	top := newScope(newScope(nil))
	for name, fn := range globals {
		top.parent.set(name, fn)
	}
	for i, k := range vars.keys {
		name, ok := k.(string)
		if !ok {
			return "", named(t.name, fmt.Errorf("the variable %v has no name", k))
		}
		top.parent.set(name, vars.vals[i])
	}
	if err := (&frame{r, top}).run(t.body); err != nil {
		return "", named(t.name, err)
	}
	return r.out.String(), nil
}

// step pays for n steps.
func (r *render) step(n int) error {
	if r.steps -= n; r.steps < 0 {
		return fmt.Errorf("%w: more steps than the limit", ErrLimit)
	}
	return nil
}

// made pays for n bytes of text, or as many elements of a list.
func (r *render) made(n int) error {
	if r.bytes -= n; r.bytes < 0 {
		return fmt.Errorf("%w: more bytes than the limit", ErrLimit)
	}
	return r.step(n / 16)
}

// elementBytes is what an element of a list is counted for.
const elementBytes = 16

// list pays for a list and makes it.
func (r *render) list(items []any) (*List, error) {
	return &List{Items: items}, r.made(elementBytes * len(items))
}

// text pays for a text.
func (r *render) text(s string) (any, error) { return s, r.made(len(s)) }

// write puts text out.
func (r *render) write(s string) error {
	r.out.WriteString(s)
	return r.made(len(s))
}

// scope holds the names of a block; what it lacks is looked up around it.
type scope struct {
	names  []string
	vals   []any
	index  map[string]int // of the names, once they are many
	parent *scope
}

// manyNames is the number from which names are indexed.
const manyNames = 8

func newScope(parent *scope) *scope { return &scope{parent: parent} }

// find gives the place of a name of this scope, -1 for none.
func (s *scope) find(name string) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	return slices.Index(s.names, name)
}

func (s *scope) set(name string, v any) {
	if i := s.find(name); i >= 0 {
		s.vals[i] = v
		return
	}
	s.names, s.vals = append(s.names, name), append(s.vals, v)
	if s.index != nil {
		s.index[name] = len(s.names) - 1
	} else if len(s.names) > manyNames {
		s.index = map[string]int{}
		for i, name := range s.names {
			s.index[name] = i
		}
	}
}

func (s *scope) lookup(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if i := s.find(name); i >= 0 {
			return s.vals[i], true
		}
	}
	return nil, false
}

// frame is where statements run.
type frame struct {
	r  *render
	sc *scope
}

// inner is a frame with a scope of its own.
func (f *frame) inner() *frame { return &frame{f.r, newScope(f.sc)} }

// captured runs statements and gives what they put out.
func (f *frame) captured(body []stmt) (string, error) {
	out := f.r.out
	f.r.out = &strings.Builder{}
	err := f.run(body)
	text := f.r.out.String()
	f.r.out = out
	return text, err
}

// errBreak and errContinue leave a loop's body.
var errBreak, errContinue = errors.New("break"), errors.New("continue")

// run runs statements in order.
func (f *frame) run(body []stmt) error {
	if err := f.r.step(4); err != nil {
		return err
	}
	if err := f.enter(); err != nil {
		return err
	}
	defer f.leave()
	for _, s := range body {
		if err := f.r.step(1); err != nil {
			return err
		}
		if err := s.run(f); err != nil {
			return err
		}
	}
	return nil
}

func (f *frame) enter() error {
	if f.r.depth++; f.r.depth > maxDepth {
		return fmt.Errorf("%w: calls and expressions within each other, more than %d deep", ErrLimit, maxDepth)
	}
	return nil
}

func (f *frame) leave() { f.r.depth-- }

// eval evaluates an expression.
func (f *frame) eval(e expr) (any, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.leave()
	if err := f.r.step(1); err != nil {
		return nil, err
	}
	return e.eval(f)
}

// at puts a line to an error that has none.
func at(line int, err error) error {
	var e *Error
	if err == nil || errors.As(err, &e) || err == errBreak || err == errContinue {
		return err
	}
	return &Error{Line: line, Err: err}
}
