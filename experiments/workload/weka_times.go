package workload

// wekaNode is a request of a trace in its place: what it waits for, and how long.
type wekaNode struct {
	*wekaRequest
	agent  string
	turn   int
	prefix int       // tokens of tools and system prompt, which all plays share
	next   *wekaNode // of the same agent, whose prompt continues this one's
	after  []int     // in the order of nodes
	pause  float64   // seconds
}

// slack is how much, in seconds, times may be off: they are rounded to seconds in
// parts of the corpus.
const slack = 1.0

// groupTimes gives when each subagent of a trace began and ended. The corpora
// disagree on what a subagent's t is: its start, or the moment at which it was
// done. Of the two the reading is taken under which more subagents lie between the
// turns that surround them; the start, if both do as well.
func (t *wekaTrace) groupTimes() (starts, ends map[int]float64) {
	reading := func(done bool) (starts, ends map[int]float64, fit int) {
		starts, ends = map[int]float64{}, map[int]float64{}
		before := 0.0
		for i := range t.Requests {
			r := &t.Requests[i]
			if r.Type != wekaGroup {
				before = r.end()
				continue
			}
			starts[i], ends[i] = r.T, r.T+r.Duration/1000
			if done {
				starts[i], ends[i] = r.T-r.Duration/1000, r.T
			}
			if next := t.nextRoot(i); starts[i] >= before-slack && (next < 0 || ends[i] <= t.Requests[next].T+slack) {
				fit++
			}
		}
		return starts, ends, fit
	}
	starts, ends, fit := reading(false)
	if s, e, better := reading(true); better > fit {
		return s, e
	}
	return starts, ends
}

// nextRoot is the index of the first request of the session itself behind i, -1
// where there is none.
func (t *wekaTrace) nextRoot(i int) int {
	for j := i + 1; j < len(t.Requests); j++ {
		if t.Requests[j].Type != wekaGroup {
			return j
		}
	}
	return -1
}

// nodes lays a trace out: each request behind all that it waits for. A turn waits
// for the turn before it and for the subagents that had ended by then; a subagent
// that was still at work gates nothing.
func (t *wekaTrace) nodes() []*wekaNode {
	starts, ends := t.groupTimes()
	var all []*wekaNode
	add := func(n *wekaNode) int { all = append(all, n); return len(all) - 1 }
	root, turn := -1, 0
	type ended struct {
		node int
		at   float64
	}
	var open []ended // last requests of subagents since the last turn
	for i := range t.Requests {
		r := &t.Requests[i]
		if r.Type == wekaGroup {
			if last := t.group(r, root, starts[i], add, &all); last >= 0 {
				open = append(open, ended{last, ends[i]})
			}
			continue
		}
		n := &wekaNode{wekaRequest: r, turn: turn, prefix: t.Tools + t.System}
		if root >= 0 {
			before := all[root]
			before.next = n
			n.after = []int{root}
			last, joined := before.end(), false
			for _, c := range open {
				if c.at <= r.T+slack {
					n.after = append(n.after, c.node)
					last, joined = max(last, c.at), true
				}
			}
			n.pause = max(0, r.T-last)
			if !joined && r.Think != nil {
				n.pause = *r.Think
			}
		}
		root, turn, open = add(n), turn+1, nil
	}
	return all
}

// group adds the requests of a subagent, which follow one another, and returns the
// last of them, -1 where there is none.
func (t *wekaTrace) group(g *wekaRequest, parent int, start float64, add func(*wekaNode) int, all *[]*wekaNode) int {
	last := -1
	for i := range g.Requests {
		r := &g.Requests[i]
		n := &wekaNode{wekaRequest: r, agent: g.Agent, turn: i, prefix: g.Tools + g.System}
		if last < 0 {
			n.after, n.pause = []int{parent}, max(0, start-(*all)[parent].end())
		} else {
			before := (*all)[last]
			before.next = n
			n.after, n.pause = []int{last}, max(0, r.T-before.end())
			if r.Think != nil {
				n.pause = *r.Think
			}
		}
		last = add(n)
	}
	return last
}
