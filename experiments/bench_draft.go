package experiments

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
)

// DraftBenchOptions say what exacta bench draft measures.
type DraftBenchOptions struct {
	Model   string
	Backend string
	Kernels string
	Threads int
	Heads   []string // of QuantizeHeads; empty takes those that the model has
	Group   int      // columns that share a scale, of heads that are rounded here
	K       int      // drafts per step
	Prompt  int      // tokens before the measured steps
	Rounds  int
	Steps   int // per round and form of a head
}

// DraftBenchResult has what drafts cost, in BF16 and in 4 bits. The forms of a head and
// plain decoding are measured in turn, in rounds; times are medians, and so are ratios,
// each within a round.
type DraftBenchResult struct {
	Model  string               `json:"model"`
	Info   kernels.Info         `json:"backend"`
	Rounds int                  `json:"rounds"`
	K      int                  `json:"k"`
	StepMs float64              `json:"step_ms"` // of the target, 1 row
	Heads  map[string]HeadCosts `json:"heads"`
}

// HeadCosts are what one draft costs with a head, the passes that level its caches
// included: as a time, and as a share of a target step of 1 row.
type HeadCosts struct {
	Ms        QuantizePair `json:"ms"`
	StepShare QuantizePair `json:"step_share"`
}

func (o DraftBenchOptions) validate() error {
	for _, h := range o.Heads {
		if !slices.Contains(QuantizeHeads, h) {
			return fmt.Errorf("head %q; heads are %s", h, strings.Join(QuantizeHeads, ", "))
		}
	}
	for _, v := range []struct {
		name      string
		v, lo, hi int
	}{{"rounds", o.Rounds, 1, 10000}, {"steps", o.Steps, 1, 1 << 16}, {"prompt", o.Prompt, 1, 1 << 20}, {"k", o.K, 1, kernels.WindowTokens - 1}} {
		if v.v < v.lo || v.v > v.hi {
			return fmt.Errorf("%s is %d; it must be %d..%d", v.name, v.v, v.lo, v.hi)
		}
	}
	if !slices.Contains(kernels.Int4Groups, o.Group) {
		return fmt.Errorf("group %d; it must be one of %v", o.Group, kernels.Int4Groups)
	}
	return nil
}

// draftBench is a running measurement.
type draftBench struct {
	*bench
	o     DraftBenchOptions
	forms map[string][2]string // by kind: where the BF16 head is and that of 4 bits
	plain []float64            // medians by round, ns
	times map[string][2][]float64
}

// BenchDraft measures what drafts cost with the heads of a model, in BF16 and in 4 bits.
// A model's heads are rounded to 4 bits for it; a shape gets random ones.
func BenchDraft(ctx context.Context, o DraftBenchOptions, progress func(string)) (res *DraftBenchResult, err error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("bench draft: %w", err)
	}
	dir, err := os.MkdirTemp("", "exacta-heads-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &draftBench{o: o, times: map[string][2][]float64{}}
	if b.forms, err = draftForms(o, dir, progress); err != nil {
		return nil, fmt.Errorf("bench draft: %w", err)
	}
	b.bench = &bench{rand: rand.New(rand.NewPCG(3, 4)), o: BenchOptions{
		Model: o.Model, Backend: o.Backend, Kernels: o.Kernels, Threads: o.Threads, Prompt: o.Prompt, Rounds: o.Rounds,
		Context: o.Prompt + (o.K+1)*(o.Steps+2),
	}}
	if err := b.open(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.be.Close(), b.entry.Close()) }()
	for round := range o.Rounds {
		progress(fmt.Sprintf("round %d of %d", round+1, o.Rounds))
		if err := b.round(ctx); err != nil {
			return nil, err
		}
	}
	return b.result(), nil
}

