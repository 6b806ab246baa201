package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
)

// OracleOptions say what exacta bench oracle compares.
type OracleOptions struct {
	Model, Backend, Kernels string
	Threads                 int
	Tokens                  int // to generate and check, over all prompts
}

// OracleResult says how far a backend's greedy tokens are from those of exact
// arithmetic: how many are not the argmax of the float64 oracle that was fed
// the same tokens before them, and by how much.
type OracleResult struct {
	Model   string `json:"model"`
	Backend string `json:"backend"` // arithmetic of the backend that was checked
	Prompts int    `json:"prompts"`
	Tokens  int    `json:"tokens"`
	Differ  int    `json:"differ"` // tokens that are not the oracle's argmax
	// Margins, at the tokens that differ: the oracle's logit of its argmax
	// minus that of the token. Gaps: the backend's own largest minus second
	// largest logit there. AllGaps: the latter at all tokens, for scale.
	Margins Spread `json:"margins"`
	Gaps    Spread `json:"gaps"`
	AllGaps Spread `json:"all_gaps"`
	// Cases are the tokens that differ, the largest margin first.
	Cases []OracleCase `json:"cases"`
}

// OracleCase is a token that is not the oracle's argmax.
type OracleCase struct {
	Prompt string  `json:"prompt"`
	Output int     `json:"output"` // output position, from 0
	Token  int32   `json:"token"`
	Oracle int32   `json:"oracle"`
	Margin float64 `json:"margin"`
	Gap    float64 `json:"gap"`
}

