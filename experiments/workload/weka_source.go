package workload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func init() {
	RegisterSource(Info[Source]{"weka", "recorded agent sessions: turns, pauses, subagents and growing prompts", func() Source {
		return &Weka{Shrink: 1, Pauses: 1}
	}})
}

// Weka replays agent sessions in the Weka format, as AgentX does: a turn is sent
// its recorded pause after the answer before it ended; prompts are the recorded
// ones, whatever the answers were, made of blocks that are the same where the
// recording's were; outputs have the recorded lengths; a subagent starts with a
// context of its own, beside others that were at work at the same time, and the
// turn that used its answer waits for it.
//
// Each play of a trace has its own blocks behind the tools and the system prompt,
// so that no play hits the cache of another further than a real session would.
type Weka struct {
	// Path is a trace, or a directory of traces (*.json), taken in the order of
	// names.
	Path string `yaml:"path"`
	// Sessions is the number of plays: more than there are traces play them
	// again, in an order that the seed decides; 0 plays each once.
	Sessions int `yaml:"sessions"`
	// Start is an interval of 0..1: each lane's first session begins at a turn
	// that is drawn from there, with the turn before it as warm-up. Empty
	// begins at the first turn.
	Start []float64 `yaml:"start"`
	// Shrink divides lengths of prompts and outputs, and Pauses multiplies
	// pauses, for small models; others than 1 are no replay of the trace.
	Shrink int     `yaml:"shrink"`
	Pauses float64 `yaml:"pauses"`
	// MaxTokens leaves out requests of more tokens, prompt and output together,
	// after shrinking; 0 leaves out none.
	MaxTokens int `yaml:"max_tokens"`
	// MaxTurns keeps the first so many turns of a session, and of each of its
	// subagents; 0 keeps all.
	MaxTurns int `yaml:"max_turns"`
}

// Validate implements Source.
func (s *Weka) Validate() error {
	switch {
	case s.Path == "":
		return errors.New("path is empty; it is a trace or a directory of traces")
	case s.Sessions < 0 || s.Sessions > maxSessions:
		return fmt.Errorf("sessions is %d; it is 0 to %d", s.Sessions, maxSessions)
	case len(s.Start) != 0 && (len(s.Start) != 2 || !(s.Start[0] >= 0 && s.Start[1] >= s.Start[0] && s.Start[1] <= 1)):
		return fmt.Errorf("start is %v; it is an interval like [0.25, 0.75]", s.Start)
	case s.Shrink < 1 || s.Shrink > 1<<16:
		return fmt.Errorf("shrink is %d; it is 1 to %d", s.Shrink, 1<<16)
	case !(s.Pauses >= 0 && s.Pauses <= 1000):
		return fmt.Errorf("pauses is %v; it is 0 to 1000", s.Pauses)
	case s.MaxTokens < 0 || s.MaxTurns < 0:
		return errors.New("max_tokens and max_turns are not negative")
	}
	return nil
}

// Load implements Source.
func (s *Weka) Load(env Env) ([]Session, error) {
	if env.Vocab < 1 {
		return nil, errNoTokens
	}
	traces, err := s.traces()
	if err != nil {
		return nil, err
	}
	n := s.Sessions
	if n == 0 {
		n = len(traces)
	}
	order, starts := env.rand(forOrder), env.rand(forStarts)
	var deck []int
	out := make([]Session, 0, n)
	for i := range n {
		if len(deck) == 0 {
			deck = order.Perm(len(traces))
		}
		t := traces[deck[0]]
		deck = deck[1:]
		start := 0.0
		if len(s.Start) == 2 && i < env.Lanes {
			start = s.Start[0] + (s.Start[1]-s.Start[0])*starts.Float64()
		}
		session := s.play(&env, t, i, start)
		if len(session.Requests) == 0 {
			return nil, fmt.Errorf("trace %s: no request of it has at most %d tokens", t.ID, s.MaxTokens)
		}
		out = append(out, session)
	}
	return out, nil
}

