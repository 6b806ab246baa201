package experiments

import (
	"context"
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/verify"
)

// decoded is what one prompt gave.
type decoded struct {
	tokens          []int32
	accepted, steps int
	draftMs         []float64
}

// decode continues a prompt greedily with drafts of k.
func (z *quantizer) decode(ctx context.Context, d engine.Drafter, p Prompt, k int) (out decoded, err error) {
	rule, err := verify.New("greedy")
	if err != nil {
		return out, err
	}
	rec := engine.RecorderFunc(func(r *engine.Record) error {
		if r.Phase == engine.Decode {
			out.steps++
			out.accepted += int(r.Accepted)
			if int(r.KExecuted) == k {
				out.draftMs = append(out.draftMs, float64(r.DraftNs)/1e6)
			}
		}
		return nil
	})
	e, err := engine.New(z.m, engine.Config{
		MaxTokens: min(z.m.MaxTokens, len(p.IDs)+z.o.Tokens), MaxSequences: 1, MaxDraft: k, Vocab: z.entry.Vocab(),
	}, map[string]engine.Drafter{d.Name(): d}, rule, rec, engine.Listener{})
	if err != nil {
		return out, err
	}
	defer e.Close()
	seq, err := e.Submit(engine.Request{
		ID: p.ID, Prompt: p.IDs, MaxNew: z.o.Tokens, Drafter: d.Name(), K: k, Stop: z.entry.Source.Config().EOS, IgnoreStop: true,
	})
	if err != nil {
		return out, err
	}
	if err := e.Run(func() bool { return ctx.Err() != nil }); err != nil {
		return out, err
	}
	if ctx.Err() != nil {
		return out, ErrInterrupted
	}
	out.tokens = slices.Clone(seq.Output())
	return out, seq.Err()
}

// judge compares both heads prompt by prompt.
func (z *quantizer) judge(ctx context.Context, prompts []Prompt) error {
	r := &z.res
	r.Model, r.Head, r.Out, r.Method, r.Group, r.ZeroPoints = z.entry.Name, z.o.Head, z.o.Out, z.o.Method, z.o.Group, z.o.ZeroPoints
	r.Prompts, r.K, r.Exact = len(prompts), min(z.o.K, z.from.most()), true
	var heads [2]engine.Drafter
	var sum [2]decoded
	for i, where := range []string{z.o.From, z.o.Out} {
		var err error
		if heads[i], err = z.drafter(where); err != nil {
			return err
		}
	}
	for n, p := range prompts {
		z.show(fmt.Sprintf("judge %d of %d", n+1, len(prompts)))
		var outs [2]decoded
		for i := range heads {
			var err error
			if outs[i], err = z.decode(ctx, heads[i], p, r.K); err != nil {
				return err
			}
			sum[i].accepted += outs[i].accepted
			sum[i].steps += outs[i].steps
			sum[i].draftMs = append(sum[i].draftMs, outs[i].draftMs...)
		}
		r.Exact = r.Exact && slices.Equal(outs[0].tokens, outs[1].tokens)
	}
	mid := func(x []float64) float64 {
		if len(x) == 0 {
			return 0
		}
		slices.Sort(x)
		return x[len(x)/2]
	}
	length := func(d decoded) float64 { return 1 + float64(d.accepted)/float64(max(1, d.steps)) }
	r.Accepted = pairOf(float64(sum[0].accepted), float64(sum[1].accepted))
	r.PerStep = pairOf(length(sum[0]), length(sum[1]))
	r.DraftMs = pairOf(mid(sum[0].draftMs), mid(sum[1].draftMs))
	return nil
}
