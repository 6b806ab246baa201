package outside

import "strings"

// Counters are a server's cumulative figures in one vocabulary. A nil is a
// figure that the server doesn't have.
type Counters struct {
	Steps    *float64 `json:"steps,omitempty"`    // verifications that had drafts
	Proposed *float64 `json:"proposed,omitempty"` // drafts offered
	Accepted *float64 `json:"accepted,omitempty"` // drafts accepted, no bonus
	// ByPosition counts the steps that accepted the draft at each position.
	ByPosition []float64 `json:"by_position,omitempty"`
	Generated  *float64  `json:"generated,omitempty"` // tokens
	Prompt     *float64  `json:"prompt,omitempty"`    // prompt tokens, cached ones too
	Requests   *float64  `json:"requests,omitempty"`  // ended well
	// Outputs counts the outputs behind the first of each request: decoding
	// steps, with drafts or without. OutputSeconds is the time between them.
	Outputs       *float64 `json:"outputs,omitempty"`
	OutputSeconds *float64 `json:"output_seconds,omitempty"`
	// Passes counts decoding passes over all requests together.
	Passes      *float64 `json:"passes,omitempty"`
	Preemptions *float64 `json:"preemptions,omitempty"`
}

// Read takes a dialect's counters from its metrics. Names: METRICS.md of vLLM
// (vllm/v1/spec_decode/metrics.py, v1/metrics/loggers.py), SGLang
// (srt/metrics/collector.py), llama.cpp (tools/server).
func (d Dialect) Read(m Metrics) *Counters {
	switch d {
	case VLLM:
		return &Counters{
			Steps: m.Sum("vllm:spec_decode_num_drafts"), Proposed: m.Sum("vllm:spec_decode_num_draft_tokens"),
			Accepted: m.Sum("vllm:spec_decode_num_accepted_tokens"), ByPosition: m.Positions("vllm:spec_decode_num_accepted_tokens_per_pos"),
			Generated: m.Sum("vllm:generation_tokens"), Prompt: m.Sum("vllm:prompt_tokens"),
			Requests: m.sum("vllm:request_success", func(l map[string]string) bool {
				return l["finished_reason"] != "abort" && l["finished_reason"] != "error"
			}),
			Outputs: m.Sum("vllm:inter_token_latency_seconds_count"), OutputSeconds: m.Sum("vllm:inter_token_latency_seconds_sum"),
			Preemptions: m.Sum("vllm:num_preemptions"),
		}
	case SGLang:
		return &Counters{
			Generated: m.Sum("sglang:generation_tokens"),
			Prompt:    m.Sum("sglang:prompt_tokens"), Requests: m.Sum("sglang:num_requests"),
		}
	case LlamaCpp:
		c := &Counters{
			Steps: m.Sum("llamacpp:spec_decode_num_drafts"), Proposed: m.Sum("llamacpp:spec_decode_num_draft_tokens"),
			Accepted: m.Sum("llamacpp:spec_decode_num_accepted_tokens"), ByPosition: m.Positions("llamacpp:spec_decode_num_accepted_tokens_per_pos"),
			Generated: m.Sum("llamacpp:tokens_predicted"), Prompt: m.Sum("llamacpp:prompt_tokens"), Passes: m.Sum("llamacpp:n_decode"),
		}
		if cached := m.Sum("llamacpp:prompt_tokens_cached"); cached != nil && c.Prompt != nil {
			*c.Prompt += *cached
		}
		return c
	}
	return nil
}

// fields lists pointers to the plain figures with their names.
func (c *Counters) fields() []struct {
	name string
	at   **float64
} {
	return []struct {
		name string
		at   **float64
	}{
		{"steps", &c.Steps}, {"proposed", &c.Proposed}, {"accepted", &c.Accepted}, {"generated", &c.Generated},
		{"prompt", &c.Prompt}, {"requests", &c.Requests}, {"outputs", &c.Outputs}, {"output seconds", &c.OutputSeconds},
		{"passes", &c.Passes}, {"preemptions", &c.Preemptions},
	}
}

// Since returns what was counted after an earlier reading, and the names of
// figures that fell: the server restarted, or does not count.
func (c *Counters) Since(before *Counters) (delta *Counters, fell []string) {
	delta = &Counters{}
	now, then, out := c.fields(), before.fields(), delta.fields()
	for i := range now {
		if *now[i].at == nil || *then[i].at == nil {
			continue
		}
		d := **now[i].at - **then[i].at
		if d < 0 {
			fell = append(fell, now[i].name)
		}
		*out[i].at = &d
	}
	for i, v := range c.ByPosition {
		if i < len(before.ByPosition) {
			v -= before.ByPosition[i]
		}
		if v < 0 {
			fell = append(fell, "by position")
		}
		delta.ByPosition = append(delta.ByPosition, v)
	}
	return delta, fell
}

// Dialect is the kind of server.
type Dialect string

// Dialects. Unknown has the OpenAI surface and nothing more that we know.
const (
	VLLM     Dialect = "vllm"
	SGLang   Dialect = "sglang"
	LlamaCpp Dialect = "llamacpp"
	Unknown  Dialect = "unknown"
)

// dialectOf tells the dialect from the metrics, or else from the owner that the
// list of models names.
func dialectOf(m Metrics, owner string) Dialect {
	for _, d := range []Dialect{VLLM, SGLang, LlamaCpp} {
		if m.Has(string(d)+":") || strings.EqualFold(owner, string(d)) {
			return d
		}
	}
	return Unknown
}
