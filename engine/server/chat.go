package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"exacta.dev/exacta/engine/chat"
)

// chatPrompt is what a chat request came to.
type chatPrompt struct {
	text     string
	family   family
	use      toolUse
	thinking bool // the prompt ends inside of reasoning
}

// renderChat makes the prompt of a chat request by the model's template.
func (s *Server) renderChat(q *chatRequest) (*chatPrompt, error) {
	if s.cfg.Model.Chat == nil || s.cfg.Model.Tokenizer == nil {
		return nil, invalid("messages", "this model has no chat template; use /v1/completions, or start the server with --chat-template FILE")
	}
	use, err := toolsOf(q)
	if err != nil {
		return nil, err
	}
	o := chat.Options{AddGenerationPrompt: !q.ContinueFinal, Continue: q.ContinueFinal}
	if q.AddGenerationPrompt != nil {
		if o.AddGenerationPrompt = *q.AddGenerationPrompt; o.AddGenerationPrompt && o.Continue {
			return nil, invalid("add_generation_prompt", "add_generation_prompt and continue_final_message: give one of them")
		}
	}
	if use.offer {
		if o.Tools, err = chat.ParseTools(q.Tools); err != nil {
			return nil, invalid("tools", "%v", err)
		}
	}
	if !rawNull(q.Documents) {
		if o.Documents, err = chat.ParseDocuments(q.Documents); err != nil {
			return nil, invalid("documents", "%v", err)
		}
	}
	if q.ReasoningEffort != "" {
		effort, _ := marshal(q.ReasoningEffort)
		_ = o.Variables.Set("reasoning_effort", effort)
	}
	for name, value := range q.TemplateVars {
		if err := o.Variables.Set(name, value); err != nil {
			return nil, invalid("chat_template_kwargs", "chat_template_kwargs: %v", err)
		}
	}
	text, err := plainMessages(q.Messages)
	if err != nil {
		return nil, err
	}
	messages, err := chat.ParseMessages(text)
	if err != nil {
		return nil, invalid("messages", "%v", err)
	}
	t, err := s.cfg.Model.Chat.Pick("", use.offer)
	if err != nil {
		return nil, invalid("messages", "%v", err)
	}
	prompt, err := t.Render(messages, o)
	if err != nil {
		return nil, invalid("messages", "%v", err)
	}
	f := familyOf(t)
	thinking := f.thinkOpen != "" && strings.HasSuffix(strings.TrimRight(prompt, " \t\r\n"), f.thinkOpen)
	return &chatPrompt{text: prompt, family: f, use: use, thinking: thinking}, nil
}

// plainMessages turns contents that are lists of texts into texts, and arguments of
// tool calls, which are JSON in a text, into objects, as templates expect them.
func plainMessages(raw json.RawMessage) ([]byte, error) {
	if rawNull(raw) {
		return nil, invalid("messages", "messages is missing")
	}
	var messages []map[string]json.RawMessage
	if json.Unmarshal(raw, &messages) != nil {
		return nil, invalid("messages", "messages: it must be a list of objects with role and content")
	}
	for i, m := range messages {
		if m == nil {
			return nil, invalid("messages", "messages[%d] is null", i)
		}
		if c := bytes.TrimSpace(m["content"]); len(c) > 0 && c[0] == '[' {
			text, err := joinParts(c)
			if err != nil {
				return nil, invalid("messages", "messages[%d].content: %v", i, err)
			}
			m["content"] = text
		}
		if calls := m["tool_calls"]; !rawNull(calls) {
			fixed, err := objectArguments(calls)
			if err != nil {
				return nil, invalid("messages", "messages[%d].tool_calls: %v", i, err)
			}
			m["tool_calls"] = fixed
		}
	}
	return marshal(messages)
}

// joinParts makes one text of a list of texts.
func joinParts(raw []byte) (json.RawMessage, error) {
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return nil, errors.New("it must be a text, or a list of {type: text, text}")
	}
	var all []string
	for i, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return nil, fmt.Errorf("part %d is of type %q; this model takes text", i, short(p.Type))
		}
		all = append(all, *p.Text)
	}
	return marshal(strings.Join(all, "\n"))
}

// objectArguments reads the arguments of tool calls, which are JSON in a text.
func objectArguments(raw json.RawMessage) (json.RawMessage, error) {
	var calls []map[string]json.RawMessage
	if json.Unmarshal(raw, &calls) != nil {
		return nil, errors.New("it must be a list of calls")
	}
	for i, c := range calls {
		var f map[string]json.RawMessage
		if json.Unmarshal(c["function"], &f) != nil || f == nil {
			return nil, fmt.Errorf("call %d has no function", i)
		}
		var text string
		if json.Unmarshal(f["arguments"], &text) == nil {
			if strings.TrimSpace(text) == "" {
				text = "{}"
			}
			if !json.Valid([]byte(text)) {
				return nil, fmt.Errorf("the arguments of call %d are no JSON", i)
			}
			f["arguments"] = json.RawMessage(text)
		}
		fixed, err := marshal(f)
		if err != nil {
			return nil, err
		}
		c["function"] = fixed
	}
	return marshal(calls)
}

// handleChat is POST /v1/chat/completions.
func (s *Server) handleChat(w http.ResponseWriter, r *http.Request, who *client) error {
	arrived := time.Now()
	var q chatRequest
	if err := s.decode(w, r, &q); err != nil {
		return err
	}
	if err := s.named(q.Model); err != nil {
		return err
	}
	p, err := s.renderChat(&q)
	if err != nil {
		return err
	}
	special := false // the template has them
	if q.AddSpecial != nil {
		special = *q.AddSpecial
	}
	ids, err := s.encode(p.text, special)
	if err != nil {
		return err
	}
	limit, name := q.MaxCompletionTokens, "max_completion_tokens"
	if limit == nil {
		limit, name = q.MaxTokens, "max_tokens"
	}
	if ids, err = s.truncate(ids, &q.common, value(limit)); err != nil {
		return err
	}
	pattern, param, err := q.pattern()
	if err != nil {
		return err
	}
	call, err := p.use.pattern(p.family)
	switch {
	case err != nil:
		return err
	case call != "" && pattern != "":
		return invalid("tool_choice", "tool_choice forces a call and %s another answer; give one of them", param)
	case call != "":
		pattern, param = call, "tool_choice"
	}
	if q.BestOf != nil {
		return invalid("best_of", "best_of is for text completions; use n")
	}
	top := -1
	if q.LogProbs {
		if top = value(q.TopLogProbs); top < 0 {
			return invalid("top_logprobs", "top_logprobs is %d; it must be 0 to %d", top, s.cfg.Limits.TopLogs)
		}
	} else if q.TopLogProbs != nil && *q.TopLogProbs != 0 {
		return invalid("top_logprobs", "top_logprobs needs logprobs")
	}
	g, err := s.newGeneration(spec{
		kind: "chat", prefix: "chatcmpl-", c: &q.common, prompts: [][]int32{ids}, max: limit, maxParam: name, top: top,
		pattern: p.family.afterThinking(pattern, p.thinking), patternParam: param,
		skipSpecial: s.skips(&q.common) && !(p.use.offer && p.family.special), who: who, arrived: arrived,
	})
	if err != nil {
		return err
	}
	return s.answer(w, r, g, newChatAnswers(g, &q, p))
}

// value is what a pointer points to, or zero.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// skips says whether special tokens are left out of texts.
func (s *Server) skips(c *common) bool { return c.SkipSpecial == nil || *c.SkipSpecial }
