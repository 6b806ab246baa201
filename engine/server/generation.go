package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/sample"
)

// generation is a request on its way: for each prompt, n choices, each a job.
type generation struct {
	s       *Server
	id      string // of the answer
	kind    string // chat or completion
	created int64
	c       *common
	n       int // jobs of each prompt
	told    int // of them, the answers that the client is told
	top     int // top log-probabilities; -1 asks for none
	ofTop   int // those of the prompt, likewise
	drafted drafted
	prompts [][]int32
	texts   []*text // by job
	jobs    []*job  // those of one prompt together
	ready   chan struct{}
	arrived time.Time
	who     *client
	trace   *lifeSpan
}

// spec is what newGeneration makes jobs of.
type spec struct {
	kind, prefix string
	c            *common
	prompts      [][]int32
	max          *int
	maxParam     string
	byDefault    int
	top          int
	pattern      string // a grammar
	patternParam string
	skipSpecial  bool
	who          *client
	arrived      time.Time
}

// newGeneration checks a request and makes its jobs.
func (s *Server) newGeneration(q spec) (*generation, error) {
	g := &generation{
		s: s, kind: q.kind, created: time.Now().Unix(), c: q.c, n: 1, top: q.top,
		ready: make(chan struct{}, 1), arrived: q.arrived, who: q.who, prompts: q.prompts,
	}
	tag := randomID()
	g.id = q.prefix + tag
	if err := errors.Join(g.count(), g.promptTop(q.kind)); err != nil {
		return nil, err
	}
	if d := q.c.Deadline; d != nil && *d < 1 {
		return nil, invalid("deadline_ms", "deadline_ms is %d; it must be at least 1", *d)
	}
	if total, most := g.n*len(q.prompts), s.cfg.Limits.Open; total > most {
		return nil, invalid("n", "the request asks for %d answers, of at most %d", total, most)
	}
	if q.top > s.cfg.Limits.TopLogs {
		return nil, invalid("logprobs", "log-probabilities of %d tokens are asked for, of at most %d", q.top, s.cfg.Limits.TopLogs)
	}
	params, err := s.sampling(q.c)
	if err != nil {
		return nil, err
	}
	params.Grammar = q.pattern
	compiled, err := s.constrained(q.patternParam, q.pattern)
	if err != nil {
		return nil, err
	}
	if g.drafted, err = s.speculate(q.c.Speculation, params); err != nil {
		return nil, err
	}
	stop, err := s.stops(q.c)
	if err != nil {
		return nil, err
	}
	for i, ids := range q.prompts {
		if len(ids) == 0 {
			return nil, invalid("prompt", "the prompt is empty; it needs at least one token")
		}
		most, err := s.newTokens(q.max, q.maxParam, q.byDefault, len(ids))
		if err != nil {
			return nil, err
		}
		for choice := range g.n {
			p := params
			p.Choice = uint32(choice)
			g.add(fmt.Sprintf("%s/%s-%d", g.point(), tag, i*g.n+choice), ids, most, p, compiled, stop, q.skipSpecial)
		}
	}
	return g, nil
}

// count works out how many answers are made for each prompt, and told.
func (g *generation) count() error {
	if g.c.N != nil {
		g.n = *g.c.N
	}
	most := g.s.cfg.Limits.Choices
	if g.n < 1 || g.n > most {
		return invalid("n", "n is %d; it must be 1 to %d", g.n, most)
	}
	g.told = g.n
	if g.c.BestOf == nil {
		return nil
	}
	switch best := *g.c.BestOf; {
	case best < g.n || best > most:
		return invalid("best_of", "best_of is %d; it must be n, which is %d, to %d", best, g.n, most)
	case best > g.n && g.c.Stream:
		return invalid("best_of", "best_of above n with stream: which answers are best is known when all have ended")
	default:
		g.n = best
	}
	return nil
}

// promptTop works out whether log-probabilities of prompts are wanted: as a field of
// the answer, or in front of those of a text completion that echoes.
func (g *generation) promptTop(kind string) error {
	g.ofTop = -1
	param := "prompt_logprobs"
	if p := g.c.PromptLogProbs; p != nil {
		if *p < 0 || *p > g.s.cfg.Limits.TopLogs {
			return invalid(param, "prompt_logprobs is %d; it must be 0 to %d", *p, g.s.cfg.Limits.TopLogs)
		}
		if g.c.Stream {
			return invalid(param, "prompt_logprobs with stream is not supported")
		}
		g.ofTop = *p
	}
	if kind == "completion" && g.c.Echo && g.top >= 0 {
		g.ofTop = max(g.ofTop, g.top)
		param = "echo"
	}
	if g.ofTop >= 0 && !g.s.cfg.PromptLogs {
		return invalid(param, "%s: log-probabilities of prompts need a server that was started with prompt_logprobs", param)
	}
	return nil
}

// ranks says whether the likeliest answers are chosen when all have ended.
func (g *generation) ranks() bool { return g.told < g.n }

// randomID is the part of an id that no other has.
func randomID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// point names how the request is decided, as the points of a run are named: the
// statistics of records are by it.
func (g *generation) point() string {
	d := g.drafted
	if d.drafter == "" {
		return "plain." + d.rule.Name()
	}
	return fmt.Sprintf("%s.k%d.%s", d.Strategy, d.K, d.rule.Name())
}

