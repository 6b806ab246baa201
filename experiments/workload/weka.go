package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// wekaTrace is a recorded agent run in the Weka format: the requests of a session in
// the order of their times, subagents among them with requests of their own. Times
// are seconds, those of a subagent's requests from its own start.
type wekaTrace struct {
	ID        string        `json:"id"`
	BlockSize int           `json:"block_size"`
	Tools     int           `json:"tool_tokens"`
	System    int           `json:"system_tokens"`
	Requests  []wekaRequest `json:"requests"`
}

// wekaRequest is a request, or with type subagent a group of them.
type wekaRequest struct {
	T     float64  `json:"t"`
	Type  string   `json:"type"`
	In    int      `json:"in"`
	Out   int      `json:"out"`
	Hash  []int64  `json:"hash_ids"`
	API   *float64 `json:"api_time"`
	Think *float64 `json:"think_time"`

	Agent    string        `json:"agent_id"`
	Duration float64       `json:"duration_ms"`
	Tools    int           `json:"tool_tokens"`
	System   int           `json:"system_tokens"`
	Requests []wekaRequest `json:"requests"`
}

// wekaGroup is the type of subagents.
const wekaGroup = "subagent"

// end is when a request's answer ended; where that was not recorded, when it began.
func (r *wekaRequest) end() float64 {
	if r.API != nil {
		return r.T + *r.API
	}
	return r.T
}

// parseWeka reads a trace and checks it. Errors name the file and the request.
func parseWeka(name string, text []byte) (*wekaTrace, error) {
	var t wekaTrace
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case t.ID == "":
		return nil, fmt.Errorf("%s: it has no id", name)
	case t.BlockSize < 1 || t.BlockSize > 1<<16:
		return nil, fmt.Errorf("%s: block_size is %d; it is 1 to %d tokens", name, t.BlockSize, 1<<16)
	case t.Tools < 0 || t.System < 0 || t.Tools > maxTokens || t.System > maxTokens:
		return nil, fmt.Errorf("%s: tool_tokens %d, system_tokens %d", name, t.Tools, t.System)
	}
	roots, total := 0, 0
	for i := range t.Requests {
		r := &t.Requests[i]
		where := fmt.Sprintf("%s: requests[%d]", name, i)
		if r.Type != wekaGroup {
			roots++
			total++
			if err := r.check(t.BlockSize); err != nil {
				return nil, fmt.Errorf("%s: %w", where, err)
			}
			continue
		}
		if roots == 0 {
			return nil, fmt.Errorf("%s: a subagent before any request of the session", where)
		}
		if err := r.checkGroup(t.BlockSize); err != nil {
			return nil, fmt.Errorf("%s%w", where, err)
		}
		total += len(r.Requests)
	}
	if roots == 0 {
		return nil, fmt.Errorf("%s: no requests", name)
	}
	if total > maxSessions {
		return nil, fmt.Errorf("%s: %d requests; at most %d are taken", name, total, maxSessions)
	}
	return &t, nil
}

// inTime reports whether a time in seconds is one.
func inTime(s float64) bool { return s >= 0 && s <= longest }

func (r *wekaRequest) check(block int) error {
	switch {
	case !inTime(r.T) || r.API != nil && !inTime(*r.API) || r.Think != nil && !inTime(*r.Think):
		return errors.New("t, api_time or think_time is negative or longer than a month")
	case r.In < 1 || r.In > maxTokens || r.Out < 0 || r.Out > maxTokens:
		return fmt.Errorf("in is %d and out %d tokens; they are at most %d, and in at least 1", r.In, r.Out, maxTokens)
	case len(r.Hash) > (r.In+block-1)/block:
		return fmt.Errorf("%d hash_ids of %d tokens each for an input of %d", len(r.Hash), block, r.In)
	case r.Type == wekaGroup || len(r.Requests) > 0:
		return errors.New("subagents of subagents are not taken")
	}
	return nil
}

func (r *wekaRequest) checkGroup(block int) error {
	if !inTime(r.T) || !(r.Duration >= 0 && r.Duration <= longest*1000) || math.IsNaN(r.Duration) {
		return errors.New(": t or duration_ms is negative or longer than a month")
	}
	if r.Tools < 0 || r.System < 0 || r.Tools > maxTokens || r.System > maxTokens {
		return fmt.Errorf(": tool_tokens %d, system_tokens %d", r.Tools, r.System)
	}
	for i := range r.Requests {
		if err := r.Requests[i].check(block); err != nil {
			return fmt.Errorf(".requests[%d]: %w", i, err)
		}
	}
	return nil
}
