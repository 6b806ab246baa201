package server

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"strconv"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/sample"
)

// sampling makes the sampling parameters of a request, those that it leaves out
// from the model's.
func (s *Server) sampling(c *common) (sample.Params, error) {
	p := s.cfg.Model.Defaults
	for _, f := range []struct {
		from *float32
		to   *float32
	}{
		{c.Temperature, &p.Temperature}, {c.TopP, &p.TopP}, {c.MinP, &p.MinP}, {c.RepetitionPenalty, &p.RepetitionPenalty},
		{c.PresencePenalty, &p.PresencePenalty}, {c.FrequencyPenalty, &p.FrequencyPenalty},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if c.TopK != nil {
		p.TopK = *c.TopK
	}
	if c.TopP != nil && *c.TopP == 0 {
		return p, invalid("top_p", "top_p is 0; it must be above 0 and at most 1")
	}
	if c.RepetitionPenalty != nil && *c.RepetitionPenalty == 0 {
		return p, invalid("repetition_penalty", "repetition_penalty is 0; it must be above 0 and at most 10")
	}
	p.Seed = randomSeed()
	if c.Seed != nil {
		p.Seed = uint64(*c.Seed)
	}
	if len(c.LogitBias) > 0 {
		bias := map[int32]float32{}
		for id, b := range c.LogitBias {
			n, err := strconv.ParseInt(id, 10, 32)
			if err != nil || n < 0 || int(n) >= s.cfg.Model.Vocab {
				return p, invalid("logit_bias", "logit_bias: %q is no token id; they are 0 to %d", short(id), s.cfg.Model.Vocab-1)
			}
			bias[int32(n)] = b
		}
		p.LogitBias = sample.FormatBias(bias)
	}
	if err := p.ValidateFor(s.cfg.Model.Vocab); err != nil {
		return p, invalid("", "%v", err)
	}
	return p, nil
}

// randomSeed is a seed for a request that gives none.
func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// short is a value from outside as errors show it.
func short(text string) string {
	const most = 40
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "..."
	}
	return text
}

// drafted is how a request is drafted, checked.
type drafted struct {
	Speculation
	drafter string // of the engine; empty for plain decoding
	rule    engine.Verifier
	detail  bool
}

// speculate chooses a request's strategy, k and rule: its own, or the server's.
func (s *Server) speculate(q *speculation, p sample.Params) (d drafted, err error) {
	d.Speculation = s.cfg.Default
	if q != nil {
		d.detail = q.Steps
		if q.Strategy != "" {
			d.Strategy = q.Strategy
		}
		if q.Rule != "" {
			d.Rule = q.Rule
		}
		if q.K != nil {
			d.K = *q.K
		} else if d.Strategy != s.cfg.Default.Strategy {
			d.K = max(d.K, min(defaultK, s.most))
		}
	}
	if d.Strategy == plain {
		d.K = 0
	} else if d.drafter = d.Strategy; !s.has(d.drafter) {
		return d, invalid("speculation.strategy", "strategy %q is not one of this server's: %v", short(d.Strategy), s.strategies)
	}
	if d.K < 0 || d.K > s.most {
		return d, invalid("speculation.k", "k is %d; it must be 0 to %d", d.K, s.most)
	}
	if d.rule, err = s.cfg.Rule(d.Rule, d.K); err != nil {
		return d, invalid("speculation.rule", "%v", err)
	}
	if l, ok := d.rule.(interface{ Serves(sample.Params) error }); ok {
		if err := l.Serves(p); err != nil {
			return d, invalid("speculation.rule", "%v", err)
		}
	}
	return d, nil
}

const (
	// plain is the strategy without drafts.
	plain = "none"
	// defaultK is the number of drafts of a strategy that is not the server's
	// own, where the request gives none.
	defaultK = 3
)

// constrained compiles a pattern, or finds it compiled.
func (s *Server) constrained(param, pattern string) (*grammar.Grammar, error) {
	if pattern == "" {
		return nil, nil
	}
	if s.cfg.Model.Tokens == nil {
		return nil, invalid(param, "%s: the model has no tokenizer", param)
	}
	if g := s.grammars.get(pattern); g != nil {
		return g, nil
	}
	g, err := s.cfg.Model.Tokens.Compile(pattern)
	if err != nil {
		return nil, invalid(param, "%s: %v", param, err)
	}
	if n, most := g.Size(), s.cfg.Limits.States; n > most {
		return nil, invalid(param, "%s: its automaton has %d states, of at most %d; use smaller repetitions, or a smaller schema", param, n, most)
	}
	g.Allowed(g.Start()) // not in the engine's time
	s.grammars.put(pattern, g)
	return g, nil
}

