package server

import (
	"math"
	"slices"
)

// tokenLog is the log-probability of a token that was chosen, and of the likeliest
// ones at its place, before temperature, penalties and grammar.
type tokenLog struct {
	id   int32
	log  float64
	rank int // 1 is the likeliest
	top  []topLog
}

// topLog is the log-probability of one of the likeliest tokens.
type topLog struct {
	id  int32
	log float64
}

// observe keeps the log-probabilities of tokens until their step's record is there.
func (j *job) observe(top int) func(id int32, logits []float32) {
	return func(id int32, logits []float32) { j.logs = append(j.logs, logOf(id, logits, top)) }
}

// observePrompt keeps the log-probabilities of the prompt's tokens but the first,
// which has none. What is there is not written again: handlers read it.
func (j *job) observePrompt(top int) func(position int, logits []float32) {
	j.promptLogs = make([]tokenLog, len(j.req.Prompt)-1)
	return func(position int, logits []float32) {
		if l := &j.promptLogs[position-1]; l.rank == 0 {
			*l = logOf(j.req.Prompt[position], logits, top)
		}
	}
}

// promptLog is a token of a prompt as vLLM's servers tell it.
type promptLog struct {
	Log   float64 `json:"logprob"`
	Rank  int     `json:"rank"`
	Token string  `json:"decoded_token"`
}

// promptLogs are those of a job by place, each with the token's and the likeliest
// ones by id; the first is null.
func (g *generation) promptLogs(i int) []map[int32]promptLog {
	list := []map[int32]promptLog{nil}
	for _, l := range g.jobs[i].promptLogs {
		at := map[int32]promptLog{}
		for rank, x := range l.top {
			at[x.id] = promptLog{finite(x.log), rank + 1, g.s.tokenText(x.id)}
		}
		at[l.id] = promptLog{finite(l.log), l.rank, g.s.tokenText(l.id)}
		list = append(list, at)
	}
	return list
}

// tokenText is the text of a token; empty where the model has no tokenizer.
func (s *Server) tokenText(id int32) string {
	if t := s.cfg.Model.Tokenizer; t != nil {
		return t.TokenText(id)
	}
	return ""
}

// takeLogs returns those of the n tokens that a step emitted.
func (j *job) takeLogs(n int) []tokenLog {
	n = min(n, len(j.logs))
	logs := slices.Clone(j.logs[:n])
	j.logs = j.logs[:0]
	return logs
}

// logOf is the log-softmax at a row of logits, for a token and the top likeliest:
// of equal ones those of lower id, the likeliest first.
func logOf(id int32, logits []float32, top int) tokenLog {
	largest := slices.Max(logits)
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l - largest))
	}
	norm := float64(largest) + math.Log(sum)
	t := tokenLog{id: id, log: float64(logits[id]) - norm, rank: 1}
	for i, l := range logits {
		if l > logits[id] {
			t.rank++
		}
		if top == 0 || len(t.top) == top && float64(l)-norm <= t.top[top-1].log {
			continue
		}
		x := topLog{int32(i), float64(l) - norm}
		at, _ := slices.BinarySearchFunc(t.top, x, func(a, b topLog) int {
			if a.log >= b.log { // those of lower id came before
				return -1
			}
			return 1
		})
		if len(t.top) == top {
			t.top = t.top[:top-1]
		}
		t.top = slices.Insert(t.top, at, x)
	}
	return t
}
