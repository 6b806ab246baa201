package engine_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/verify"
)

const (
	vocab   = 61
	context = 320
)

// tiny is a hybrid of three recurrent layers and one of attention, with a
// multi-token-prediction module, and random weights.
func tiny() model.Source {
	return model.Random{ShapeName: "engine-test", Seed: 3, Shape: checkpoint.Config{
		ModelType: "qwen3_5_text", Family: checkpoint.Qwen3_5,
		HiddenSize: 48, IntermediateSize: 72, NumLayers: 4, NumHeads: 4, NumKVHeads: 2, HeadDim: 24,
		VocabSize: vocab, MaxPositions: context, RMSEps: 1e-6, TieEmbeddings: true, AttnOutputGate: true, MTPLayers: 1, BOS: -1,
		Rope:       checkpoint.Rope{Type: checkpoint.RopeDefault, Theta: 1e4, PartialFactor: 0.25},
		LayerTypes: []checkpoint.LayerKind{checkpoint.LinearAttention, checkpoint.LinearAttention, checkpoint.LinearAttention, checkpoint.FullAttention},
		GDN:        checkpoint.GDN{NumKHeads: 2, NumVHeads: 4, KDim: 16, VDim: 16, ConvKernel: 4, OutputGate: checkpoint.SiLU},
	}}
}

// load loads a model on a backend that lives as long as the test.
func load(t *testing.T, be kernels.Backend, src model.Source) *model.Model {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	m, err := model.Load(be, src, model.Options{MaxTokens: context, MTP: true})
	require.NoError(t, err)
	return m
}

func newCPU(t *testing.T) kernels.Backend {
	t.Helper()
	be, err := cpu.New(cpu.Options{Threads: 1})
	require.NoError(t, err)
	return be
}

func tinyCPU(t *testing.T) *model.Model {
	t.Helper()
	return load(t, newCPU(t), tiny())
}

func rule(t *testing.T, name string) engine.Verifier {
	t.Helper()
	r, err := verify.New(name)
	require.NoError(t, err)
	return r
}

// strategy provisions a drafter of package draft; medusa as chains, which a loop can
// draft.
func strategy(t *testing.T, m *model.Model, name string) engine.Drafter {
	t.Helper()
	s, err := draft.New(name)
	require.NoError(t, err)
	switch c := s.(type) {
	case *draft.Medusa:
		c.Tree = false
	case *draft.DSpark:
		c.MinConfidence = 0 // so that drafts are as long as was asked for
	}
	d, err := s.Provision(draft.Env{Backend: m.Backend(), Model: m, Vocab: m.Config.VocabSize})
	require.NoError(t, err)
	return d
}

// prompt makes n tokens that depend on seed.
func prompt(n, seed int) []int32 {
	out := make([]int32, n)
	x := uint32(seed*7919 + 1)
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = int32(x>>16) % vocab
	}
	return out
}

// scripted is a host drafter that proposes what a function says.
type scripted struct {
	name      string
	propose   func(a *engine.Ask) ([]int32, error)
	committed func(s *engine.Step) error
	released  []string
}

func (d *scripted) Name() string { return d.name }

func (d *scripted) Committed(s *engine.Step) error {
	if d.committed != nil {
		return d.committed(s)
	}
	return nil
}

func (d *scripted) Propose(_ kernels.Queue, asks []*engine.Ask) error {
	for _, a := range asks {
		ids, err := d.propose(a)
		if err != nil {
			return err
		}
		a.Draft = engine.Draft{Tokens: ids}
	}
	return nil
}

func (d *scripted) Release(s *engine.Sequence) { d.released = append(d.released, s.Request().ID) }

// knowing proposes what the sequences of known plain outputs will say, except
// every wrong-th token of the output, if wrong is not 0.
func knowing(known map[string][]int32, wrong int) *scripted {
	return &scripted{name: "knowing", propose: func(a *engine.Ask) ([]int32, error) {
		out := known[a.Seq.Request().ID]
		var ids []int32
		for i := len(a.Seq.Output()); i < len(out) && len(ids) < a.K; i++ {
			id := out[i]
			if wrong > 0 && i%wrong == wrong-1 {
				id = (id + 1) % vocab
			}
			ids = append(ids, id)
		}
		return ids, nil
	}}
}

// outcome is what a sequence produced.
type outcome struct {
	tokens  []int32
	hashes  []uint64 // one for each token
	records []*engine.Record
	seq     *engine.Sequence
}

