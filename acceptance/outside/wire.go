package outside

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// wire is how a dialect is asked and how it answers.
type wire struct {
	path string
	body func(s *Server, prompt any, maxTokens int, mode Mode) map[string]any
	// read takes one event into an answer.
	read func(a *Answer, data []byte) (piece int, err error)
	// off says that a request can switch speculation off.
	off bool
	// perStep says that a step's tokens come in one piece.
	perStep bool
}

// wire returns the way to talk to a dialect.
func (d Dialect) wire() wire {
	switch d {
	case SGLang:
		return wire{path: "/generate", body: sglangBody, read: readSGLang, perStep: true}
	case LlamaCpp:
		return wire{path: "/completion", body: llamaBody, read: readLlama, off: true}
	case VLLM:
		return wire{path: "/v1/completions", body: openAIBody, read: readOpenAI, perStep: true}
	}
	return wire{path: "/v1/completions", body: openAIBody, read: readOpenAI}
}

func openAIBody(s *Server, prompt any, maxTokens int, _ Mode) map[string]any {
	b := map[string]any{
		"model": s.Model, "prompt": prompt, "max_tokens": maxTokens, "temperature": 0,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	}
	if s.Dialect == VLLM {
		b["return_token_ids"] = true
	}
	return b
}

func sglangBody(_ *Server, prompt any, maxTokens int, _ Mode) map[string]any {
	return map[string]any{
		"input_ids": prompt, "stream": true,
		"sampling_params": map[string]any{"temperature": 0, "max_new_tokens": maxTokens},
	}
}

func llamaBody(_ *Server, prompt any, maxTokens int, mode Mode) map[string]any {
	b := map[string]any{
		"prompt": prompt, "n_predict": maxTokens, "temperature": 0, "stream": true,
		"return_tokens": true, "cache_prompt": false, "repeat_penalty": 1,
	}
	if mode == Off {
		b["speculative.n_max"] = 0
	}
	return b
}

// streamError is an error inside a stream.
type streamError struct {
	Error json.RawMessage `json:"error"`
}

// decodeEvent reads an event's JSON, and turns an error event into an error.
func decodeEvent(data []byte, into any) error {
	var e streamError
	if err := decodeObject("an event", data, &e); err != nil {
		return err
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return fmt.Errorf("the server reports an error: %s", message(data))
	}
	return decodeObject("an event", data, into)
}

type openAIEvent struct {
	Choices []struct {
		Text     string  `json:"text"`
		IDs      []int32 `json:"token_ids"`
		Finish   *string `json:"finish_reason"`
		Logprobs *struct {
			Tokens  []string `json:"tokens"`
			Content []struct {
				ID *int32 `json:"id"`
			} `json:"content"`
		} `json:"logprobs"`
	} `json:"choices"`
	Usage   *usage        `json:"usage"`
	Timings *llamaTimings `json:"timings"`
	Metrics *struct {
		Speculative *vllmStated `json:"speculative_decoding"`
	} `json:"metrics"`
	Verbose *struct {
		Tokens []int32 `json:"tokens"`
	} `json:"__verbose"`
}

type usage struct {
	Prompt     *int `json:"prompt_tokens"`
	Completion *int `json:"completion_tokens"`
}

func (u *usage) into(a *Answer) {
	if u == nil {
		return
	}
	if u.Prompt != nil {
		a.PromptUsed = *u.Prompt
	}
	if u.Completion != nil {
		a.Used = *u.Completion
	}
}

// vllmStated is the per-request block of vLLM (--per-request-spec-decode-metrics).
type vllmStated struct {
	Length    *float64         `json:"mean_acceptance_length"`
	Rate      *float64         `json:"draft_acceptance_rate"`
	Histogram map[string]int64 `json:"acceptance_histogram"`
	Steps     *int64           `json:"num_spec_steps"`
	Accepted  *int64           `json:"num_accepted_draft_tokens"`
	Proposed  *int64           `json:"num_draft_tokens"`
	Accepts   []int64          `json:"per_step_accepted"`
	Offers    []int64          `json:"per_step_drafted"`
}

func (v *vllmStated) stated() (*Stated, error) {
	s := &Stated{Steps: v.Steps, Proposed: v.Proposed, Accepted: v.Accepted, AcceptLength: v.Length, AcceptRate: v.Rate, Accepts: v.Accepts, Offers: v.Offers}
	for key, n := range v.Histogram {
		at, err := strconv.Atoi(key)
		if err != nil || at < 0 || at > 4096 {
			return nil, fmt.Errorf("acceptance_histogram has the key %s; want a number of accepted drafts", short(key))
		}
		for len(s.Histogram) <= at {
			s.Histogram = append(s.Histogram, 0)
		}
		s.Histogram[at] = n
	}
	return s, nil
}

func readOpenAI(a *Answer, data []byte) (int, error) {
	var e openAIEvent
	if err := decodeEvent(data, &e); err != nil {
		return 0, err
	}
	e.Usage.into(a)
	if e.Timings != nil {
		e.Timings.into(a)
	}
	if e.Metrics != nil && e.Metrics.Speculative != nil {
		var err error
		if a.Stated, err = e.Metrics.Speculative.stated(); err != nil {
			return 0, err
		}
	}
	if len(e.Choices) == 0 {
		return 0, nil
	}
	c := e.Choices[0]
	if c.Finish != nil {
		a.Finish = *c.Finish
	}
	a.Text += c.Text
	ids := c.IDs
	if l := c.Logprobs; ids == nil && l != nil {
		ids = logprobIDs(l.Tokens)
		for _, t := range l.Content {
			if t.ID != nil {
				ids = append(ids, *t.ID)
			}
		}
	}
	if e.Verbose != nil && ids == nil && len(a.IDs) == 0 {
		ids = e.Verbose.Tokens
	}
	a.IDs = append(a.IDs, ids...)
	switch {
	case len(ids) > 0:
		return len(ids), nil
	case c.Text != "":
		return -1, nil
	}
	return 0, nil
}

// logprobIDs reads tokens that are spelled "token_id:N".
func logprobIDs(tokens []string) (ids []int32) {
	for _, t := range tokens {
		digits, ok := strings.CutPrefix(t, "token_id:")
		if !ok {
			return nil
		}
		id, err := strconv.ParseInt(digits, 10, 32)
		if err != nil {
			return nil
		}
		ids = append(ids, int32(id))
	}
	return ids
}
