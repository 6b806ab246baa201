package server

import (
	"fmt"

	"exacta.dev/exacta/engine/tokenizer"
)

// chatAnswers writes the answers of a chat request.
type chatAnswers struct {
	g       *generation
	q       *chatRequest
	tok     *tokenizer.Tokenizer
	choices []chatChoice
	reason  bool // reasoning is told
}

// chatChoice is an answer so far.
type chatChoice struct {
	speech    *speech
	reasoning string
	content   string
	calls     []map[string]any
	logs      []chatLog
	ids       []int32
	steps     []*stepView
	finish    string
	stop      any
	begun     bool
}

// chatLog is the log-probability of a token as chat answers have it.
type chatLog struct {
	Token string     `json:"token"`
	Log   float64    `json:"logprob"`
	Bytes []int      `json:"bytes"`
	Top   *[]chatLog `json:"top_logprobs,omitempty"`
}

func newChatAnswers(g *generation, q *chatRequest, p *chatPrompt) *chatAnswers {
	a := &chatAnswers{g: g, q: q, tok: g.s.cfg.Model.Tokenizer, reason: q.IncludeReasoning == nil || *q.IncludeReasoning}
	for range g.jobs {
		a.choices = append(a.choices, chatChoice{speech: newSpeech(p.family, p.text, p.use.offer, p.use.kinds())})
	}
	return a
}

// piece is what an event adds to an answer.
type piece struct {
	said   []said
	logs   []chatLog
	ids    []int32
	step   *stepView
	finish string // on the last one
	stop   any
}

// take turns an event into a piece.
func (a *chatAnswers) take(i int, e event) piece {
	g, j, c := a.g, a.g.jobs[i], &a.choices[i]
	p := piece{ids: e.ids, step: e.step}
	for _, l := range e.logs {
		p.logs = append(p.logs, a.log(l))
	}
	if text := g.text(i, e); text != "" {
		p.said = c.speech.push(text)
	}
	if e.end == nil {
		return p
	}
	p.said = append(p.said, c.speech.end()...)
	p.finish, p.stop = g.finishReason(j, e.end)
	return p
}

// log is a log-probability as chat answers have it.
func (a *chatAnswers) log(l tokenLog) chatLog {
	one := func(id int32, log float64) chatLog {
		c := chatLog{Token: a.tok.TokenText(id), Log: finite(log), Bytes: []int{}}
		for _, b := range a.tok.TokenBytes(id) {
			c.Bytes = append(c.Bytes, int(b))
		}
		return c
	}
	out := one(l.id, l.log)
	out.Top = &[]chatLog{}
	for _, t := range l.top {
		*out.Top = append(*out.Top, one(t.id, t.log))
	}
	return out
}

// add implements answers.
func (a *chatAnswers) add(i int, e event) {
	p, c := a.take(i, e), &a.choices[i]
	for _, s := range p.said {
		c.reasoning += s.reasoning
		c.content += s.content
		if s.call != nil {
			c.calls = append(c.calls, a.call(c, s.call, false))
		}
	}
	c.logs, c.ids = append(c.logs, p.logs...), append(c.ids, p.ids...)
	if p.step != nil {
		c.steps = append(c.steps, p.step)
	}
	if e.end != nil {
		c.finish, c.stop = p.finish, p.stop
	}
}

// call is a tool call as answers have it; in a stream it has its index.
func (a *chatAnswers) call(c *chatChoice, t *toolCall, index bool) map[string]any {
	v := map[string]any{
		"id": fmt.Sprintf("call_%s", randomID()), "type": "function",
		"function": map[string]any{"name": t.name, "arguments": t.arguments},
	}
	if index {
		v["index"] = len(c.calls)
	}
	return v
}

// body implements answers.
func (a *chatAnswers) body(u *usage) map[string]any {
	var list []map[string]any
	for i := range a.choices {
		c := &a.choices[i]
		message := map[string]any{"role": "assistant", "content": c.content}
		if c.content == "" && len(c.calls) > 0 {
			message["content"] = nil
		}
		if a.reason && c.reasoning != "" {
			message["reasoning"] = c.reasoning
		}
		if len(c.calls) > 0 {
			message["tool_calls"] = c.calls
		}
		choice := map[string]any{"index": i, "message": message, "finish_reason": a.finish(c), "stop_reason": c.stop, "logprobs": nil}
		if a.g.top >= 0 {
			choice["logprobs"] = map[string]any{"content": c.logs}
		}
		a.g.decorate(choice, c.ids, c.steps)
		list = append(list, choice)
	}
	v := a.g.head("chat.completion")
	v["choices"], v["usage"] = list, u
	if a.g.c.PromptLogProbs != nil {
		v["prompt_logprobs"] = a.g.promptLogs(0)
	}
	if a.g.c.ReturnTokenIDs {
		v["prompt_token_ids"] = a.g.prompts[0]
	}
	return v
}

// finish is why the answer ended: calls count more than the end of the text.
func (a *chatAnswers) finish(c *chatChoice) string {
	if c.finish == "stop" && len(c.calls) > 0 {
		return "tool_calls"
	}
	return c.finish
}

// chunks implements answers.
func (a *chatAnswers) chunks(i int, e event) (list []map[string]any) {
	c := &a.choices[i]
	if !c.begun {
		c.begun = true
		list = append(list, a.chunk(i, map[string]any{"role": "assistant", "content": ""}))
		if a.g.c.ReturnTokenIDs {
			list[0]["prompt_token_ids"] = a.g.prompts[0]
		}
	}
	p := a.take(i, e)
	for _, s := range p.said {
		switch {
		case s.call != nil:
			call := a.call(c, s.call, true)
			c.calls = append(c.calls, call)
			list = append(list, a.chunk(i, map[string]any{"tool_calls": []any{call}}))
		case s.reasoning != "" && a.reason:
			list = append(list, a.chunk(i, map[string]any{"reasoning": s.reasoning}))
		case s.content != "":
			list = append(list, a.chunk(i, map[string]any{"content": s.content}))
		}
	}
	if len(list) == 0 && (len(p.logs) > 0 || p.step != nil || e.end != nil || a.g.c.ReturnTokenIDs && len(p.ids) > 0) {
		list = append(list, a.chunk(i, map[string]any{}))
	}
	if len(list) == 0 {
		return nil
	}
	choice := list[len(list)-1]["choices"].([]map[string]any)[0]
	if len(p.logs) > 0 {
		choice["logprobs"] = map[string]any{"content": p.logs}
	}
	var steps []*stepView
	if p.step != nil {
		steps = append(steps, p.step)
	}
	a.g.decorate(choice, p.ids, steps)
	if e.end != nil {
		c.finish = p.finish
		choice["finish_reason"], choice["stop_reason"] = a.finish(c), p.stop
	}
	return list
}

// chunk is a piece of an answer in a stream.
func (a *chatAnswers) chunk(i int, delta map[string]any) map[string]any {
	v := a.g.head("chat.completion.chunk")
	v["choices"] = []map[string]any{{"index": i, "delta": delta, "finish_reason": nil}}
	return v
}
