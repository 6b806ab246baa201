package server

import (
	"cmp"
	"net/http"
	"slices"
	"time"
)

// handleCompletion is POST /v1/completions.
func (s *Server) handleCompletion(w http.ResponseWriter, r *http.Request, who *client) error {
	arrived := time.Now()
	var q completionRequest
	if err := s.decode(w, r, &q); err != nil {
		return err
	}
	if err := s.named(q.Model); err != nil {
		return err
	}
	special := q.AddSpecial == nil || *q.AddSpecial
	all := q.Prompt.ids
	if n, most := len(all)+len(q.Prompt.texts), s.cfg.Limits.Prompts; n > most {
		return invalid("prompt", "there are %d prompts, of at most %d", n, most)
	}
	for _, text := range q.Prompt.texts {
		ids, err := s.encode(text, special)
		if err != nil {
			return err
		}
		all = append(all, ids)
	}
	if len(all) == 0 {
		return invalid("prompt", "prompt is missing or empty")
	}
	for i, ids := range all {
		err := s.ids(ids)
		if err == nil {
			all[i], err = s.truncate(ids, &q.common, value(q.MaxTokens))
		}
		if err != nil {
			return err
		}
	}
	top := -1
	if q.LogProbs != nil {
		if top = *q.LogProbs; top < 0 {
			return invalid("logprobs", "logprobs is %d; it must be 0 to %d", top, s.cfg.Limits.TopLogs)
		}
	}
	pattern, param, err := q.pattern()
	if err != nil {
		return err
	}
	g, err := s.newGeneration(spec{
		kind: "completion", prefix: "cmpl-", c: &q.common, prompts: all, max: q.MaxTokens, maxParam: "max_tokens", byDefault: 16, top: top,
		pattern: pattern, patternParam: param, skipSpecial: s.skips(&q.common), who: who, arrived: arrived,
	})
	if err != nil {
		return err
	}
	return s.answer(w, r, g, newTextAnswers(g, q.Prompt.texts))
}

// textAnswers writes the answers of a text completion.
type textAnswers struct {
	g       *generation
	prompts []string // with echo, by prompt
	choices []textChoice
}

// textChoice is an answer so far.
type textChoice struct {
	text   string
	length int // bytes told, of which logprobs give the offsets
	logs   *textLogs
	ids    []int32
	sum    float64 // of the log-probabilities of its tokens, where answers are ranked
	steps  []*stepView
	finish string
	stop   any
	begun  bool
}

// textLogs are log-probabilities as text completions have them.
type textLogs struct {
	Offsets []int                `json:"text_offset"`
	Logs    []any                `json:"token_logprobs"` // null where there is none
	Tokens  []string             `json:"tokens"`
	Top     []map[string]float64 `json:"top_logprobs"`
}

func newTextAnswers(g *generation, texts []string) *textAnswers {
	a := &textAnswers{g: g, choices: make([]textChoice, len(g.jobs))}
	if !g.c.Echo {
		return a
	}
	a.prompts = texts
	if t := g.s.cfg.Model.Tokenizer; len(texts) == 0 && t != nil {
		for _, ids := range g.prompts {
			a.prompts = append(a.prompts, t.Decode(ids, false))
		}
	}
	return a
}

// take returns what an event adds to the text.
func (a *textAnswers) take(i int, e event) (text string, logs *textLogs) {
	g, c := a.g, &a.choices[i]
	var before []tokenLog // of the prompt that is echoed
	if !c.begun {
		c.begun = true
		if len(a.prompts) > 0 {
			text = a.prompts[i/g.n]
			if g.top >= 0 {
				before = append([]tokenLog{{id: g.prompts[i/g.n][0]}}, g.jobs[i].promptLogs...)
			} else {
				c.length = len(text)
			}
		}
	}
	if g.top >= 0 {
		logs = a.logs(c, append(before, e.logs...))
	}
	for _, l := range e.logs {
		c.sum += finite(l.log)
	}
	text += g.text(i, e)
	if e.end != nil {
		c.finish, c.stop = g.finishReason(g.jobs[i], e.end)
	}
	return text, logs
}

