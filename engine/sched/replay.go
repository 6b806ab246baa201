package sched

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ErrTrace: a text is not a trace.
var ErrTrace = errors.New("not a scheduler trace")

// ErrDiffers: a trace's plans are not those that the scheduler makes.
var ErrDiffers = errors.New("plan differs from the trace")

// maxTracePages bounds Slots, Pages and Snapshots of a trace that is replayed,
// so that a short text cannot ask for all memory.
const maxTracePages = 1 << 20

// maxTraceLine is the longest line of a trace, in bytes.
const maxTraceLine = 1 << 26

// Replay runs a trace that a Tracer wrote through a new core and compares its
// plans with the trace's. It returns the number of plans that were equal. The
// error names the line; it wraps ErrTrace if the text is not a trace (one cut
// short is), and ErrDiffers at the first plan that is not equal.
func Replay(r io.Reader) (plans int, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxTraceLine)
	p := replayer{}
	for line := 1; in.Scan(); line++ {
		text := in.Text()
		if body, ok := strings.CutPrefix(text, "\t"); ok {
			p.body = append(p.body, body)
			continue
		}
		if err := p.run(); err != nil {
			return p.plans, fmt.Errorf("trace line %d: %w", p.line, err)
		}
		p.event, p.line, p.body = text, line, nil
	}
	if err := in.Err(); err != nil {
		return p.plans, fmt.Errorf("trace after line %d: %w", p.line, err)
	}
	if err := p.run(); err != nil {
		return p.plans, fmt.Errorf("trace line %d: %w", p.line, err)
	}
	return p.plans, nil
}

// replayer holds an event until its body is complete.
type replayer struct {
	core  *Core
	event string
	line  int
	body  []string
	plans int
}

func (p *replayer) run() error {
	name, rest, _ := strings.Cut(p.event, " ")
	if p.core == nil && p.event != "" && name != "config" {
		return fmt.Errorf("%w: %q before config", ErrTrace, name)
	}
	if len(p.body) > 0 && name != "plan" && name != "commit" {
		return fmt.Errorf("%w: indented lines under %q", ErrTrace, p.event)
	}
	switch name {
	case "":
		return nil
	case "config":
		return p.config(rest)
	case "submit":
		return p.submit(rest)
	case "cancel":
		id, err := parseInt(rest, 64)
		if err == nil && !p.core.Cancel(id) {
			err = fmt.Errorf("no sequence %d", id)
		}
		return wrapTrace(err)
	case "drafts":
		f := fields{rest: rest}
		id, k := f.id(), f.num("k")
		if f.err == nil {
			f.err = p.core.Drafts(id, k)
		}
		return wrapTrace(f.err)
	case "plan":
		return p.plan()
	case "commit":
		return p.commit()
	}
	return fmt.Errorf("%w: event %q", ErrTrace, name)
}

func (p *replayer) config(rest string) error {
	f := fields{rest: rest}
	cfg := Config{
		Slots: f.num("slots"), Pages: f.num("pages"), SlotPages: f.num("slot-pages"),
		MaxBatchTokens: f.num("rows"), Chunk: f.num("chunk"), MaxSpans: f.num("spans"),
		Lookahead: f.num("lookahead"), PrefixCache: f.flag("prefix"), Recurrent: f.flag("recurrent"),
		Snapshots: f.num("snapshots"), Policy: f.next("policy"),
		PrefillShare: f.num("share"), Expect: f.num("expect"), Sessions: f.num("sessions"),
	}
	if f.err == nil && max(cfg.Slots, cfg.Pages, cfg.Snapshots) > maxTracePages {
		f.err = fmt.Errorf("more than %d slots, pages or snapshots", maxTracePages)
	}
	if f.err == nil {
		p.core, f.err = New(cfg)
	}
	return wrapTrace(f.err)
}

func (p *replayer) submit(rest string) error {
	f := fields{rest: rest}
	r := Request{
		ID: f.id(), MaxLen: f.num("max"), K: f.num("k"), Fixed: f.flag("fixed"), Priority: f.num("priority"),
		Session: f.quoted("session"), Space: f.quoted("space"), Prompt: f.tokens("prompt"),
	}
	if f.err == nil {
		f.err = p.core.Submit(r)
	}
	return wrapTrace(f.err)
}

func (p *replayer) plan() error {
	if p.core.inFlight {
		return fmt.Errorf("%w: plan before the commit of the last", ErrTrace)
	}
	want := strings.Join(p.body, "\n") + "\n"
	if got := p.core.Plan().String(); got != want {
		return fmt.Errorf("%w:\n%sbut the trace has\n%s", ErrDiffers, got, want)
	}
	p.plans++
	return nil
}

func (p *replayer) commit() error {
	var results []Result
	for _, line := range p.body {
		f := fields{rest: line}
		r := Result{ID: f.id(), Kept: f.num("kept"), Tokens: f.tokens("tokens"), Done: f.flag("done")}
		if f.err != nil {
			return wrapTrace(f.err)
		}
		results = append(results, r)
	}
	return wrapTrace(p.core.Commit(results))
}

func wrapTrace(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrTrace, err)
}

// fields takes a line apart from the left; the first error sticks.
type fields struct {
	rest string
	err  error
}

func (f *fields) word() string {
	var w string
	w, f.rest, _ = strings.Cut(f.rest, " ")
	return w
}

func (f *fields) next(key string) string {
	w := f.word()
	v, ok := strings.CutPrefix(w, key+"=")
	if !ok && f.err == nil {
		f.err = fmt.Errorf("%q where %s= belongs", w, key)
	}
	return v
}

func (f *fields) id() int64 {
	v, err := parseInt(f.word(), 64)
	f.fail(err)
	return v
}

func (f *fields) num(key string) int {
	v, err := parseInt(f.next(key), 32)
	f.fail(err)
	return int(v)
}

func (f *fields) flag(key string) bool {
	s := f.next(key)
	if s != "true" && s != "false" {
		f.fail(fmt.Errorf("%s=%q, want true or false", key, s))
	}
	return s == "true"
}

// quoted takes a key whose value is a quoted text, which may have spaces in it.
func (f *fields) quoted(key string) string {
	rest := strings.TrimPrefix(f.rest, key+"=")
	text, err := strconv.QuotedPrefix(rest)
	if err != nil || rest == f.rest {
		f.fail(fmt.Errorf("%s is not quoted", key))
		return ""
	}
	f.rest = strings.TrimPrefix(rest[len(text):], " ")
	text, err = strconv.Unquote(text)
	f.fail(err)
	return text
}

func (f *fields) tokens(key string) []int32 {
	v, err := parseTokens(f.next(key))
	f.fail(err)
	return v
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}
