package outside

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Server is what a server says of itself.
type Server struct {
	Address string  `json:"address"`
	Dialect Dialect `json:"dialect"`
	Model   string  `json:"model"`
	// Vocab is the model's vocabulary, 0 where it isn't told.
	Vocab int `json:"vocab,omitempty"`
	// K is the draft length, 0 where it isn't told.
	K int `json:"k,omitempty"`
	// Width is the most drafts that a step verifies, more than K in a tree; 0
	// where it isn't told.
	Width int `json:"width,omitempty"`
	// Simulated is what the server says of a simulated acceptance.
	Simulated string `json:"simulated,omitempty"`
	// Counted says whether there are counters, NoCounters why not.
	Counted    bool   `json:"counted"`
	NoCounters string `json:"no_counters,omitempty"`
}

// Find asks a server what it is. Only /v1/models must be there.
func (c *Client) Find(ctx context.Context) (*Server, error) {
	var models struct {
		Data []struct {
			ID    string `json:"id"`
			Owner string `json:"owned_by"`
			Meta  struct {
				Vocab int `json:"n_vocab"`
			} `json:"meta"`
		} `json:"data"`
	}
	if err := c.Get(ctx, "/v1/models", &models); err != nil {
		return nil, fmt.Errorf("%s: %w", c.base, err)
	}
	if len(models.Data) == 0 || models.Data[0].ID == "" {
		return nil, fmt.Errorf("%s: /v1/models lists no model under \"data\"", c.base)
	}
	first := models.Data[0]
	s := &Server{Address: c.base, Model: first.ID, Vocab: first.Meta.Vocab}
	m, err := c.Metrics(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	s.Dialect = dialectOf(m, first.Owner)
	switch {
	case missing(err):
		s.NoCounters = "the server has no /metrics"
	case err != nil:
		s.NoCounters = err.Error()
	case s.Dialect == Unknown:
		s.NoCounters = "/metrics has no counters of vLLM, SGLang or llama.cpp"
	case !m.Has(string(s.Dialect) + ":"):
		s.NoCounters = fmt.Sprintf("/metrics has no %s counters", s.Dialect)
	default:
		s.Counted = true
	}
	return s, c.more(ctx, s)
}

// more asks for what only some dialects tell; nothing of it is needed.
func (c *Client) more(ctx context.Context, s *Server) error {
	if s.Dialect != SGLang {
		return nil
	}
	var info struct {
		Steps  int `json:"speculative_num_steps"`
		Drafts int `json:"speculative_num_draft_tokens"`
		States []struct {
			Simulated float64 `json:"simulate_acc_len"`
		} `json:"internal_states"`
	}
	err := c.Get(ctx, "/server_info", &info)
	if missing(err) {
		err = c.Get(ctx, "/get_server_info", &info)
	}
	var status *StatusError
	switch {
	case errors.As(err, &status):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", c.base, err)
	}
	s.Width = max(0, info.Drafts-1)
	if s.K = info.Steps; s.K == 0 {
		s.K = s.Width
	}
	if len(info.States) > 0 && info.States[0].Simulated > 0 {
		s.Simulated = fmt.Sprintf("accept length %g", info.States[0].Simulated)
	}
	return nil
}

// counters reads the counters, or nil where the server has none.
func (c *Client) counters(ctx context.Context, s *Server) (*Counters, error) {
	if !s.Counted {
		return nil, nil
	}
	m, err := c.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	return s.Dialect.Read(m), nil
}

// post is the method of all generation calls.
const post = http.MethodPost
