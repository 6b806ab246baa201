package outside

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Tokenizer turns text into ids and back; that of package tokenizer is one.
type Tokenizer interface {
	Encode(text string, special bool) []int32
	Decode(ids []int32, skipSpecial bool) string
}

// Plan says what to ask a server.
type Plan struct {
	// Prompts are token ids; they are asked in turn, again from the first
	// where there are fewer than Requests.
	Prompts [][]int32
	// Requests is the number of requests at each level, Concurrency the
	// requests in flight, level by level.
	Requests    int
	Concurrency []int
	MaxTokens   int
	// Tokenizer of the model, for servers that don't give token ids; may be
	// nil.
	Tokenizer Tokenizer
	// Plain is a second server of the same model without speculation; may be
	// nil.
	Plain *Client
	// Progress, if not nil, is told what is being done.
	Progress func(string)
}

// Level is what happened at one level of concurrency in one mode.
type Level struct {
	Concurrency int  `json:"concurrency"`
	Mode        Mode `json:"mode"`
	// Counters are what the server counted meanwhile; nil where it counts
	// nothing, or NoCounters says what went wrong.
	Counters   *Counters `json:"counters,omitempty"`
	NoCounters string    `json:"no_counters,omitempty"`
	Fell       []string  `json:"fell,omitempty"` // counters that went down
	Answers    []*Answer `json:"-"`
}

// Evidence is all that an audit of a server has.
type Evidence struct {
	Server    *Server
	MaxTokens int
	// AsText says that prompts were sent as text, since the server takes no
	// token ids.
	AsText bool
	Levels []*Level
}

// collector is the state of Collect.
type collector struct {
	c     *Client
	s     *Server
	p     Plan
	start time.Time
	ev    *Evidence
}

// Collect finds out what a server is and runs a plan against it. It fails where
// no answer came at all; single requests that fail are kept as such.
func Collect(ctx context.Context, c *Client, p Plan) (*Evidence, error) {
	if len(p.Prompts) == 0 || p.Requests < 1 || p.MaxTokens < 1 || len(p.Concurrency) == 0 || slices.Min(p.Concurrency) < 1 {
		return nil, errors.New("endpoint: a plan needs prompts, requests, tokens and a concurrency of at least 1 each")
	}
	if p.Progress == nil {
		p.Progress = func(string) {}
	}
	s, err := c.Find(ctx)
	if err != nil {
		return nil, err
	}
	r := &collector{c: c, s: s, p: p, start: time.Now(), ev: &Evidence{Server: s, MaxTokens: p.MaxTokens}}
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	modes := []Mode{AsServed}
	if r.switches(ctx) {
		modes = append(modes, Off)
	}
	for _, n := range p.Concurrency {
		for _, mode := range modes {
			if err := r.level(ctx, c, s, n, mode); err != nil {
				return nil, err
			}
		}
	}
	if p.Plain != nil {
		return r.ev, r.plain(ctx)
	}
	return r.ev, nil
}

// plain asks the server without speculation, one request at a time.
func (r *collector) plain(ctx context.Context) error {
	s, err := r.p.Plain.Find(ctx)
	if err != nil {
		return err
	}
	return r.level(ctx, r.p.Plain, s, 1, PlainServer)
}

// warm sends one request that isn't counted, and finds out whether the server
// takes token ids.
func (r *collector) warm(ctx context.Context) error {
	r.p.Progress("a first request")
	a := r.ask(ctx, r.c, r.s, r.p.Prompts[0], AsServed)
	var status *StatusError
	if errors.As(a.Err, &status) && (status.Status == http.StatusBadRequest || status.Status == http.StatusUnprocessableEntity) && r.p.Tokenizer != nil && r.s.Dialect == Unknown {
		r.ev.AsText = true
		a = r.ask(ctx, r.c, r.s, r.p.Prompts[0], AsServed)
	}
	if a.Err != nil {
		return fmt.Errorf("%s: %w", r.c.base, a.Err)
	}
	return nil
}

// switches finds out whether a request can switch speculation off. llama-server
// could for a time, and takes the field without heeding it in other versions.
func (r *collector) switches(ctx context.Context) bool {
	if !r.s.Dialect.wire().off {
		return false
	}
	r.p.Progress("a request without speculation")
	a := r.ask(ctx, r.c, r.s, r.p.Prompts[0], Off)
	return a.Err == nil && a.Stated != nil && a.Stated.Proposed != nil && *a.Stated.Proposed == 0
}

// level runs the plan's requests with n in flight.
func (r *collector) level(ctx context.Context, c *Client, s *Server, n int, mode Mode) error {
	l := &Level{Concurrency: n, Mode: mode, Answers: make([]*Answer, max(n, r.p.Requests))}
	r.ev.Levels = append(r.ev.Levels, l)
	before, err := c.counters(ctx, s)
	if err != nil {
		l.NoCounters = err.Error()
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for i := range next {
				a := r.ask(ctx, c, s, r.p.Prompts[i%len(r.p.Prompts)], mode)
				a.ID = fmt.Sprintf("%s, %d in flight, %d", mode, n, i)
				l.Answers[i] = a
			}
		})
	}
	for i := range l.Answers {
		r.p.Progress(fmt.Sprintf("%s, %d in flight: request %d of %d", mode, n, i+1, len(l.Answers)))
		next <- i
	}
	close(next)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	failed := 0
	for _, a := range l.Answers {
		if a.Err != nil {
			failed++
		}
	}
	if failed == len(l.Answers) {
		return fmt.Errorf("%s: every request failed with %d in flight; the first: %w", c.base, n, l.Answers[0].Err)
	}
	if before != nil {
		r.settle(ctx, c, s, before, l)
	}
	return nil
}

// settle reads the counters until they have caught up with what was received, or
// for 3 s.
func (r *collector) settle(ctx context.Context, c *Client, s *Server, before *Counters, l *Level) {
	want := 0
	for _, a := range l.Answers {
		want += max(0, a.tokens())
	}
	for range 30 {
		after, err := c.counters(ctx, s)
		if err != nil {
			l.Counters, l.NoCounters = nil, err.Error()
			return
		}
		l.Counters, l.Fell = after.Since(before)
		if g := l.Counters.Generated; g != nil && *g >= float64(want) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ask sends one request and reads its stream.
func (r *collector) ask(ctx context.Context, c *Client, s *Server, prompt []int32, mode Mode) *Answer {
	w := s.Dialect.wire()
	a := &Answer{Prompt: prompt, Mode: mode, Used: -1, PromptUsed: -1}
	var what any = prompt
	if r.ev.AsText {
		what = r.p.Tokenizer.Decode(prompt, true)
	}
	begin := time.Now()
	a.Sent = begin.Sub(r.start)
	ended, err := c.Stream(ctx, w.path, w.body(s, what, r.p.MaxTokens, mode), func() time.Duration { return time.Since(begin) }, func(e Event) error {
		n, err := w.read(a, e.Data)
		if n != 0 {
			a.Pieces = append(a.Pieces, Piece{e.At, n})
		}
		return err
	})
	a.End = time.Since(begin)
	switch {
	case err != nil:
		a.Err = err
	case a.Finish == "" && ended:
		a.Err = fmt.Errorf("%s: %w", w.path, errNoStream)
	case a.Finish == "":
		a.Err = fmt.Errorf("%s: the stream was cut off after %d pieces, before the answer's end", w.path, len(a.Pieces))
	}
	a.Exact = len(a.IDs) > 0
	if !a.Exact && r.p.Tokenizer != nil && a.Text != "" {
		a.IDs = r.p.Tokenizer.Encode(a.Text, false)
	}
	return a
}
