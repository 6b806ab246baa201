package server

import (
	"encoding/json"
	"net/http"
)

// tokenizeRequest is the body of /tokenize: a prompt, or messages.
type tokenizeRequest struct {
	chatRequest
	Prompt       *string `json:"prompt"`
	ReturnTokens bool    `json:"return_token_strs"`
}

// handleTokenize is POST /tokenize.
func (s *Server) handleTokenize(w http.ResponseWriter, r *http.Request, _ *client) error {
	var q tokenizeRequest
	if err := s.decode(w, r, &q); err != nil {
		return err
	}
	if err := s.named(q.Model); err != nil {
		return err
	}
	var text string
	special := q.AddSpecial == nil || *q.AddSpecial
	switch {
	case q.Prompt != nil && rawNull(q.Messages):
		text = *q.Prompt
	case q.Prompt == nil && !rawNull(q.Messages):
		p, err := s.renderChat(&q.chatRequest)
		if err != nil {
			return err
		}
		text, special = p.text, q.AddSpecial != nil && *q.AddSpecial
	default:
		return invalid("prompt", "give prompt or messages")
	}
	ids, err := s.encode(text, special)
	if err != nil {
		return err
	}
	if ids == nil {
		ids = []int32{}
	}
	v := map[string]any{"count": len(ids), "max_model_len": s.context, "tokens": ids}
	if q.ReturnTokens {
		texts := make([]string, len(ids))
		for i, id := range ids {
			texts[i] = s.cfg.Model.Tokenizer.TokenText(id)
		}
		v["token_strs"] = texts
	}
	writeJSON(w, http.StatusOK, v)
	return nil
}

// handleDetokenize is POST /detokenize.
func (s *Server) handleDetokenize(w http.ResponseWriter, r *http.Request, _ *client) error {
	var q struct {
		Model  string  `json:"model"`
		Tokens []int32 `json:"tokens"`
	}
	if err := s.decode(w, r, &q); err != nil {
		return err
	}
	if err := s.named(q.Model); err != nil {
		return err
	}
	t := s.cfg.Model.Tokenizer
	if t == nil {
		return invalid("tokens", "tokens: the model has no tokenizer")
	}
	for i, id := range q.Tokens {
		if !t.Known(id) {
			return invalid("tokens", "tokens[%d]: no token has id %d", i, id)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"prompt": t.Decode(q.Tokens, false)})
	return nil
}

// handleModels is GET /v1/models.
func (s *Server) handleModels(w http.ResponseWriter, _ *http.Request, _ *client) error {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{s.modelCard()}})
	return nil
}

// handleModel is GET /v1/models/NAME.
func (s *Server) handleModel(w http.ResponseWriter, r *http.Request, _ *client) error {
	if err := s.named(r.PathValue("name")); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.modelCard())
	return nil
}

func (s *Server) modelCard() map[string]any {
	d := s.cfg.Default
	return map[string]any{
		"id": s.cfg.Model.Name, "object": "model", "created": s.started.Unix(), "owned_by": "exacta", "root": s.cfg.Model.Name, "parent": nil,
		"max_model_len": s.context, "permission": []json.RawMessage{},
		"speculation": map[string]any{"strategies": s.strategies, "max_k": s.most, "strategy": d.Strategy, "k": d.K, "rule": d.Rule, "simulated": s.cfg.Simulation},
	}
}