// logs are the log-probabilities of a step, or nil.
func (a *textAnswers) logs(c *textChoice, list []tokenLog) *textLogs {
	if len(list) == 0 {
		return nil
	}
	spell := a.g.s.tokenText
	out := &textLogs{}
	for _, l := range list {
		out.Offsets, out.Tokens = append(out.Offsets, c.length), append(out.Tokens, spell(l.id))
		c.length += len(spell(l.id))
		if l.rank == 0 { // the first of a prompt
			out.Logs, out.Top = append(out.Logs, nil), append(out.Top, nil)
			continue
		}
		out.Logs = append(out.Logs, finite(l.log))
		top := map[string]float64{spell(l.id): finite(l.log)}
		for _, x := range l.top[:min(len(l.top), a.g.top)] {
			top[spell(x.id)] = finite(x.log)
		}
		out.Top = append(out.Top, top)
	}
	return out
}

// add implements answers.
func (a *textAnswers) add(i int, e event) {
	text, logs := a.take(i, e)
	c := &a.choices[i]
	c.text += text
	c.ids = append(c.ids, e.ids...)
	if e.step != nil {
		c.steps = append(c.steps, e.step)
	}
	switch {
	case logs == nil:
	case c.logs == nil:
		c.logs = logs
	default:
		l := c.logs
		l.Offsets, l.Logs, l.Tokens, l.Top = append(l.Offsets, logs.Offsets...), append(l.Logs, logs.Logs...), append(l.Tokens, logs.Tokens...), append(l.Top, logs.Top...)
	}
}

// told are the answers that the client is told: all, or of each prompt the likeliest
// by token, these first; of equal ones those that were asked for first.
func (a *textAnswers) told() []int {
	list := make([]int, len(a.choices))
	for i := range list {
		list[i] = i
	}
	if !a.g.ranks() {
		return list
	}
	mean := func(i int) float64 { return a.choices[i].sum / float64(max(1, len(a.choices[i].ids))) }
	var best []int
	for of := range slices.Chunk(list, a.g.n) {
		slices.SortStableFunc(of, func(i, j int) int { return cmp.Compare(mean(j), mean(i)) })
		best = append(best, of[:a.g.told]...)
	}
	return best
}

// body implements answers.
func (a *textAnswers) body(u *usage) map[string]any {
	var list []map[string]any
	for _, i := range a.told() {
		c := &a.choices[i]
		choice := map[string]any{"index": len(list), "text": c.text, "finish_reason": c.finish, "stop_reason": c.stop, "logprobs": c.logs}
		if a.g.c.ReturnTokenIDs {
			choice["prompt_token_ids"] = a.g.prompts[i/a.g.n]
		}
		if a.g.c.PromptLogProbs != nil {
			choice["prompt_logprobs"] = a.g.promptLogs(i)
		}
		a.g.decorate(choice, c.ids, c.steps)
		list = append(list, choice)
	}
	v := a.g.head("text_completion")
	v["choices"], v["usage"] = list, u
	return v
}

// chunks implements answers.
func (a *textAnswers) chunks(i int, e event) []map[string]any {
	begun := a.choices[i].begun
	text, logs := a.take(i, e)
	if text == "" && logs == nil && e.end == nil && e.step == nil && !(a.g.c.ReturnTokenIDs && len(e.ids) > 0) {
		return nil
	}
	choice := map[string]any{"index": i, "text": text, "finish_reason": nil}
	if logs != nil {
		choice["logprobs"] = logs
	}
	if e.end != nil {
		choice["finish_reason"], choice["stop_reason"] = a.choices[i].finish, a.choices[i].stop
	}
	if a.g.c.ReturnTokenIDs && !begun {
		choice["prompt_token_ids"] = a.g.prompts[i/a.g.n]
	}
	var steps []*stepView
	if e.step != nil {
		steps = append(steps, e.step)
	}
	a.g.decorate(choice, e.ids, steps)
	v := a.g.head("text_completion")
	v["choices"] = []map[string]any{choice}
	return []map[string]any{v}
}
