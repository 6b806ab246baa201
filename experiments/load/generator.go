package load

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/experiments/workload"
)

// Options say how a plan is put on a server.
type Options struct {
	// Client talks to the server, whose Dialect decides what a request asks
	// for; Model is what the server calls its model.
	Client  *outside.Client
	Dialect outside.Dialect
	Model   string
	// Extra are fields of every request's body, beside those that the plan
	// decides: sampling, speculation.
	Extra map[string]any
	Plan  *workload.Plan
	// Warmup is the number of sessions, the first, that count as warm-up.
	Warmup int
	// Seconds ends the load: after it nothing is sent, and what is under way
	// is waited for. 0 sends everything.
	Seconds float64
	// IdleCap, if not 0, bounds the time in which nothing is in flight and
	// everything waits for a pause: all pauses end so much sooner.
	IdleCap time.Duration
	// Progress is told how many requests of how many have ended; may be nil.
	Progress func(done, of int)
}

// Result is what a load came to.
type Result struct {
	// Rows are in the order of the plan; requests that were never sent have
	// none.
	Rows      []Row
	Generator Generator
	// Ended is the time from the load's beginning to its end.
	Ended time.Duration
}

// errNotSent marks rows of requests that were not sent; they are left out.
var errNotSent = errors.New("not sent")

// due is a request that is to be sent.
type due struct {
	at               time.Duration
	session, request int
}

// dues is a heap of them, the earliest first, and of one time the one that the plan
// has first.
type dues []due

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, j int) bool {
	a, b := d[i], d[j]
	if a.at != b.at {
		return a.at < b.at
	}
	return a.session < b.session || a.session == b.session && a.request < b.request
}
func (d dues) Swap(i, j int) { d[i], d[j] = d[j], d[i] }

// Push implements heap.Interface.
func (d *dues) Push(x any) { *d = append(*d, x.(due)) }

// Pop implements heap.Interface.
func (d *dues) Pop() any {
	old := *d
	last := old[len(old)-1]
	*d = old[:len(old)-1]
	return last
}

// generator is a load under way. Its fields belong to the goroutine of run, save
// the rows of requests that are in flight, each of which is its asker's.
type generator struct {
	Options
	start    time.Time
	queue    dues
	rows     [][]Row
	waiting  [][]int // number of requests that each one waits for
	left     []int   // requests of a session that have not ended
	lane     []int   // of a session
	next     int     // session
	inFlight int
	ended    chan due
	done, of int
	asks     sync.WaitGroup
}

// Run sends a plan and returns when every answer has ended. Requests that fail are
// rows with an error; an error is returned only where ctx ended the load, beside
// what there is.
func Run(ctx context.Context, o Options) (*Result, error) {
	g := &generator{Options: o, start: time.Now(), ended: make(chan due, 64), of: o.Plan.Requests()}
	g.prepare()
	g.warm(ctx)
	g.start = time.Now()
	lag := watch()
	g.begin()
	g.run(ctx)
	g.asks.Wait()
	res := &Result{Ended: time.Since(g.start), Generator: Generator{Wake: lag.stop()}}
	for _, s := range g.rows {
		for _, r := range s {
			if r.Error != errNotSent.Error() {
				res.Rows = append(res.Rows, r)
			}
		}
	}
	g.health(res)
	return res, context.Cause(ctx)
}

// prepare makes the rows.
func (g *generator) prepare() {
	for i := range g.Plan.Sessions {
		s := &g.Plan.Sessions[i]
		rows, waiting := make([]Row, len(s.Requests)), make([]int, len(s.Requests))
		for j := range s.Requests {
			r := &s.Requests[j]
			rows[j] = Row{
				Request: r.ID, Session: s.ID, Class: r.Class, Agent: r.Agent, Turn: r.Turn, Phase: Measured, Prompt: len(r.Tokens),
				Sched: -1, Sent: -1, First: -1, Last: -1, End: -1, Cached: -1, Drafted: -1, Accepted: -1, Error: errNotSent.Error(),
			}
			if r.Warm || i < g.Warmup {
				rows[j].Phase = Warmup
			}
			waiting[j] = len(r.After)
		}
		g.rows, g.waiting = append(g.rows, rows), append(g.waiting, waiting)
		g.left, g.lane = append(g.left, len(rows)), append(g.lane, 0)
	}
}

