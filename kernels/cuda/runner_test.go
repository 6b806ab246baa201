//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/tokenizer"
	"exacta.dev/exacta/kernels"
)

// modelDir is the folder of the embedded model: as `go test` sees it, or where
// EXACTA_MODEL says.
func modelDir() string {
	if d := os.Getenv("EXACTA_MODEL"); d != "" {
		return d
	}
	return filepath.Join("..", "..", "engine", "embedded")
}

func embedded(t *testing.T) model.Source {
	t.Helper()
	ck, err := checkpoint.Open(modelDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ck.Close()) })
	return model.Checkpoint{Checkpoint: ck}
}

// oneLayer is a source cut to a single one of its layers.
type oneLayer struct {
	model.Source
	layer string // "model.layers.3."
	kind  checkpoint.LayerKind
}

const firstLayer = "model.layers.0."

func (s oneLayer) name(n string) string {
	if rest, ok := strings.CutPrefix(n, firstLayer); ok {
		return s.layer + rest
	}
	return n
}

func (s oneLayer) Config() checkpoint.Config {
	c := s.Source.Config()
	c.NumLayers, c.LayerTypes = 1, []checkpoint.LayerKind{s.kind}
	return c
}

func (s oneLayer) Has(n string) bool { return s.Source.Has(s.name(n)) }

func (s oneLayer) Matrix(n string, rows, cols int) (kernels.Source, error) {
	return s.Source.Matrix(s.name(n), rows, cols)
}

func (s oneLayer) Done(n string) error { return s.Source.Done(s.name(n)) }

// prompts returns the ids of held-out prompts of the embedded model.
func prompts(t *testing.T) [][]int32 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(modelDir(), "tokenizer.json"))
	require.NoError(t, err)
	tok, err := tokenizer.Load(text)
	require.NoError(t, err)
	lines, err := os.ReadFile(filepath.Join(modelDir(), "prompts.jsonl"))
	require.NoError(t, err)
	var out [][]int32
	for line := range strings.Lines(string(lines)) {
		var p struct{ Prompt string }
		require.NoError(t, json.Unmarshal([]byte(line), &p))
		out = append(out, tok.Encode(p.Prompt, false))
	}
	return out
}

// Limits of a runner.
const (
	maxRows   = 192
	slotPages = 16
	drafts    = 3
)

// runner runs a model on a backend.
type runner struct {
	t     *testing.T
	be    kernels.Backend
	q     kernels.Queue
	m     *model.Model
	mtp   *model.MTP
	cs    kernels.Caches
	batch kernels.Batch
	kept  kernels.Buf
	stats kernels.Buf
}

func newRunner(t *testing.T, be kernels.Backend, src model.Source, slots int) *runner {
	t.Helper()
	r := &runner{t: t, be: be, q: be.Queue()}
	var err error
	r.m, err = model.Load(be, src, model.Options{MaxTokens: slotPages * kernels.PageTokens, MTP: true})
	require.NoError(t, err)
	require.NoError(t, r.m.Reserve(maxRows, maxRows))
	layers := r.m.Layers()
	if l, ok := r.m.MTPLayer(); ok {
		layers = append(layers, l)
	}
	r.mtp, err = r.m.MTP(maxRows, slots)
	require.NoError(t, err)
	r.cs, err = be.Caches(kernels.CacheSpec{Layers: layers, Slots: slots, Pages: slots * slotPages, SlotPages: slotPages, MaxDraft: drafts})
	require.NoError(t, err)
	for s := range slots {
		pages := make([]int32, slotPages)
		for i := range pages {
			pages[i] = int32(i*slots + s)
		}
		r.q.SetPages(r.cs, s, 0, pages)
	}
	r.batch, err = kernels.NewBatch(be, slots, maxRows, maxRows)
	require.NoError(t, err)
	r.kept = r.alloc(kernels.I32, slots, 1)
	r.stats = r.alloc(kernels.I32, maxRows, kernels.StatCols)
	return r
}

func (r *runner) alloc(k kernels.Kind, rows, cols int) kernels.Buf {
	r.t.Helper()
	b, err := r.be.Alloc(kernels.Activations, k, rows, cols)
	require.NoError(r.t, err)
	return b
}

func packed(x ...int32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// write lays out one span in a slot; all its logits are wanted.
func (r *runner) write(slot, start int, ids []int32) kernels.Batch {
	n := len(ids)
	b := r.batch.Prefix(1, n, n)
	b.MaxLen = n
	row := func(f func(i int) int) []byte {
		x := make([]int32, n)
		for i := range x {
			x[i] = int32(f(i))
		}
		return packed(x...)
	}
	r.q.Write(b.Seq, packed(int32(slot)))
	r.q.Write(b.Start, packed(int32(start)))
	r.q.Write(b.Len, packed(int32(n)))
	r.q.Write(b.RowOff, packed(0))
	r.q.Write(b.Token, packed(ids...))
	r.q.Write(b.Pos, row(func(i int) int { return start + i }))
	r.q.Write(b.Parent, row(func(i int) int { return i - 1 }))
	r.q.Write(b.Span, row(func(int) int { return 0 }))
	r.q.Write(b.Logit, row(func(i int) int { return i }))
	return b
}

// pass runs and commits one span; it returns what Forward did and the batch.
func (r *runner) pass(slot, start int, ids []int32) (model.Output, kernels.Batch) {
	b := r.write(slot, start, ids)
	out := r.m.Forward(r.q, &b, r.cs)
	r.q.Stats(r.stats.Top(len(ids)), out.Logits, r.m.Config.VocabSize, true)
	r.q.Write(r.kept.Top(1), packed(int32(len(ids))))
	r.q.Commit(r.cs, &b, r.kept.Top(1), kernels.Buf{})
	return out, b
}

func (r *runner) bytes(b kernels.Buf) []byte {
	r.t.Helper()
	out := make([]byte, b.Bytes())
	require.NoError(r.t, r.q.Read(out, b).Wait())
	return out
}

func (r *runner) ints(b kernels.Buf) []int32 {
	raw := r.bytes(b)
	out := make([]int32, len(raw)/4)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

func (r *runner) floats(b kernels.Buf) []float32 {
	raw := r.bytes(b)
	out := make([]float32, len(raw)/b.Kind.Size())
	for i := range out {
		if b.Kind == kernels.BF16 {
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
		} else {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	}
	return out
}