// Spread is a distribution in five figures, of values not below 0.
type Spread struct {
	Count  int     `json:"count"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	Max    float64 `json:"max"`
}

func spread(x []float64) Spread {
	if len(x) == 0 {
		return Spread{}
	}
	x = slices.Sorted(slices.Values(x))
	return Spread{Count: len(x), Min: x[0], Median: median(x), P90: x[(len(x)-1)*9/10], Max: x[len(x)-1]}
}

// oracleInFlight is the number of sequences that are generated together; their
// tokens do not depend on it.
const oracleInFlight = 8

// greedyText is a prompt with its greedy continuation and the gaps at it.
type greedyText struct {
	prompt Prompt
	ids    []int32
	gaps   []float64
}

// Oracle generates tokens greedily and feeds them to the float64 backend.
func Oracle(ctx context.Context, o OracleOptions, progress func(string)) (*OracleResult, error) {
	if o.Tokens < 1 {
		return nil, fmt.Errorf("bench oracle: %d tokens; it must be at least 1", o.Tokens)
	}
	texts, res, err := o.generate(ctx, progress)
	if err != nil {
		return nil, err
	}
	cfg := Default()
	cfg.Model, cfg.Backend = o.Model, "ref"
	for _, t := range texts {
		cfg.Context = max(cfg.Context, len(t.prompt.IDs)+len(t.ids)+1)
	}
	prompts := make([]Prompt, len(texts))
	for i := range texts {
		prompts[i] = texts[i].prompt
	}
	s, err := open(cfg, prompts)
	if err != nil {
		return nil, err
	}
	return res, errors.Join(check(ctx, s, texts, res, progress), s.close())
}

// generate decodes greedily on the backend under test.
func (o OracleOptions) generate(ctx context.Context, progress func(string)) (texts []greedyText, res *OracleResult, err error) {
	cfg := Default()
	cfg.Model, cfg.Backend, cfg.Kernels, cfg.Threads, cfg.IgnoreEOS = o.Model, o.Backend, o.Kernels, o.Threads, true
	cfg.MaxNew = o.Tokens
	s, err := open(cfg, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	// Few tokens come from few prompts: reading prompts is the oracle's work too.
	s.cfg.MaxNew = max(64, (o.Tokens+len(s.prompts)-1)/len(s.prompts))
	progress(fmt.Sprintf("generating %d tokens on %s", o.Tokens, o.Backend))
	var traces acceptance.Collector
	gaps := map[string][]float64{}
	e, err := s.engine(Point{Strategy: -1, Drafter: "none", Rule: "greedy", Concurrency: oracleInFlight}, engine.RecorderFunc(func(r *engine.Record) error {
		for i := range r.EmittedIDs {
			gaps[r.Request] = append(gaps[r.Request], float64(r.Gaps[i]))
		}
		return traces.Add(r)
	}))
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	left := o.Tokens
	res = &OracleResult{Model: o.Model, Backend: s.be.Info().Arithmetic, Cases: []OracleCase{}}
	for i := 0; i < len(s.prompts) && left > 0; i++ {
		r := s.request(Point{Drafter: "none"}, i, s.prompts[i].ID)
		r.MaxNew = min(left, r.MaxNew)
		left -= r.MaxNew
		if _, err := e.Submit(r); err != nil {
			return nil, nil, err
		}
		texts = append(texts, greedyText{prompt: s.prompts[i]})
	}
	if err := e.Run(func() bool { return ctx.Err() != nil }); err != nil {
		return nil, nil, err
	}
	if ctx.Err() != nil {
		return nil, nil, ErrInterrupted
	}
	for i := range texts {
		id := texts[i].prompt.ID
		if traces.Traces[id] == nil {
			return nil, nil, fmt.Errorf("prompt %s: nothing was generated", id)
		}
		texts[i].ids, texts[i].gaps = traces.Traces[id].Tokens, gaps[id]
	}
	return texts, res, nil
}

// check feeds the texts to the oracle and compares.
func check(ctx context.Context, s *session, texts []greedyText, res *OracleResult, progress func(string)) (err error) {
	longest := 0
	for _, t := range texts {
		longest = max(longest, len(t.prompt.IDs)+len(t.ids))
	}
	f, err := newFeeder(s.m, longest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	var all []float64
	for _, t := range texts {
		progress(fmt.Sprintf("oracle: %d tokens checked, %d differ", res.Tokens, len(res.Cases)))
		f.reset()
		if err := checkText(ctx, f, s.entry.Vocab(), t, res); err != nil {
			return err
		}
		res.Prompts++
		res.Tokens += len(t.ids)
		all = append(all, t.gaps...)
	}
	slices.SortStableFunc(res.Cases, func(a, b OracleCase) int { return cmp.Compare(b.Margin, a.Margin) })
	var margins, gaps []float64
	for _, c := range res.Cases {
		margins, gaps = append(margins, c.Margin), append(gaps, c.Gap)
	}
	res.Differ = len(res.Cases)
	res.Margins, res.Gaps, res.AllGaps = spread(margins), spread(gaps), spread(all)
	return nil
}

// checkText compares one continuation, a chunk of rows at a time: row p says
// what may stand at position p+1. known is the number of ids that have a token.
func checkText(ctx context.Context, f *feeder, known int, t greedyText, res *OracleResult) error {
	ids := append(slices.Clone(t.prompt.IDs), t.ids[:len(t.ids)-1]...)
	first, vocab := len(t.prompt.IDs)-1, f.m.Config.VocabSize
	for from := 0; from < len(ids); from += scoreChunk {
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		chunk := ids[from:min(len(ids), from+scoreChunk)]
		rows, err := f.feed(from, chunk)
		if err != nil {
			return err
		}
		for i := max(0, first-from); i < len(chunk); i++ {
			n := from + i - first
			row, token := rows[i*vocab:(i+1)*vocab], t.ids[n]
			best := topLogits(row, 1)[0]
			if best.ID != token {
				res.Cases = append(res.Cases, OracleCase{
					Prompt: t.prompt.ID, Output: n, Token: token, Oracle: best.ID,
					Margin: float64(best.Logit) - float64(row[token]), Gap: t.gaps[n],
				})
			}
		}
	}
	return nil
}