// add makes a job.
func (g *generation) add(id string, prompt []int32, most int, p sample.Params, compiled *grammar.Grammar, stop []int32, skipSpecial bool) {
	s := g.s
	j := &job{
		accepted: make(chan error, 1), box: newOutbox(s.cfg.Limits.Buffer, g.ready), detail: g.drafted.detail, arrived: g.arrived,
		req: engine.Request{
			ID: id, Prompt: prompt, MaxNew: most, Params: p, Drafter: g.drafted.drafter, K: g.drafted.K, Rule: g.drafted.rule,
			Stop: stop, Grammar: compiled, Salt: g.salt(), Session: g.c.Session, Priority: -g.c.Priority,
		},
	}
	if t := s.cfg.Model.Tokenizer; len(g.c.Stop) > 0 && t != nil {
		j.stops = t.NewStops(g.c.Stop, skipSpecial)
		j.req.Until = j.stops
	}
	if g.top >= 0 || g.ranks() {
		j.req.Observe = j.observe(max(0, g.top))
	}
	if g.ofTop >= 0 {
		j.req.ObservePrompt, j.req.Salt = j.observePrompt(g.ofTop), j.req.Salt+"\x00"+id
	}
	j.asked = &Asked{Request: j.req, Rule: g.drafted.rule.Name(), Strategy: g.drafted.Strategy, Stops: g.c.Stop, SkipSpecial: skipSpecial}
	g.jobs = append(g.jobs, j)
	g.texts = append(g.texts, newText(s.cfg.Model.Tokenizer, g.c, skipSpecial))
}

// salt separates the prefix cache by key, unless it is shared, and by what the
// request says.
func (g *generation) salt() string {
	if g.s.cfg.ShareCache || g.who.key == nil {
		return g.c.CacheSalt
	}
	return g.who.key.Name + "\x00" + g.c.CacheSalt
}

// start hands the jobs to the engine. After an error none is left.
func (g *generation) start(ctx context.Context) error {
	if err := g.s.reserve(len(g.jobs)); err != nil {
		return err
	}
	for i, j := range g.jobs {
		g.log(func(l Log) { l.Asked(j.asked) })
		err := g.s.worker.submit(ctx, j)
		if err == nil {
			continue
		}
		g.log(func(l Log) { l.Ended(&Ended{ID: j.req.ID, Finish: engine.FinishCancel}) })
		rest := len(g.jobs) - i
		g.jobs = g.jobs[:i]
		g.abandon("refused")
		g.s.release(rest)
		if errors.Is(err, errDead) || ctx.Err() != nil {
			return err
		}
		return refusal(err)
	}
	return nil
}

// refusal is the engine's reason for not taking a request, for the client.
func refusal(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // without the engine's own id
	}
	return failure(http.StatusBadRequest, badRequest, "", "", "%v", err)
}

// log calls the log, if there is one.
func (g *generation) log(f func(Log)) {
	if g.s.cfg.Log != nil {
		f(g.s.cfg.Log)
	}
}

// cancel asks the worker to end all jobs.
func (g *generation) cancel(why string) {
	for _, j := range g.jobs {
		g.s.worker.cancel(j, why)
	}
}

// abandon ends the jobs that are left, and waits for them.
func (g *generation) abandon(why string) {
	g.cancel(why)
	_ = g.follow(context.Background(), func(int, event) error { return nil })
}

// pastDeadline is why jobs are cancelled of which the deadline has passed.
const pastDeadline = "its deadline (deadline_ms) has passed"

// follow passes the events of the jobs to each, in order for each job, until all
// have ended. When the client goes away, or each returns an error, or the request's
// deadline passes, the jobs are cancelled and their ends are still waited for.
func (g *generation) follow(ctx context.Context, each func(i int, e event) error) (err error) {
	open := len(g.jobs)
	gone := ctx.Done()
	var late <-chan time.Time
	if d := g.c.Deadline; d != nil {
		t := time.NewTimer(time.Until(g.arrived.Add(time.Duration(*d) * time.Millisecond)))
		defer t.Stop()
		late = t.C
	}
	stop := func(why error) {
		if err == nil {
			err = why
			g.cancel("client went away")
		}
	}
	for open > 0 {
		select {
		case <-g.ready:
		case <-gone:
			gone = nil
			stop(ctx.Err())
			continue
		case <-late:
			g.cancel(pastDeadline)
			continue
		}
		for i, j := range g.jobs {
			for _, e := range j.box.take() {
				g.trace.step(j, e)
				if e.end != nil {
					open--
					g.ended(j, e.end)
				}
				if err == nil {
					if failed := each(i, e); failed != nil {
						stop(failed)
					}
				}
			}
		}
	}
	return err
}

// since is the time from one moment to another; 0 where that never came.
func since(from, to time.Time) time.Duration {
	if to.IsZero() {
		return 0
	}
	return to.Sub(from)
}

// ended takes note of the end of a job.
func (g *generation) ended(j *job, end *ending) {
	g.s.release(1)
	g.log(func(l Log) {
		c := end.counts
		l.Ended(&Ended{
			ID: j.req.ID, Output: j.output, Finish: end.finish, Queue: since(j.arrived, c.Scheduled), First: since(j.arrived, c.First), Total: since(j.arrived, c.Ended),
		})
	})
	g.s.meter.ended(g, j, end)
	g.who.spend(end.counts.Emitted)
	g.trace.ended(j, end)
}
