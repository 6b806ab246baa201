package server

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// common are the fields that chat and text completions share.
type common struct {
	Model         string         `json:"model"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options"`
	N             *int           `json:"n"`

	Temperature       *float32           `json:"temperature"`
	TopP              *float32           `json:"top_p"`
	TopK              *int               `json:"top_k"`
	MinP              *float32           `json:"min_p"`
	RepetitionPenalty *float32           `json:"repetition_penalty"`
	PresencePenalty   *float32           `json:"presence_penalty"`
	FrequencyPenalty  *float32           `json:"frequency_penalty"`
	LogitBias         map[string]float32 `json:"logit_bias"`
	Seed              *int64             `json:"seed"`

	Stop         texts   `json:"stop"`
	StopTokenIDs []int32 `json:"stop_token_ids"`
	IncludeStop  bool    `json:"include_stop_str_in_output"`
	IgnoreEOS    bool    `json:"ignore_eos"`
	SkipSpecial  *bool   `json:"skip_special_tokens"`
	MaxTokens    *int    `json:"max_tokens"`
	// TruncatePrompt keeps the last so many tokens of a prompt; -1 as many as
	// leave room for max_tokens.
	TruncatePrompt *int `json:"truncate_prompt_tokens"`

	ResponseFormat *responseFormat `json:"response_format"`
	Structured     *structured     `json:"structured_outputs"`
	Speculation    *speculation    `json:"speculation"`

	Echo           bool   `json:"echo"`
	ReturnTokenIDs bool   `json:"return_token_ids"`
	AddSpecial     *bool  `json:"add_special_tokens"`
	CacheSalt      string `json:"cache_salt"`
	// Session names the conversation that the prompt continues: what was
	// computed for it is kept for its next request while there is room.
	Session string `json:"session_id"`
	// Priority goes before the order of arrival; as in vLLM, less is earlier.
	Priority int `json:"priority"`
	// Deadline is the time, in milliseconds from the request's arrival, after which
	// nobody wants the answer any more.
	Deadline *int `json:"deadline_ms"`
	// BestOf answers are made for each prompt of a text completion, and the N that
	// are likeliest by token are told.
	BestOf *int `json:"best_of"`
	// PromptLogProbs asks for the log-probabilities of the prompt's tokens and of
	// so many likeliest ones at each place.
	PromptLogProbs *int `json:"prompt_logprobs"`
}

// streamOptions say what a stream tells beside the text.
type streamOptions struct {
	IncludeUsage    bool `json:"include_usage"`
	ContinuousUsage bool `json:"continuous_usage_stats"`
}

// speculation overrides how the server drafts.
type speculation struct {
	Strategy string `json:"strategy"`
	K        *int   `json:"k"`
	Rule     string `json:"rule"`
	// Steps adds a view of every step to the answer.
	Steps bool `json:"steps"`
}

// responseFormat is OpenAI's way to constrain an answer.
type responseFormat struct {
	Type       string `json:"type"`
	JSONSchema *struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

// structured is vLLM's way; one field is given.
type structured struct {
	JSON       json.RawMessage `json:"json"`
	Regex      *string         `json:"regex"`
	Choice     []string        `json:"choice"`
	JSONObject *bool           `json:"json_object"`

	// Refused by name.
	Grammar       json.RawMessage `json:"grammar"`
	StructuralTag json.RawMessage `json:"structural_tag"`
}

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	common
	Messages            json.RawMessage            `json:"messages"`
	MaxCompletionTokens *int                       `json:"max_completion_tokens"`
	LogProbs            bool                       `json:"logprobs"`
	TopLogProbs         *int                       `json:"top_logprobs"`
	Tools               json.RawMessage            `json:"tools"`
	ToolChoice          json.RawMessage            `json:"tool_choice"`
	ParallelToolCalls   *bool                      `json:"parallel_tool_calls"`
	ReasoningEffort     string                     `json:"reasoning_effort"`
	IncludeReasoning    *bool                      `json:"include_reasoning"`
	Documents           json.RawMessage            `json:"documents"`
	AddGenerationPrompt *bool                      `json:"add_generation_prompt"`
	ContinueFinal       bool                       `json:"continue_final_message"`
	TemplateVars        map[string]json.RawMessage `json:"chat_template_kwargs"`
}

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	common
	Prompt   prompts `json:"prompt"`
	LogProbs *int    `json:"logprobs"`
}

// refused are fields that would change the answer and that this server can't
// honour, with what to do. null, false, 0, "", [] and {} are as good as nothing.
var refused = map[string]string{
	"suffix":                     "text behind the gap is not supported",
	"use_beam_search":            "beam search is not supported",
	"min_tokens":                 "it is not supported; use ignore_eos",
	"bad_words":                  "it is not supported; use logit_bias",
	"allowed_token_ids":          "it is not supported; use structured_outputs",
	"logits_processors":          "they are not supported",
	"logprob_token_ids":          "it is not supported; use top_logprobs",
	"prompt_embeds":              "prompts are text or token ids",
	"chat_template":              "templates in requests are not taken; start the server with --chat-template",
	"guided_json":                "use structured_outputs",
	"guided_regex":               "use structured_outputs",
	"guided_choice":              "use structured_outputs",
	"guided_grammar":             "use structured_outputs",
	"thinking_token_budget":      "it is not supported",
	"repetition_detection":       "it is not supported",
	"kv_transfer_params":         "it is not supported",
	"audio":                      "answers are text",
	"functions":                  "use tools",
	"function_call":              "use tool_choice",
	"web_search_options":         "it is not supported",
	"prediction":                 "use speculation with strategy ngram",
	"length_penalty":             "beam search is not supported",
	"mm_processor_kwargs":        "prompts are text or token ids",
	"return_tokens_as_token_ids": "use return_token_ids",
}

// empty are values that ask for nothing.
var empty = []string{"null", "false", "0", "0.0", `""`, "[]", "{}"}

// texts is one text or a list of them.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	if text[0] == '"' {
		*t = make(texts, 1)
		return json.Unmarshal(text, &(*t)[0])
	}
	var list []string
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("it must be a text or a list of texts")
	}
	*t = list
	return nil
}

// prompts are the prompts of a text completion: a text, token ids, or a list of
// either.
type prompts struct {
	texts []string
	ids   [][]int32
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *prompts) UnmarshalJSON(text []byte) error {
	*p = prompts{}
	var one string
	var ids []int32
	switch {
	case json.Unmarshal(text, &one) == nil && text[0] == '"':
		p.texts = []string{one}
	case json.Unmarshal(text, &p.texts) == nil && text[0] == '[' && len(p.texts) > 0:
	case json.Unmarshal(text, &ids) == nil && text[0] == '[':
		p.texts, p.ids = nil, [][]int32{ids}
	case json.Unmarshal(text, &p.ids) == nil && text[0] == '[':
		p.texts = nil
	default:
		return fmt.Errorf("it must be a text, a list of texts, a list of token ids, or a list of such lists")
	}
	return nil
}