// stops checks the stop strings and tokens of a request, and returns the tokens.
func (s *Server) stops(c *common) ([]int32, error) {
	if n := len(c.Stop); n > s.cfg.Limits.Stops {
		return nil, invalid("stop", "stop has %d texts, of at most %d", n, s.cfg.Limits.Stops)
	}
	for _, t := range c.Stop {
		switch {
		case t == "":
			return nil, invalid("stop", "stop has an empty text")
		case len(t) > maxStop:
			return nil, invalid("stop", "stop has a text of %d bytes, of at most %d", len(t), maxStop)
		case s.cfg.Model.Tokenizer == nil:
			return nil, invalid("stop", "stop: the model has no tokenizer; use stop_token_ids")
		}
	}
	var ids []int32
	if !c.IgnoreEOS {
		ids = append(ids, s.cfg.Model.EOS...)
	}
	for _, id := range c.StopTokenIDs {
		if id < 0 || int(id) >= s.cfg.Model.Vocab {
			return nil, invalid("stop_token_ids", "stop_token_ids: %d is no token id; they are 0 to %d", id, s.cfg.Model.Vocab-1)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// maxStop is the longest stop string in bytes.
const maxStop = 1024

// newTokens is the number of tokens to generate for a prompt of n tokens: asked, or
// byDefault (0 is as many as there is room for).
func (s *Server) newTokens(asked *int, param string, byDefault, n int) (int, error) {
	room := s.context - n
	if room < 1 {
		return 0, failure(400, badRequest, "context_length_exceeded", param, "the prompt has %d tokens; the context of %d leaves room for at most %d and one to generate", n, s.context, s.context-1)
	}
	most := room
	if l := s.cfg.Limits.NewTokens; l > 0 {
		most = min(most, l)
	}
	if asked == nil {
		if byDefault == 0 {
			return most, nil
		}
		return min(byDefault, most), nil
	}
	switch {
	case *asked < 1:
		return 0, invalid(param, "%s is %d; it must be at least 1", param, *asked)
	case *asked > room:
		return 0, failure(400, badRequest, "context_length_exceeded", param, "%s is %d and the prompt has %d tokens; together they are more than the context of %d", param, *asked, n, s.context)
	case *asked > most:
		return 0, invalid(param, "%s is %d; this server generates at most %d", param, *asked, most)
	}
	return *asked, nil
}

// truncate keeps the end of a prompt, where the request asks for it.
func (s *Server) truncate(ids []int32, c *common, reserve int) ([]int32, error) {
	if c.TruncatePrompt == nil {
		return ids, nil
	}
	keep := *c.TruncatePrompt
	switch {
	case keep == -1:
		keep = s.context - max(1, reserve)
	case keep < 1 || keep >= s.context:
		return nil, invalid("truncate_prompt_tokens", "truncate_prompt_tokens is %d; it must be -1, or 1 to %d", keep, s.context-1)
	}
	return ids[max(0, len(ids)-max(1, keep)):], nil
}

// ids checks a prompt of token ids.
func (s *Server) ids(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= s.cfg.Model.Vocab {
			return invalid("prompt", "prompt: token %d is id %d; they are 0 to %d", i, id, s.cfg.Model.Vocab-1)
		}
	}
	return nil
}

// encode makes token ids of a text.
func (s *Server) encode(text string, special bool) ([]int32, error) {
	t := s.cfg.Model.Tokenizer
	if t == nil {
		return nil, invalid("prompt", "prompt: the model has no tokenizer; give token ids")
	}
	ids, err := t.EncodeStrict(text, special)
	if err != nil {
		return nil, invalid("prompt", "prompt: %v", err)
	}
	return ids, nil
}

// finite says whether a number can be written as JSON; others are -9999.
func finite(x float64) float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return -9999
	}
	return x
}
