package outside

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// llamaTimings is the block of timings that llama-server puts behind an answer.
type llamaTimings struct {
	Predicted *int64   `json:"predicted_n"`
	Ms        *float64 `json:"predicted_ms"`
	PerSecond *float64 `json:"predicted_per_second"`
	Drafts    *int64   `json:"draft_n"`
	Accepted  *int64   `json:"draft_n_accepted"`
}

// into keeps the timings. Where no drafts were made llama-server leaves their
// numbers out; they are then 0.
func (t *llamaTimings) into(a *Answer) {
	a.Stated = &Stated{Proposed: t.Drafts, Accepted: t.Accepted, DecodeMs: t.Ms, Predicted: t.Predicted, PerSecond: t.PerSecond}
	if t.Drafts == nil && t.Accepted == nil {
		a.Stated.Proposed, a.Stated.Accepted = new(int64), new(int64)
	}
}

func readLlama(a *Answer, data []byte) (int, error) {
	var e struct {
		Content  string        `json:"content"`
		Tokens   []int32       `json:"tokens"`
		Stop     bool          `json:"stop"`
		StopType string        `json:"stop_type"`
		Count    *int          `json:"tokens_predicted"`
		Read     *int          `json:"tokens_evaluated"`
		Timings  *llamaTimings `json:"timings"`
	}
	if err := decodeEvent(data, &e); err != nil {
		return 0, err
	}
	a.Text += e.Content
	if !e.Stop {
		a.IDs = append(a.IDs, e.Tokens...)
		if len(e.Tokens) == 0 && e.Content != "" {
			return -1, nil
		}
		return len(e.Tokens), nil
	}
	if a.Finish = "stop"; e.StopType == "limit" {
		a.Finish = "length"
	}
	if e.Count != nil {
		a.Used = *e.Count
	}
	if e.Read != nil {
		a.PromptUsed = *e.Read
	}
	if e.Timings != nil {
		e.Timings.into(a)
	}
	return 0, nil
}

type sglangMeta struct {
	Prompt     *int            `json:"prompt_tokens"`
	Completion *int            `json:"completion_tokens"`
	Finish     json.RawMessage `json:"finish_reason"`
	Steps      *int64          `json:"spec_verify_ct"`
	Length     *float64        `json:"spec_accept_length"`
	Rate       *float64        `json:"spec_accept_rate"`
	Accepted   *int64          `json:"spec_num_correct_drafts"`
	Proposed   *int64          `json:"spec_num_proposed_drafts"`
	Histogram  []int64         `json:"spec_correct_drafts_histogram"`
}

// finish reads {"type": "length"}, a bare word, or null.
func (m *sglangMeta) finish() string {
	var obj struct {
		Type string `json:"type"`
	}
	var word string
	switch {
	case json.Unmarshal(m.Finish, &word) == nil:
		return word
	case json.Unmarshal(m.Finish, &obj) == nil:
		return obj.Type
	}
	return ""
}

// readSGLang reads an event of /generate. Text and output_ids are those so far,
// or only the new ones: the count of completion tokens tells which.
func readSGLang(a *Answer, data []byte) (int, error) {
	var e struct {
		Text string     `json:"text"`
		IDs  []int32    `json:"output_ids"`
		Meta sglangMeta `json:"meta_info"`
	}
	if err := decodeEvent(data, &e); err != nil {
		return 0, err
	}
	before := max(0, a.Used)
	(&usage{e.Meta.Prompt, e.Meta.Completion}).into(a)
	if f := e.Meta.finish(); f != "" {
		a.Finish = f
	}
	if m := e.Meta; m.Steps != nil {
		a.Stated = &Stated{Steps: m.Steps, Proposed: m.Proposed, Accepted: m.Accepted, AcceptLength: m.Length, AcceptRate: m.Rate, Histogram: m.Histogram, AllSteps: true}
	}
	switch soFar := a.Used == len(e.IDs) || len(e.IDs) == 0 && strings.HasPrefix(e.Text, a.Text); {
	case soFar && len(e.IDs) == 0: // an older server, without ids
		a.Text = e.Text
	case soFar && len(e.IDs) >= len(a.IDs):
		a.IDs, a.Text = e.IDs, e.Text
	default:
		a.IDs = append(a.IDs, e.IDs...)
		a.Text += e.Text
	}
	if len(a.IDs) > 0 && a.Used >= 0 && len(a.IDs) != a.Used {
		return 0, fmt.Errorf("output_ids has %d tokens so far, completion_tokens says %d", len(a.IDs), a.Used)
	}
	if a.Used < before {
		return 0, errors.New("completion_tokens falls")
	}
	return max(0, a.Used) - before, nil
}