// rig is an engine whose records are kept by request.
type rig struct {
	t        *testing.T
	e        *engine.Engine
	out      map[string]*outcome
	finished []string
}

func newRig(t *testing.T, m *model.Model, cfg engine.Config, drafters ...engine.Drafter) *rig {
	t.Helper()
	r := &rig{t: t, out: map[string]*outcome{}}
	named := map[string]engine.Drafter{}
	for _, d := range drafters {
		named[d.Name()] = d
	}
	rec := engine.RecorderFunc(func(rec *engine.Record) error {
		o := r.out[rec.Request]
		o.records = append(o.records, rec)
		o.tokens = append(o.tokens, rec.EmittedIDs...)
		o.hashes = append(o.hashes, rec.Hashes[:len(rec.EmittedIDs)]...)
		return nil
	})
	var err error
	r.e, err = engine.New(m, cfg, named, rule(t, "greedy"), rec, engine.Listener{
		Finished: func(s *engine.Sequence) { r.finished = append(r.finished, s.Request().ID) },
	})
	require.NoError(t, err)
	return r
}

// submit takes a request in.
func (r *rig) submit(q engine.Request) *engine.Sequence {
	r.t.Helper()
	s, err := r.e.Submit(q)
	require.NoError(r.t, err)
	r.out[q.ID] = &outcome{seq: s}
	return s
}

// close runs what is left and closes the engine.
func (r *rig) close() {
	r.t.Helper()
	require.NoError(r.t, r.e.Run(nil))
	require.Zero(r.t, r.e.Active())
	require.NoError(r.t, r.e.Close())
}

// plain decodes requests one at a time without drafts: the reference.
func plain(t *testing.T, m *model.Model, reqs ...engine.Request) map[string]*outcome {
	t.Helper()
	r := newRig(t, m, engine.Config{MaxSequences: 1})
	for _, q := range reqs {
		q.Drafter, q.K = "", 0
		r.submit(q)
	}
	r.close()
	return r.out
}

func outputs(of map[string]*outcome) map[string][]int32 {
	out := map[string][]int32{}
	for id, o := range of {
		out[id] = o.tokens
	}
	return out
}

// same requires that the tokens and logits hashes of a request are the plain
// ones, over the whole of what was produced.
func same(t *testing.T, want, got *outcome) {
	t.Helper()
	require.Equal(t, want.tokens, got.tokens)
	require.Equal(t, want.hashes, got.hashes)
	require.Equal(t, got.tokens, got.seq.Output(), "records and sequence")
	obeys(t, got)
}

// obeys checks the identities of a sequence's records.
func obeys(t *testing.T, o *outcome) {
	t.Helper()
	for i, r := range o.records {
		require.EqualValues(t, i, r.SeqStep)
		require.LessOrEqual(t, int(r.Accepted), int(r.KExecuted))
		require.LessOrEqual(t, r.KExecuted, r.KPlanned)
		require.Len(t, r.ProposedIDs, int(r.KExecuted))
		require.False(t, r.Simulated)
		require.Equal(t, r.Accepted, r.RealAccepted)
		wanted := int(r.KExecuted) + 1
		if r.NextKind == engine.NextNone {
			wanted = 0
			require.EqualValues(t, -1, r.NextID)
			require.Empty(t, r.EmittedIDs)
		}
		require.Len(t, r.Hashes, wanted)
		require.Len(t, r.Gaps, wanted)
		for _, g := range r.Gaps {
			require.False(t, g < 0 || math.IsNaN(float64(g)), "gap %v", g)
		}
		if wanted == 0 {
			continue
		}
		decided := append(slices.Clone(r.ProposedIDs[:r.Accepted]), r.NextID)
		if i+1 < len(o.records) {
			require.Equal(t, decided, r.EmittedIDs, "only the last record may be cut")
		} else {
			require.Equal(t, decided[:len(r.EmittedIDs)], r.EmittedIDs)
			require.NotEmpty(t, r.EmittedIDs)
		}
		if r.Phase == engine.Decode {
			require.Equal(t, r.KExecuted+1, r.Rows)
		}
		require.Equal(t, kind(r), r.NextKind)
	}
}

func kind(r *engine.Record) engine.NextKind {
	switch {
	case r.KExecuted == 0:
		return engine.NextSampled
	case int(r.Accepted) == int(r.KExecuted):
		return engine.NextBonus
	}
	return engine.NextCorrection
}
