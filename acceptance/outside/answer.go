package outside

import (
	"errors"
	"time"
)

// Mode says whether a request left speculation as the server does it.
type Mode string

// Modes. PlainServer is another server of the same model, without speculation.
const (
	AsServed    Mode = "as served"
	Off         Mode = "off"
	PlainServer Mode = "plain server"
)

// Piece is a part of a stream that brought text or tokens.
type Piece struct {
	At     time.Duration `json:"at"`     // since the request was sent
	Tokens int           `json:"tokens"` // -1 where the server doesn't say
}

// Stated is what a server said of one request.
type Stated struct {
	Steps        *int64   `json:"steps,omitempty"`
	Proposed     *int64   `json:"proposed,omitempty"`
	Accepted     *int64   `json:"accepted,omitempty"`
	AcceptLength *float64 `json:"accept_length,omitempty"`
	AcceptRate   *float64 `json:"accept_rate,omitempty"` // a share of 1
	// Histogram counts steps by the number of accepted drafts.
	Histogram []int64 `json:"histogram,omitempty"`
	// Accepts and Offers are per step.
	Accepts []int64 `json:"accepts,omitempty"`
	Offers  []int64 `json:"offers,omitempty"`
	// DecodeMs is the time spent generating Predicted tokens, and PerSecond
	// their ratio as the server gives it.
	DecodeMs  *float64 `json:"decode_ms,omitempty"`
	Predicted *int64   `json:"predicted,omitempty"`
	PerSecond *float64 `json:"per_second,omitempty"`
	// AllSteps says that Steps counts the steps without drafts too.
	AllSteps bool `json:"all_steps,omitempty"`
}

// Answer is one request with what came back.
type Answer struct {
	ID     string  `json:"id"`
	Prompt []int32 `json:"-"`
	Mode   Mode    `json:"mode"`
	Text   string  `json:"-"`
	IDs    []int32 `json:"-"`
	// Exact says that IDs are the server's; otherwise they are Text tokenised
	// again, which need not be the tokens that were generated.
	Exact bool `json:"exact"`
	// Used and PromptUsed are the tokens that the server's usage counts, -1
	// where it has none.
	Used       int           `json:"used"`
	PromptUsed int           `json:"prompt_used"`
	Finish     string        `json:"finish"` // stop, length, or the server's word
	Pieces     []Piece       `json:"-"`
	Sent       time.Duration `json:"sent"` // since the audit began
	End        time.Duration `json:"end"`  // since the request was sent
	Stated     *Stated       `json:"stated,omitempty"`
	Err        error         `json:"-"`
}

// tokens is the number of tokens that came: by the server's usage, or else by
// their ids.
func (a *Answer) tokens() int {
	if a.Used >= 0 {
		return a.Used
	}
	return len(a.IDs)
}

// errNoStream says that an answer had no text, no tokens and no end.
var errNoStream = errors.New("the stream ended without an end of the answer: no finish reason came")