// warm sends the requests that prepare sessions, all at once, and waits for them:
// what waits for them finds them ended at the load's beginning.
func (g *generator) warm(ctx context.Context) {
	for i := range g.Plan.Sessions {
		for j := range g.Plan.Sessions[i].Requests {
			if g.Plan.Sessions[i].Requests[j].Warm {
				g.send(ctx, due{0, i, j})
			}
		}
	}
	for g.inFlight > 0 {
		d := <-g.ended
		g.inFlight--
		g.done++
		g.left[d.session]--
		row := &g.rows[d.session][d.request]
		row.Sched, row.Sent, row.First, row.Last, row.End = -1, -1, -1, -1, -1 // before the load began
		if row.OK() {
			row.Error = "warm-up of a session: not timed"
		}
		for j, r := range g.Plan.Sessions[d.session].Requests {
			if slices.Contains(r.After, d.request) {
				g.waiting[d.session][j]--
			}
		}
	}
}

// begin starts the first sessions.
func (g *generator) begin() {
	if g.Plan.Lanes == 0 {
		for i := range g.Plan.Sessions {
			g.open(i, g.Plan.Sessions[i].At)
		}
		return
	}
	for lane := range min(g.Plan.Lanes, len(g.Plan.Sessions)) {
		g.lane[g.next] = lane
		g.open(g.next, 0)
		g.next++
	}
}

// open starts a session: what waits for nothing is due after its pause.
func (g *generator) open(session int, at time.Duration) {
	for j, r := range g.Plan.Sessions[session].Requests {
		if g.waiting[session][j] == 0 && !r.Warm {
			heap.Push(&g.queue, due{at + r.Pause, session, j})
		}
	}
}

// run sends what is due until all has ended.
func (g *generator) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for g.inFlight > 0 || len(g.queue) > 0 {
		now := time.Since(g.start)
		if ctx.Err() != nil || g.Seconds > 0 && now.Seconds() >= g.Seconds {
			g.queue = nil
		}
		g.shift(now)
		for len(g.queue) > 0 && g.queue[0].at <= now {
			g.send(ctx, heap.Pop(&g.queue).(due))
		}
		wait := time.Duration(math.MaxInt64)
		if len(g.queue) > 0 {
			wait = g.queue[0].at - now
		}
		if g.Seconds > 0 {
			if until := time.Duration(g.Seconds*float64(time.Second)) - now; until > 0 {
				wait = min(wait, until)
			}
		}
		if g.inFlight == 0 && len(g.queue) == 0 {
			return
		}
		timer.Reset(wait)
		select {
		case d := <-g.ended:
			g.end(d)
		case <-timer.C:
		case <-ctx.Done():
			g.queue = nil
			for g.inFlight > 0 {
				g.end(<-g.ended)
				g.queue = nil
			}
		}
	}
}

// shift brings everything forward when nothing is in flight for longer than the cap.
func (g *generator) shift(now time.Duration) {
	if g.IdleCap == 0 || g.inFlight > 0 || len(g.queue) == 0 {
		return
	}
	if by := g.queue[0].at - now - g.IdleCap; by > 0 {
		for i := range g.queue {
			g.queue[i].at -= by
		}
	}
}

// send asks for an answer in a goroutine of its own.
func (g *generator) send(ctx context.Context, d due) {
	row := &g.rows[d.session][d.request]
	row.Error, row.Sched, row.Lane = "", int64(d.at), g.lane[d.session]
	g.inFlight++
	g.asks.Go(func() {
		g.ask(ctx, &g.Plan.Sessions[d.session].Requests[d.request], row)
		g.ended <- d
	})
}

// end takes note of an answer's end: what waited for it may be due, and the lane
// free.
func (g *generator) end(d due) {
	g.inFlight--
	g.done++
	if g.Progress != nil {
		g.Progress(g.done, g.of)
	}
	s := &g.Plan.Sessions[d.session]
	end := time.Duration(g.rows[d.session][d.request].End)
	for j := d.request + 1; j < len(s.Requests); j++ {
		if r := &s.Requests[j]; slices.Contains(r.After, d.request) {
			if g.waiting[d.session][j]--; g.waiting[d.session][j] == 0 {
				heap.Push(&g.queue, due{end + r.Pause, d.session, j})
			}
		}
	}
	if g.left[d.session]--; g.left[d.session] == 0 && g.Plan.Lanes > 0 && g.next < len(g.Plan.Sessions) {
		g.lane[g.next] = g.lane[d.session]
		g.open(g.next, end)
		g.next++
	}
}
