package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

func init() {
	RegisterSource(Info[Source]{"mooncake", "a trace of Mooncake: lengths, shared blocks and times of a service", func() Source {
		return &Mooncake{Shrink: 1}
	}})
}

// mooncakeBlock is the number of tokens that a hash id of a Mooncake trace stands
// for.
const mooncakeBlock = 512

// Mooncake replays a trace in the format that Mooncake published (FAST '25):
// requests with a time, lengths, and the ids of the blocks of 512 tokens that their
// prompts begin with. Prompts are made of tokens that are the same for the same
// block, so that prefixes are shared as they were.
type Mooncake struct {
	// File is the JSONL file of the trace.
	File string `yaml:"file"`
	// Limit takes the first so many requests; 0 takes all.
	Limit int `yaml:"limit"`
	// Shrink divides all lengths, for small models: blocks have 512/shrink
	// tokens. 1, 2, 4, ... 512.
	Shrink int `yaml:"shrink"`
	// MaxTokens leaves out requests of more tokens, prompt and output together,
	// after shrinking; 0 leaves out none.
	MaxTokens int `yaml:"max_tokens"`
}

// mooncakeLine is a line of a trace.
type mooncakeLine struct {
	Timestamp *float64 `json:"timestamp"` // ms
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	Blocks    []int64  `json:"hash_ids"`
}

// Validate implements Source.
func (s *Mooncake) Validate() error {
	switch {
	case s.File == "":
		return errors.New("file is empty; it is the trace")
	case s.Shrink < 1 || s.Shrink > mooncakeBlock || s.Shrink&(s.Shrink-1) != 0:
		return fmt.Errorf("shrink is %d; it is a power of two from 1 to %d", s.Shrink, mooncakeBlock)
	case s.Limit < 0 || s.MaxTokens < 0:
		return errors.New("limit and max_tokens are not negative")
	}
	return nil
}

// Load implements Source.
func (s *Mooncake) Load(env Env) ([]Session, error) {
	if env.Vocab < 1 {
		return nil, errNoTokens
	}
	text, err := os.ReadFile(s.File)
	if err != nil {
		return nil, fmt.Errorf("mooncake: %w", err)
	}
	lines, err := parseMooncake(s.File, text)
	if err != nil {
		return nil, err
	}
	var out []Session
	for i, l := range lines {
		if s.Limit > 0 && len(out) == s.Limit {
			break
		}
		input, output := max(1, l.Input/s.Shrink), max(1, l.Output/s.Shrink)
		if s.MaxTokens > 0 && input+output > s.MaxTokens {
			continue
		}
		r := Request{ID: fmt.Sprintf("mooncake-%d", i), MaxTokens: output, Exact: true}
		for _, id := range l.Blocks {
			r.Tokens = append(r.Tokens, env.block("mooncake", id, min(mooncakeBlock/s.Shrink, input-len(r.Tokens)))...)
		}
		if rest := input - len(r.Tokens); rest > 0 {
			r.Tokens = append(r.Tokens, env.block("mooncake rest", int64(i), rest)...)
		}
		out = append(out, Session{ID: r.ID, At: time.Duration(*l.Timestamp * float64(time.Millisecond)), Requests: []Request{r}})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no request of %d has at most %d tokens", s.File, len(lines), s.MaxTokens)
	}
	return out, nil
}

// parseMooncake reads a trace. Errors name file and line.
func parseMooncake(name string, text []byte) (out []mooncakeLine, err error) {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var l mooncakeLine
		err := json.Unmarshal(line, &l)
		switch {
		case err != nil:
		case l.Timestamp == nil || !(*l.Timestamp >= 0 && *l.Timestamp <= longest*1000):
			err = errors.New("timestamp is missing, or no number of milliseconds from 0")
		case l.Input < 1 || l.Input > maxTokens || l.Output < 0 || l.Output > maxTokens:
			err = fmt.Errorf("input_length %d, output_length %d; they are at most %d, and an input has a token", l.Input, l.Output, maxTokens)
		case len(l.Blocks) > (l.Input+mooncakeBlock-1)/mooncakeBlock:
			err = fmt.Errorf("%d hash_ids for an input of %d tokens; each stands for %d", len(l.Blocks), l.Input, mooncakeBlock)
		case len(out) > 0 && *l.Timestamp < *out[0].Timestamp:
			err = errors.New("timestamp is before the first one")
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no requests", name)
	}
	return out, nil
}
