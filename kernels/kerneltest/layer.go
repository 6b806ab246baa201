package kerneltest

import (
	"math"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// layer is one mixer under test, with its parameters loaded.
type layer struct {
	spec      kernels.LayerSpec
	attn      *kernels.AttnSpec  // exactly one of attn and delta
	index     *kernels.IndexSpec // with attn: chooses its keys; its projections come behind
	main      int                // columns of attn's own projections
	delta     *kernels.DeltaSpec
	blocks    *kernels.BlockSpec // with attn, like index
	proj, out int                // columns
	// run, if any, is the layer in the place of attn and delta.
	run func(m *machine, out, proj kernels.Buf, c kernels.Layer, b *kernels.Batch)
}

// attnShape is a kind of attention layer.
type attnShape struct {
	name        string
	q, kv, dim  int
	values      int // 0: as dim
	gated, norm bool
	centered    bool
	rotary      int
	firstKey    int
	index       int // heads of an index that chooses keys; 0: none
	topK        int
	ratio       int // the index chooses blocks of as many keys; 0: keys
}

// The shapes of the model families: Qwen3.5 (gated, centred norms, a quarter
// rotated), Qwen3, Llama, and one without rotation.
var attnShapes = []attnShape{
	{name: "qwen3.5", q: 4, kv: 2, dim: 64, gated: true, norm: true, centered: true, rotary: 16},
	{name: "qwen3", q: 6, kv: 1, dim: 32, norm: true, rotary: 32},
	{name: "llama", q: 3, kv: 3, dim: 64, rotary: 64},
	{name: "plain", q: 2, kv: 1, dim: 128, gated: true},
	{name: "latent", q: 5, kv: 1, dim: 72, values: 56, rotary: 16},
	{name: "chosen", q: 3, kv: 1, dim: 40, values: 32, rotary: 8, index: 6, topK: 37},
	{name: "blocks", q: 4, kv: 2, dim: 40, gated: true, norm: true, centered: true, rotary: 10, index: 5, topK: 6, ratio: 4, firstKey: 1},
	{name: "wide values", q: 4, kv: 2, dim: 32, values: 80, norm: true, rotary: 32},
	{name: "few", q: 2, kv: 1, dim: 24, index: 2, topK: 3}, // most pages and splits hold no key that a row chose
}

const maxPositions = 1200

// indexDim is the width of the keys of an index under test.
const indexDim = 24

func (r *rig) attnLayer(a attnShape) *layer {
	s := &kernels.AttnSpec{
		QHeads: a.q, KVHeads: a.kv, HeadDim: a.dim, Scale: float32(1 / math.Sqrt(float64(a.dim))),
		Gated: a.gated, Rotary: a.rotary, FirstKey: a.firstKey, ValueDim: a.values,
	}
	if a.norm {
		s.QNorm, s.KNorm = r.norm(a.dim, a.centered), r.norm(a.dim, a.centered)
	}
	if a.rotary > 0 {
		s.Rope = r.rope(maxPositions, a.rotary)
	}
	l := &layer{
		spec: kernels.LayerSpec{Kind: kernels.Attention, KVHeads: a.kv, HeadDim: a.dim, ValueDim: a.values},
		attn: s, proj: (a.q+a.kv)*a.dim + a.kv*s.Values(), out: a.q * s.Values(),
	}
	if a.gated {
		l.proj += a.q * a.dim
	}
	l.main = l.proj
	switch {
	case a.ratio > 0:
		l.blocks = &kernels.BlockSpec{
			Heads: a.index, Dim: indexDim, Rotary: a.rotary, Rope: s.Rope, TopK: a.topK, Ratio: a.ratio, FirstKey: a.firstKey,
			QNorm: r.norm(indexDim, true), KNorm: r.norm(indexDim, true),
		}
		l.spec.IndexDim, l.spec.IndexRatio = indexDim, a.ratio
		l.proj += (a.index + 1) * indexDim
	case a.index > 0:
		l.index = &kernels.IndexSpec{Heads: a.index, Dim: indexDim, Rotary: a.rotary, Rope: s.Rope, TopK: a.topK, FirstKey: a.firstKey}
		l.spec.IndexDim = indexDim
		l.proj += (a.index+1)*indexDim + a.index
	}
	return l
}

// deltaShape is a kind of Gated DeltaNet layer.
type deltaShape struct {
	name             string
	kh, vh, kd, vd   int
	conv             int
	gate             kernels.Act
	decayLo, decayHi float64 // range of a_log
}

var deltaShapes = []deltaShape{
	{"qwen3.5", 2, 4, 64, 64, 4, kernels.SiLU, -2, 1},
	{"one head per key", 2, 2, 32, 64, 4, kernels.Sigmoid, -4, 0},
	{"long memory", 1, 3, 64, 32, 2, kernels.SiLU, -9, -6},
	{"fast decay", 1, 2, 128, 128, 3, kernels.SiLU, 2, 4},
}

func (r *rig) deltaLayer(d deltaShape) *layer {
	c := 2*d.kh*d.kd + d.vh*d.vd
	return &layer{
		spec: kernels.LayerSpec{Kind: kernels.Delta, KHeads: d.kh, VHeads: d.vh, KDim: d.kd, VDim: d.vd, Conv: d.conv},
		delta: &kernels.DeltaSpec{
			KHeads: d.kh, VHeads: d.vh, KDim: d.kd, VDim: d.vd, Conv: d.conv, Gate: d.gate,
			Taps:   r.load(kernels.Taps, kernels.DTypeF32, c, d.conv, r.uniform(c*d.conv, -1, 1)),
			ALog:   r.vector(d.vh, d.decayLo, d.decayHi),
			DtBias: r.vector(d.vh, -1, 1),
			Norm:   r.norm(d.vd, false),
		},
		proj: c + d.vh*d.vd + 2*d.vh, out: d.vh * d.vd,
	}
}

// machine runs layers over batches of projections: layer i reads its own slice
// of the columns of every row.
type machine struct {
	*rig
	layers []*layer
	cs     kernels.Caches
	batch  kernels.Batch // the largest bucket
	kept   kernels.Buf
	path   kernels.Buf // rows that are kept, by row
	proj   []kernels.Buf
	out    []kernels.Buf
	masks  kernels.Buf     // of a layer with an index
	heads  kernels.Buf     // weights of its heads
	spares []kernels.Buf   // made by spare
	used   int             // of them, in this step
	width  int             // columns of a row, all layers
	pages  []int32         // not handed out yet
	mapped map[int]int     // pages set, by slot
	given  map[int][]int32 // what ensure gave to a slot
}

const (
	bucketSpans = 6
	bucketRows  = 700
)

// machine makes caches for the layers. Pages are handed out in a random order.
func (r *rig) machine(slots, slotPages, maxDraft, snapshots int, layers ...*layer) *machine {
	r.t.Helper()
	spec := kernels.CacheSpec{Slots: slots, Pages: slots * slotPages, SlotPages: slotPages, MaxDraft: maxDraft, Snapshots: snapshots}
	m := &machine{rig: r, layers: layers, batch: r.batch(bucketSpans, bucketRows, 1), mapped: map[int]int{}, given: map[int][]int32{}}
	m.kept, m.path = r.alloc(kernels.I32, bucketSpans, 1), r.alloc(kernels.I32, bucketRows, 1)
	for _, l := range layers {
		spec.Layers = append(spec.Layers, l.spec)
		m.proj = append(m.proj, r.alloc(kernels.BF16, bucketRows, l.proj))
		m.out = append(m.out, r.alloc(kernels.BF16, bucketRows, l.out))
		m.width += l.proj
		if l.blocks != nil {
			m.masks = r.alloc(kernels.I32, bucketRows, kernels.MaskWords(maxPositions))
		}
		if l.index != nil {
			m.masks, m.heads = r.alloc(kernels.I32, bucketRows, kernels.MaskWords(maxPositions)), r.alloc(kernels.F32, bucketRows, l.index.Heads)
		}
	}
	var err error
	m.cs, err = r.be.Caches(spec)
	require.NoError(r.t, err)
	for _, p := range r.rnd.Perm(spec.Pages) {
		m.pages = append(m.pages, int32(p))
	}
	return m
}

// close frees what the machine holds, but not the layers.
func (m *machine) close() {
	b := m.batch
	bufs := append([]kernels.Buf{m.kept, m.path, b.Seq, b.Start, b.Len, b.RowOff, b.Token, b.Pos, b.Parent, b.Span, b.Logit}, m.proj...)
	for _, b := range []kernels.Buf{m.masks, m.heads} {
		if !b.None() {
			bufs = append(bufs, b)
		}
	}
	bufs = append(bufs, m.spares...)
	for _, b := range append(bufs, m.out...) {
		m.be.Free(b)
	}
	require.NoError(m.t, m.cs.Close())
}

// ensure sets pages of a slot up to n positions.
func (m *machine) ensure(slot, n int) {
	need := (n + kernels.PageTokens - 1) / kernels.PageTokens
	if have := m.mapped[slot]; need > have {
		m.q.SetPages(m.cs, slot, have, m.pages[:need-have])
		m.given[slot] = append(m.given[slot], m.pages[:need-have]...)
		m.pages = m.pages[need-have:]
		m.mapped[slot] = need
	}
}

// spare returns rows of a buffer for something in between, each step the same one in
// its place.
func (m *machine) spare(k kernels.Kind, rows, cols int) kernels.Buf {
	if m.used == len(m.spares) {
		m.spares = append(m.spares, m.alloc(k, bucketRows, cols))
	}
	m.used++
	return m.spares[m.used-1].Top(rows)
}

// sequence returns n rows of projections.
func (m *machine) sequence(n int) [][]float32 {
	out := make([][]float32, n)
	for i := range out {
		out[i] = m.normal(m.width, 1)
	}
	return out
}

// reset empties a slot, which keeps its pages.
func (m *machine) reset(slot int) {
	m.q.Reset(m.cs, slot)
	if p := m.given[slot]; len(p) > 0 {
		m.q.SetPages(m.cs, slot, 0, p)
	}
}

// piece is a span to run.
type piece struct {
	slot, start int
	rows        [][]float32
	parent      []int // nil is a chain
	kept        int   // rows to commit; -1: no commit at all
	path        []int // the rows to commit; nil: the first ones
}

// plain is the bucket that fits exactly, spans in order.
func (m *machine) plain(pieces ...piece) [][][]byte {
	m.t.Helper()
	rows := 0
	for _, p := range pieces {
		rows += len(p.rows)
	}
	return m.step(pieces, len(pieces), rows, false)
}

// choose runs a layer whose keys are chosen: the last columns of its projections are
// the weights of the index's heads, widened by the queue, which has no other way from
// BF16 to FP32 than a product with the identity.
func (m *machine) choose(out, proj kernels.Buf, i int, b *kernels.Batch) {
	l := m.layers[i]
	if l.blocks != nil {
		spec, masks := *l.attn, m.masks.Top(int(proj.Rows))
		m.q.SelectBlocks(masks, proj.Columns(l.main, l.proj), m.cs.Layer(i), b, l.blocks)
		spec.Keys = masks
		m.q.Attend(out, proj.Columns(0, l.main), m.cs.Layer(i), b, &spec)
		return
	}
	rows, at, n := int(proj.Rows), l.main+(l.index.Heads+1)*indexDim, l.index.Heads
	masks, heads := m.masks.Top(rows), m.heads.Top(rows)
	m.q.MatMul(heads, m.identity(n), proj.Columns(at, at+n), kernels.Linear{})
	m.q.Select(masks, proj.Columns(l.main, at), heads, m.cs.Layer(i), b, l.index)
	spec := *l.attn
	spec.Keys = masks
	m.q.Attend(out, proj.Columns(0, l.main), m.cs.Layer(i), b, &spec)
}

// step runs pieces in a bucket of spans and rows and returns the bytes of their
// rows, all layers side by side. With shuffle, spans and rows lie in random
// places with idle ones between them.
func (m *machine) step(pieces []piece, spans, rows int, shuffle bool) [][][]byte {
	m.t.Helper()
	l := m.lay(pieces, spans, rows, shuffle)
	b := m.batch.Prefix(spans, rows, 0)
	l.write(m, b)
	commit := true
	m.used = 0
	for i, layer := range m.layers {
		proj, out := m.proj[i].Top(rows), m.out[i].Top(rows)
		m.q.Write(proj, l.project(m, i))
		switch {
		case layer.run != nil:
			layer.run(m, out, proj, m.cs.Layer(i), &b)
		case layer.index != nil || layer.blocks != nil:
			m.choose(out, proj, i, &b)
		case layer.attn != nil:
			m.q.Attend(out, proj, m.cs.Layer(i), &b, layer.attn)
		default:
			m.q.Delta(out, proj, m.cs.Layer(i), &b, layer.delta)
		}
	}
	var path kernels.Buf
	for _, p := range pieces {
		commit = commit && p.kept >= 0
		if p.path != nil {
			path = m.path.Top(rows)
		}
	}
	if commit {
		m.q.Commit(m.cs, &b, m.kept.Top(spans), path)
	}
	reads := make([][]byte, len(m.layers))
	var last kernels.Ticket
	for i := range m.layers {
		out := m.out[i].Top(rows)
		reads[i] = make([]byte, out.Bytes())
		last = m.q.Read(reads[i], out)
	}
	require.NoError(m.t, last.Wait())
	res := make([][][]byte, len(pieces))
	for i, p := range pieces {
		for j := range p.rows {
			var row []byte
			for _, b := range reads {
				row = append(row, cut(b, rows)[l.off[i]+j]...)
			}
			res[i] = append(res[i], row)
		}
	}
	return res
}
