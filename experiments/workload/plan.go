package workload

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// Request is one request of a workload.
type Request struct {
	// ID is unique in the workload.
	ID string `json:"id"`
	// Class is the prompt's class in its set; may be empty.
	Class string `json:"class,omitempty"`
	// Tokens is the prompt as ids of the model's vocabulary; nil where no
	// tokenizer is known, and then Text is the prompt.
	Tokens []int32 `json:"-"`
	Text   string  `json:"-"`
	// MaxTokens is the length of the output in tokens: exactly that many with
	// Exact, which has the target ignore ends of text, and at most else.
	MaxTokens int  `json:"max_tokens"`
	Exact     bool `json:"exact,omitempty"`
	// After lists the requests of the session, by index, all of them before
	// this one, that must have ended before it is sent, and Pause is the time
	// from the end of the last of them, or from the session's start, to its
	// sending.
	After []int         `json:"after,omitempty"`
	Pause time.Duration `json:"pause_ns,omitempty"`
	// Agent is the subagent that asks, "" for the session itself; Turn counts
	// the requests of an agent from 0.
	Agent string `json:"agent,omitempty"`
	Turn  int    `json:"turn,omitempty"`
	// Warm says that the request prepares the target for those after it (the
	// turn before a session's start point) and counts in no figure.
	Warm bool `json:"warm,omitempty"`
}

// Session is what one user asks: requests with what they wait for.
type Session struct {
	// ID is unique in the workload.
	ID string `json:"id"`
	// At is when the session starts, from the start of the load; 0 where lanes
	// decide (Plan.Lanes).
	At       time.Duration `json:"at_ns,omitempty"`
	Requests []Request     `json:"requests"`
}

// Plan is a workload ready to be run, the same for every target.
type Plan struct {
	Sessions []Session
	// Lanes is the number of sessions that are open at once, the next one
	// starting when one has ended; 0 starts each at its time.
	Lanes int
}

// Requests counts the requests of all sessions.
func (p *Plan) Requests() int {
	n := 0
	for i := range p.Sessions {
		n += len(p.Sessions[i].Requests)
	}
	return n
}

// Longest is the largest number of tokens, prompt and output, of a request. A
// prompt of text counts its bytes, of which a token has at least one.
func (p *Plan) Longest() int {
	longest := 0
	for i := range p.Sessions {
		for j := range p.Sessions[i].Requests {
			r := &p.Sessions[i].Requests[j]
			longest = max(longest, len(r.Tokens)+len(r.Text)+r.MaxTokens)
		}
	}
	return longest
}

// Hash is the SHA-256, in hexadecimal digits, of everything that a target is asked
// and when: plans with one hash are the same load.
func (p *Plan) Hash() string {
	h := sha256.New()
	number := func(n int64) { _ = binary.Write(h, binary.LittleEndian, n) } // a hash takes everything
	text := func(s string) { number(int64(len(s))); h.Write([]byte(s)) }
	number(int64(p.Lanes))
	for i := range p.Sessions {
		s := &p.Sessions[i]
		text(s.ID)
		number(int64(s.At))
		number(int64(len(s.Requests)))
		for j := range s.Requests {
			r := &s.Requests[j]
			text(r.ID)
			text(r.Text)
			number(int64(len(r.Tokens)))
			_ = binary.Write(h, binary.LittleEndian, r.Tokens)
			number(int64(r.MaxTokens))
			text(fmt.Sprint(r.Exact, r.Warm, r.After))
			number(int64(r.Pause))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// check says what is wrong with a plan that a source or an arrival process made.
func (p *Plan) check() error {
	ids := map[string]bool{}
	for i := range p.Sessions {
		s := &p.Sessions[i]
		if !slices.ContainsFunc(s.Requests, func(r Request) bool { return !r.Warm }) {
			return fmt.Errorf("session %s has no requests", s.ID)
		}
		for j := range s.Requests {
			r := &s.Requests[j]
			switch {
			case ids[r.ID]:
				return fmt.Errorf("request %s is there twice", r.ID)
			case len(r.Tokens) == 0 && r.Text == "":
				return fmt.Errorf("request %s has an empty prompt", r.ID)
			case r.MaxTokens < 1:
				return fmt.Errorf("request %s asks for %d tokens; it must be at least 1", r.ID, r.MaxTokens)
			case r.Pause < 0:
				return fmt.Errorf("request %s has a pause of %v", r.ID, r.Pause)
			}
			for _, a := range r.After {
				if a < 0 || a >= j {
					return fmt.Errorf("request %s waits for request %d of its session, which does not come before it", r.ID, a)
				}
			}
			ids[r.ID] = true
		}
	}
	if len(p.Sessions) == 0 {
		return fmt.Errorf("the workload has no requests")
	}
	return nil
}