// draftForms says where the two forms of each head are. Those of files are rounded into
// dir.
func draftForms(o DraftBenchOptions, dir string, progress func(string)) (map[string][2]string, error) {
	forms := map[string][2]string{}
	z := &quantizer{show: progress, o: QuantizeOptions{Model: o.Model, Backend: o.Backend, Threads: o.Threads, Kernels: o.Kernels, Group: o.Group, Method: "rtn"}}
	if entry, err := registry.Open(o.Model); err != nil {
		return nil, err
	} else if random, ok := entry.Source.(model.Random); ok {
		for _, kind := range QuantizeHeads {
			if o.wants(kind, kind != string(checkpoint.HeadMTP) || random.Shape.MTPLayers > 0) {
				forms[kind] = [2]string{model.RandomHead, model.RandomInt4Head}
			}
		}
		return forms, entry.Close()
	} else if err := entry.Close(); err != nil {
		return nil, err
	}
	err := z.load()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, z.close()) }()
	_, mtp := z.m.MTPLayer()
	for _, kind := range QuantizeHeads {
		if !o.wants(kind, z.m.HasHead(checkpoint.HeadKind(kind)) || mtp && kind == string(checkpoint.HeadMTP)) {
			continue
		}
		z.o.Head, z.o.Out = kind, filepath.Join(dir, kind)
		if z.from, err = z.open(); err != nil {
			return nil, err
		}
		if err = errors.Join(z.write(nil), z.from.Close()); err != nil {
			return nil, err
		}
		forms[kind] = [2]string{"", z.o.Out}
	}
	return forms, err
}

// wants says that a kind is measured: it was named, or the model has it and none was
// named.
func (o DraftBenchOptions) wants(kind string, have bool) bool {
	return slices.Contains(o.Heads, kind) || have && len(o.Heads) == 0
}

// round measures everything once, and keeps medians.
func (b *draftBench) round(ctx context.Context) error {
	step, err := b.session(b.garbage(), 0)
	if err != nil {
		return err
	}
	b.plain = append(b.plain, step)
	for kind, forms := range b.forms {
		all := b.times[kind]
		for i, where := range forms {
			if ctx.Err() != nil {
				return ErrInterrupted
			}
			d, err := headStrategy(checkpoint.HeadKind(kind), where).Provision(draft.Env{Backend: b.be, Model: b.m, Vocab: b.m.Config.VocabSize})
			if err != nil {
				return err
			}
			ns, err := b.session(d, b.o.K)
			if err != nil {
				return err
			}
			all[i] = append(all[i], ns)
		}
		b.times[kind] = all
	}
	return nil
}

// session decodes with drafts of k and returns the median time of a draft, or, for a k
// of 0, of a step.
func (b *draftBench) session(d engine.Drafter, k int) (float64, error) {
	var ns []float64
	rec := engine.RecorderFunc(func(r *engine.Record) error {
		switch {
		case r.Phase != engine.Decode || int(r.KExecuted) == 0 && k > 0:
		case k > 0:
			ns = append(ns, float64(r.DraftNs)/float64(r.KExecuted))
		default:
			ns = append(ns, float64(r.VerifyNs))
		}
		return nil
	})
	if err := b.run(rec, d, b.o.Prompt, (k+1)*(b.o.Steps+1), k); err != nil {
		return 0, err
	}
	return median(ns), nil
}

func (b *draftBench) result() *DraftBenchResult {
	res := &DraftBenchResult{Model: b.o.Model, Info: b.be.Info(), Rounds: b.o.Rounds, K: b.o.K, StepMs: median(b.plain) / 1e6, Heads: map[string]HeadCosts{}}
	for kind, t := range b.times {
		ratio := make([]float64, len(t[0]))
		var share [2][]float64
		for i := range ratio {
			ratio[i] = t[1][i] / t[0][i]
			for f := range share {
				share[f] = append(share[f], t[f][i]/b.plain[i])
			}
		}
		r := median(ratio)
		res.Heads[kind] = HeadCosts{
			Ms:        QuantizePair{BF16: median(t[0]) / 1e6, Int4: median(t[1]) / 1e6, Ratio: r},
			StepShare: QuantizePair{BF16: median(share[0]), Int4: median(share[1]), Ratio: r},
		}
	}
	return res
}
