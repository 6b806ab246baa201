package strategytest

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
)

// outcome is what a request produced: per output token, the token and the hash
// of its logits row.
type outcome struct {
	id      string
	tokens  []int32
	hashes  []uint64
	lengths map[int]int // steps with drafts, by accepted drafts
}

// drive runs a scenario's requests through an engine, with a drafter or plainly.
func drive(m *model.Model, c scenario, d engine.Drafter) (out []outcome, err error) {
	drafters := map[string]engine.Drafter{}
	if d != nil {
		drafters[d.Name()] = d
	}
	out = make([]outcome, len(c.requests))
	index := map[string]int{}
	preempted, hit := false, false
	recorder := engine.RecorderFunc(func(r *engine.Record) error {
		o := &out[index[r.Request]]
		o.tokens = append(o.tokens, r.EmittedIDs...)
		o.hashes = append(o.hashes, r.Hashes[:len(r.EmittedIDs)]...)
		if r.KExecuted > 0 {
			o.lengths[int(r.Accepted)]++
		}
		preempted = preempted || r.Preemptions > 0
		hit = hit || r.Cached > 0
		return nil
	})
	c.config.MaxTokens = maxTokens
	e, err := engine.New(m, c.config, drafters, rule{}, recorder, engine.Listener{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	seqs := make([]*engine.Sequence, len(c.requests))
	for i, r := range c.requests {
		if d != nil {
			r.Drafter = d.Name()
		} else {
			r.K = 0
		}
		out[i].id, out[i].lengths, index[r.ID] = r.ID, map[int]int{}, i
		if seqs[i], err = e.Submit(r); err != nil {
			return nil, err
		}
	}
	if err := e.Run(nil); err != nil {
		return nil, err
	}
	for _, s := range seqs {
		if s.Err() != nil {
			return nil, fmt.Errorf("request %s ended: %w", s.Request().ID, s.Err())
		}
	}
	switch {
	case c.preempts && !preempted:
		return nil, errors.New("this check needs a preemption and met none")
	case c.hits && !hit:
		return nil, errors.New("this check needs a prefix-cache hit and met none")
	}
	return out, nil
}

// equal returns the first difference from plain decoding.
func equal(plain, got []outcome) error {
	for i, p := range plain {
		g := got[i]
		for j := range min(len(p.tokens), len(g.tokens)) {
			if p.tokens[j] != g.tokens[j] || p.hashes[j] != g.hashes[j] {
				return fmt.Errorf("request %s, output %d: token %d with logits %016x, plain decoding has %d with %016x",
					p.id, j, g.tokens[j], g.hashes[j], p.tokens[j], p.hashes[j])
			}
		}
		if len(p.tokens) != len(g.tokens) {
			return fmt.Errorf("request %s has %d tokens, plain decoding %d", p.id, len(g.tokens), len(p.tokens))
		}
	}
	return nil
}