func (s *Weka) traces() ([]*wekaTrace, error) {
	files := []string{s.Path}
	if info, err := os.Stat(s.Path); err != nil {
		return nil, fmt.Errorf("weka: %w", err)
	} else if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(s.Path, "*.json")); err != nil {
			return nil, fmt.Errorf("weka: %w", err)
		}
		slices.Sort(files)
	}
	var out []*wekaTrace
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("weka: %w", err)
		}
		t, err := parseWeka(name, text)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("weka: no *.json in %s", s.Path)
	}
	return out, nil
}

// play makes the session of the i-th play, from a share of its turns on.
func (s *Weka) play(env *Env, t *wekaTrace, i int, start float64) Session {
	nodes := t.nodes()
	kept := s.keep(nodes, start)
	out := Session{ID: fmt.Sprintf("%s-%d", t.ID, i)}
	at := map[int]int{} // of nodes, in the session
	for j, n := range nodes {
		if kept[j] == dropped {
			continue
		}
		r := Request{
			ID: strings.TrimSuffix(fmt.Sprintf("%s/%d/%s", out.ID, n.turn, n.agent), "/"), Agent: n.agent, Turn: n.turn,
			MaxTokens: max(1, n.Out/s.Shrink), Exact: true, Warm: kept[j] == warm,
			Tokens: s.prompt(env, t, n, out.ID),
		}
		for _, a := range waits(nodes, kept, n.after) {
			r.After = append(r.After, at[a])
		}
		if len(r.After) > 0 {
			r.Pause = seconds(n.pause * s.Pauses)
		}
		at[j] = len(out.Requests)
		out.Requests = append(out.Requests, r)
	}
	return out
}

// What becomes of a node.
const (
	dropped = iota
	warm
	played
)

// keep says what becomes of each node: those before the start point and those that
// are too long are left out.
func (s *Weka) keep(nodes []*wekaNode, start float64) []int {
	turns := 0
	for _, n := range nodes {
		if n.agent == "" {
			turns++
		}
	}
	first := min(turns-1, int(start*float64(turns)))
	kept, turn := make([]int, len(nodes)), 0
	for j, n := range nodes {
		if n.agent == "" {
			turn = n.turn
		}
		switch {
		case s.MaxTurns > 0 && n.turn >= s.MaxTurns+first || s.MaxTokens > 0 && n.In/s.Shrink+max(1, n.Out/s.Shrink) > s.MaxTokens:
		case turn >= first:
			kept[j] = played
		case turn == first-1 && n.agent == "":
			kept[j] = warm
		}
	}
	return kept
}

// waits replaces nodes that are left out by what they wait for themselves.
func waits(nodes []*wekaNode, kept []int, after []int) (out []int) {
	for _, a := range after {
		if kept[a] != dropped {
			out = append(out, a)
			continue
		}
		for _, b := range waits(nodes, kept, nodes[a].after) {
			if !slices.Contains(out, b) {
				out = append(out, b)
			}
		}
	}
	return out
}

// prompt makes the tokens of a request's prompt: its blocks, and behind them the
// beginning of the block that the agent's next prompt has there, if it continues
// this one.
func (s *Weka) prompt(env *Env, t *wekaTrace, n *wekaNode, play string) []int32 {
	total := max(1, n.In/s.Shrink)
	var out []int32
	put := func(index int, id int64) {
		to := min(total, (index+1)*t.BlockSize/s.Shrink)
		scope := play
		if (index+1)*t.BlockSize <= n.prefix {
			scope = t.ID
		}
		if length := to - len(out); length > 0 {
			out = append(out, env.block(scope, id, length)...)
		}
	}
	for i, id := range n.Hash {
		put(i, id)
	}
	if rest := len(n.Hash); len(out) < total && n.next != nil && len(n.next.Hash) > rest && slices.Equal(n.next.Hash[:rest], n.Hash) {
		put(rest, n.next.Hash[rest])
	}
	if rest := total - len(out); rest > 0 {
		out = append(out, env.block(fmt.Sprintf("%s/%s", play, n.agent), -1-int64(n.turn), rest)...)
	}
	return out
}
