package metamorphic_test

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/embedded"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/internal/metamorphic"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/fakedev"
	"exacta.dev/exacta/kernels/ranks"
	"exacta.dev/exacta/kernels/ref"
	"exacta.dev/exacta/verify"
)

// kinds are the kinds of head that are made from those of the embedded model.
var kinds = []checkpoint.HeadKind{checkpoint.HeadMTP, checkpoint.HeadEagle3, checkpoint.HeadMedusa, checkpoint.HeadDFlash}

// TestInt4Programs runs random programs whose learned strategies have heads of 4 bits.
func TestInt4Programs(t *testing.T) {
	src := tiny().(model.Random)
	src.Shape.HiddenSize, src.Shape.IntermediateSize = 64, 96 // groups of 32 divide them
	s := metamorphic.NewSuite(src, kernelSets())
	s.Heads = map[checkpoint.HeadKind]string{}
	for _, k := range append(kinds, checkpoint.HeadEagle, checkpoint.HeadDSpark) {
		s.Heads[k] = model.RandomInt4Head
	}
	defer func() { require.NoError(t, s.Close()) }()
	for i := range min(*programs, 20) {
		p := metamorphic.NewProgram(*first+uint64(i), src.Shape.VocabSize, kernelSets())
		require.NoError(t, s.Run(p), "seed %d\n%s", p.Seed, p)
	}
}

// played is what a request did.
type played struct {
	proposed, tokens []int32
	hashes           []uint64
	accepted         int
}

// TestInt4HeadsOnEveryBackend makes heads of 4 bits of those of the embedded model and
// drafts with each on every kernel set, a fake device, ranks and in float64: tokens and
// hashes are plain decoding's, and all but float64 propose the same drafts.
func TestInt4HeadsOnEveryBackend(t *testing.T) {
	entry, err := registry.Open(registry.Embedded)
	if errors.Is(err, embedded.ErrAbsent) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, entry.Close()) }()
	heads := map[checkpoint.HeadKind]string{}
	for _, k := range kinds {
		heads[k] = filepath.Join(t.TempDir(), string(k))
		_, err := experiments.Quantize(t.Context(), experiments.QuantizeOptions{
			Head: string(k), Model: registry.Embedded, Backend: "cpu", Group: 64, ZeroPoints: true, Method: "rtn", K: 1, Tokens: 2, Limit: 1, Out: heads[k],
		}, func(string) {})
		require.NoError(t, err)
	}
	all := map[string]map[string]played{}
	keep := func(name string, got map[string]played, err error) {
		require.NoError(t, err, name)
		for s, p := range got {
			require.Equal(t, got[""].tokens, p.tokens, "%s: %s", name, s)
			require.Equal(t, got[""].hashes, p.hashes, "%s: %s", name, s)
		}
		all[name] = got
	}
	for _, set := range kernelSets() {
		be, err := cpu.New(cpu.Options{Threads: 1, Kernels: set})
		require.NoError(t, err)
		got, err := playHeads(entry, be, nil, heads, 24)
		keep(set, got, err)
		require.NoError(t, be.Close())
	}
	inner, err := cpu.New(cpu.Options{Threads: 1})
	require.NoError(t, err)
	device := fakedev.New(inner)
	got, err := playHeads(entry, device, nil, heads, 24)
	keep("fakedev", got, err)
	require.NoError(t, device.Close())
	open := func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }
	var both [2]map[string]played // records are rank 0's
	err = ranks.Run(2, open, ranks.Options{Timeout: 20 * time.Second}, func(be *ranks.Backend) (err error) {
		both[be.Rank()], err = playHeads(entry, be, be, heads, 24)
		return err
	})
	keep("ranks", both[0], err)
	want := all[kernelSets()[0]]
	for name, got := range all {
		require.Equal(t, want, got, name)
	}
	for s, p := range want {
		require.True(t, s == "" || p.accepted > 0, "%s: no draft was accepted", s)
	}
	oracle := ref.New()
	got, err = playHeads(entry, oracle, nil, heads, 6)
	keep("ref", got, err)
	require.NoError(t, oracle.Close())
}

// playHeads continues one prompt with each strategy and plainly, all in one engine, and
// returns what came by strategy.
func playHeads(entry *registry.Entry, be kernels.Backend, twins engine.Ranks, heads map[checkpoint.HeadKind]string, maxNew int) (out map[string]played, err error) {
	m, err := model.Load(be, entry.Source, model.Options{MaxTokens: 128, MTP: true})
	if err != nil {
		return nil, err
	}
	drafters := map[string]engine.Drafter{}
	for name, s := range metamorphic.Strategies(heads) {
		if drafters[name], err = s.Provision(draft.Env{Backend: be, Model: m, Vocab: entry.Vocab()}); err != nil {
			return nil, err
		}
	}
	greedy, err := verify.New("greedy")
	if err != nil {
		return nil, err
	}
	out = map[string]played{}
	rec := engine.RecorderFunc(func(r *engine.Record) error {
		p := out[r.Request]
		p.proposed, p.tokens = append(p.proposed, r.ProposedIDs...), append(p.tokens, r.EmittedIDs...)
		p.hashes = append(p.hashes, r.Hashes[:len(r.EmittedIDs)]...)
		p.accepted += int(r.Accepted)
		out[r.Request] = p
		return nil
	})
	e, err := engine.New(m, engine.Config{MaxTokens: 128, MaxSequences: 8, MaxDraft: 4, Vocab: entry.Vocab(), Ranks: twins}, drafters, greedy, rec, engine.Listener{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	ids := entry.Tokenizer.Encode("package main\n\nfunc main() {\n\tif err := run(); err != nil {\n", false)
	delete(drafters, "ngram")
	for _, name := range append(slices.Sorted(maps.Keys(drafters)), "") {
		q := engine.Request{ID: name, Prompt: ids, MaxNew: maxNew, Drafter: name, IgnoreStop: true}
		if name != "" {
			q.K = 4
		}
		if _, err := e.Submit(q); err != nil {
			return nil, err
		}
	}
	return out, e.Run(nil)
}
