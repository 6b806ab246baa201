package kerneltest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// pooledShape is a kind of Pooled layer.
type pooledShape struct {
	name            string
	heads, dim      int
	rotary, window  int
	ratio           int
	overlap, sink   bool
	index, indexDim int // heads of an index; 0: none
	topK            int
	size, blocks    int // of candidates: the choice is made again within them
	round           kernels.Rounding
	firstKey        int
	block           *bool // rows of a span see each other while it is set
}

// The shapes of the model families: DeepSeek-V4's layers without groups, with groups
// that overlap and an index, and with long groups, and DeepSeek-V4.1's groups of one
// position with candidates.
var pooledShapes = []pooledShape{
	{name: "window", heads: 3, dim: 40, rotary: 12, window: 21, sink: true},
	{name: "overlap", heads: 5, dim: 24, rotary: 8, window: 12, ratio: 4, overlap: true, sink: true},
	{name: "long", heads: 3, dim: 32, rotary: 10, window: 70, ratio: 11, sink: true},
	{name: "longer than a page", heads: 2, dim: 16, rotary: 4, window: 9, ratio: 72},
	{name: "rounded", heads: 3, dim: 64, rotary: 8, window: 17, ratio: 2, round: kernels.RoundFP8},
	{name: "chosen", heads: 4, dim: 20, rotary: 6, window: 15, ratio: 3, overlap: true, sink: true, index: 6, indexDim: 14, topK: 9},
	{name: "candidates", heads: 3, dim: 32, rotary: 6, window: 8, ratio: 1, sink: true, index: 6, indexDim: 18, topK: 12, size: 4, blocks: 7},
}

// keys returns the keys of a position that are pooled.
func (p pooledShape) keys() int {
	if p.overlap {
		return 2
	}
	return 1
}

// pooledLayer is a Pooled layer under test. The columns of its projection are
//
//	q | kv | keys and gates, or the group's key | those of the index | its q | its weights
func (r *rig) pooledLayer(p pooledShape) *layer {
	rope := r.rope(maxPositions, p.rotary)
	l := &pooledRun{shape: p, rotate: kernels.RotateSpec{Heads: p.heads, Dim: p.dim, Rotary: p.rotary, Rope: rope, Unit: true, Eps: 1e-6}}
	l.attend = kernels.PooledSpec{Heads: p.heads, Dim: p.dim, Scale: float32(1 / math.Sqrt(float64(p.dim))), FirstKey: p.firstKey, Groups: p.ratio > 0}
	if p.sink {
		l.attend.Sink = r.vector(p.heads, -1, 2)
	}
	cols := (p.heads + 1) * p.dim
	if p.ratio > 0 {
		cols += l.rawCols(p.dim)
	}
	if p.ratio > 1 {
		l.bias = r.load(kernels.Table, kernels.DTypeF32, p.ratio, p.keys()*p.dim, r.uniform(p.ratio*p.keys()*p.dim, -1, 1))
	}
	if p.index > 0 {
		cols += l.rawCols(p.indexDim) + p.index*p.indexDim + p.index
	}
	return &layer{
		spec: kernels.LayerSpec{Kind: kernels.Pooled, HeadDim: p.dim, IndexDim: p.indexDim, Window: p.window, Ratio: p.ratio, Overlap: p.overlap},
		proj: cols, out: p.heads * p.dim, run: l.run,
	}
}

// pooledRun runs such a layer.
type pooledRun struct {
	shape  pooledShape
	rotate kernels.RotateSpec // of queries
	attend kernels.PooledSpec
	bias   kernels.Weight
}

// rawCols returns the columns that make keys of dim for groups.
func (l *pooledRun) rawCols(dim int) int {
	if l.shape.ratio == 1 {
		return dim
	}
	return 2 * l.shape.keys() * dim
}

func (l *pooledRun) run(m *machine, out, proj kernels.Buf, c kernels.Layer, b *kernels.Batch) {
	p, n := l.shape, int(proj.Rows)
	at := 0
	next := func(cols int) kernels.Buf {
		at += cols
		return proj.Columns(at-cols, at)
	}
	q, kv := m.spare(kernels.BF16, n, p.heads*p.dim), m.spare(kernels.BF16, n, p.dim)
	m.q.Rotate(q, next(p.heads*p.dim), b, &l.rotate)
	one := kernels.RotateSpec{Heads: 1, Dim: p.dim, Rotary: p.rotary, Rope: l.rotate.Rope, Round: p.round}
	m.q.Rotate(kv, next(p.dim), b, &one)
	attend := l.attend
	attend.Block = p.block != nil && *p.block
	if p.ratio > 0 {
		m.q.Keep(l.group(m, next(l.rawCols(p.dim)), p.dim, c, b, false), c, b, false)
	}
	if p.index > 0 {
		m.q.Keep(l.group(m, next(l.rawCols(p.indexDim)), p.indexDim, c, b, true), c, b, true)
		query, weights := next(p.index*p.indexDim), m.spare(kernels.F32, n, p.index)
		m.q.MatMul(weights, m.identity(p.index), next(p.index), kernels.Linear{})
		words := kernels.MaskWords(maxPositions)
		mask := m.spare(kernels.I32, n, words)
		s := kernels.ChooseSpec{Heads: p.index, Dim: p.indexDim, TopK: p.topK}
		if p.blocks > 0 {
			s.Best, s.BestBlocks, s.BlockSize = m.spare(kernels.I32, n, words), p.blocks, p.size
			m.q.Choose(mask, query, weights, c, b, &s)
			s.Within, s.Best = s.Best, kernels.Buf{}
		}
		m.q.Choose(mask, query, weights, c, b, &s)
		attend.Chosen = mask
	}
	m.q.AttendPooled(q, q, kv, c, c, b, &attend)
	back := l.rotate
	back.Unit, back.Inverse = false, true
	m.q.Rotate(out, q, b, &back)
}

// group makes the keys of the groups that rows complete.
func (l *pooledRun) group(m *machine, raw kernels.Buf, dim int, c kernels.Layer, b *kernels.Batch, index bool) kernels.Buf {
	n := int(raw.Rows)
	key := m.spare(kernels.BF16, n, dim)
	place := kernels.RotateSpec{Heads: 1, Dim: dim, Rotary: l.shape.rotary, Rope: l.rotate.Rope, Ratio: l.shape.ratio}
	if l.shape.ratio == 1 {
		m.q.Rotate(key, raw, b, &place)
		return key
	}
	wide := m.spare(kernels.F32, n, int(raw.Cols))
	m.q.MatMul(wide, m.identity(int(raw.Cols)), raw, kernels.Linear{})
	s := kernels.PoolSpec{Index: index}
	if !index {
		s.Bias = l.bias
	}
	m.q.Pool(key, wide, c, b, &s)
	m.q.Rotate(key, key, b, &place)
	return key
}

// testPooled compares Pooled layers with ref; those with an index elsewhere, for
// rounded scores choose other groups.
func testPooled(t *testing.T, s suite) {
	for _, p := range pooledShapes {
		if p.index > 0 {
			continue
		}
		bound := boundLayer
		if p.round != kernels.RoundNone {
			bound = 0.05 // a value near a half goes to either side
		}
		t.Run(p.name, func(t *testing.T) {
			s.judge(t, 71, bound, 300, p.name, func(r *rig) kernels.Buf {
				m := r.machine(1, 5, 3, 0, r.pooledLayer(p))
				return m.prefill(300, 1, 2, 61, 70, 166)
			})
		})
	}
	t.Run("FirstKey", func(t *testing.T) {
		p := pooledShapes[0]
		p.firstKey = 1
		s.judge(t, 72, boundLayer, 39, "first key", func(r *rig) kernels.Buf {
			m := r.machine(1, 2, 3, 0, r.pooledLayer(p))
			m.ensure(0, 41)
			rows := m.sequence(39)
			dst := r.alloc(kernels.BF16, 39, m.layers[0].out)
			at := 0
			for _, n := range []int{5, 26, 8} {
				m.plain(piece{start: 1 + at, rows: rows[at : at+n], kept: -1})
				r.q.Copy(dst.Slice(at, at+n), m.out[0].Top(n))
				at += n
			}
			return dst
		})
	})
	t.Run("Block", func(t *testing.T) { testBlock(t, s) })
	t.Run("Choose", func(t *testing.T) { testChoose(t, s) })
	t.Run("Streams", func(t *testing.T) { testHyper(t, s) })
	t.Run("Rounding", func(t *testing.T) { testRounding(t, s) })
}

// testBlock fills in blocks behind windows that are full and not: all rows count for
// each, and nothing of them stays.
func testBlock(t *testing.T, s suite) {
	const width = 5
	for _, before := range []int{0, 3, 50} {
		script := func(r *rig, fill, swap bool) kernels.Buf {
			block := false
			p := pooledShapes[0]
			p.block = &block
			m := r.machine(1, 2, 3, 0, r.pooledLayer(p))
			m.ensure(0, 64)
			rows := m.sequence(before + width + 1)
			dst := r.alloc(kernels.BF16, 2*width, m.layers[0].out)
			if before > 0 {
				m.plain(piece{rows: rows[:before], kept: before})
			}
			behind, next := rows[before:before+width], rows[before+width:]
			if swap {
				behind = append(slices.Clone(behind[:width-1]), next[0])
			}
			if block = true; fill {
				m.plain(piece{start: before, rows: behind, kept: -1})
				r.q.Copy(dst.Top(width), m.out[0].Top(width))
			}
			block = false
			m.plain(piece{start: before, rows: next, kept: -1})
			r.q.Copy(dst.Slice(width, width+1), m.out[0].Top(1))
			return dst
		}
		what := fmt.Sprintf("a block behind %d", before)
		s.judge(t, 73, boundLayer, width+1, what, func(r *rig) kernels.Buf { return script(r, true, false) })
		run := func(fill, swap bool) []float32 { r := s.rig(t, 73); return r.floats(script(r, fill, swap)) }
		filled, plain, swapped := run(true, false), run(false, false), run(true, true)
		cols := len(filled) / (2 * width)
		require.Equal(t, plain[width*cols:(width+1)*cols], filled[width*cols:(width+1)*cols], "%s stays", what)
		require.NotEqual(t, swapped[:cols], filled[:cols], "%s: the first row sees the last", what)
	}
}

// testChoose checks which groups are chosen where the scores are small integers, with
// candidates and without.
func testChoose(t *testing.T, s suite) {
	const rows, ratio, topK, blocks, size = 90, 2, 7, 4, 3
	for _, c := range []struct {
		name   string
		scores func(g int) float32
	}{
		{"rising", func(g int) float32 { return float32(g) }},
		{"falling", func(g int) float32 { return float32(100 - g) }},
		{"equal", func(int) float32 { return 3 }},
		{"nothing", func(int) float32 { return 0 }},
		{"few values", func(g int) float32 { return float32(g * 7 % 4) }},
		{"not a number", func(g int) float32 {
			if g%5 == 0 {
				return float32(math.NaN())
			}
			return float32(g % 3)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, best, within := chooseRows(t, s, rows, ratio, topK, blocks, size, c.scores)
			for i := range rows {
				n := (i + 1) / ratio
				candidate := bestBlocks(c.scores, n, blocks, size)
				for g := range 64 {
					require.Equal(t, g < n && candidate[g/size], best(i, g), "row %d, group %d: candidate", i, g)
					better, among := 0, 0
					for o := range n {
						a, b := value(c.scores(o)), value(c.scores(g))
						if a > b || a == b && o < g {
							better++
							if candidate[o/size] {
								among++
							}
						}
					}
					require.Equal(t, g < n && better < topK, got(i, g), "row %d, group %d", i, g)
					require.Equal(t, g < n && candidate[g/size] && among < topK, within(i, g), "row %d, group %d of candidates", i, g)
				}
			}
		})
	}
}

// bestBlocks returns the blocks of n groups that are candidates.
func bestBlocks(scores func(g int) float32, n, most, size int) map[int]bool {
	all := (n + size - 1) / size
	top := func(b int) float32 {
		if b == all-1 {
			return float32(math.Inf(1))
		}
		v := float32(math.Inf(-1))
		for g := b * size; g < min((b+1)*size, n); g++ {
			v = max(v, value(scores(g)))
		}
		return v
	}
	out := map[int]bool{}
	for b := range all {
		better := 0
		for o := range all {
			if top(o) > top(b) || top(o) == top(b) && o < b {
				better++
			}
		}
		out[b] = better < most
	}
	return out
}

// chooseRows runs rows in two chunks in which group g scores as it is told, and
// returns what is chosen, what is a candidate, and what is chosen of candidates.
func chooseRows(t *testing.T, s suite, rows, ratio, topK, blocks, size int, scores func(g int) float32) (got, best, within func(row, g int) bool) {
	const heads, dim, words = 2, 8, 2
	r := s.rig(t, 73)
	cs, err := r.be.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{{Kind: kernels.Pooled, HeadDim: 4, IndexDim: dim, Ratio: ratio}}, Slots: 1, Pages: 2, SlotPages: 2,
	})
	require.NoError(t, err)
	r.q.SetPages(cs, 0, 0, []int32{1, 0})
	query, keys, weights := make([]float32, rows*heads*dim), make([]float32, rows*dim), make([]float32, rows*heads)
	for i := range rows {
		query[i*heads*dim], query[i*heads*dim+dim] = 1, -1 // the second head's products are negative
		keys[i*dim] = scores(i / ratio)
		weights[i*heads], weights[i*heads+1] = 1, 5
	}
	q, k, w := r.put(kernels.BF16, rows, heads*dim, query), r.put(kernels.BF16, rows, dim, keys), r.put(kernels.F32, rows, heads, weights)
	var masks [3]kernels.Buf
	for i := range masks {
		masks[i] = r.alloc(kernels.I32, rows, words)
	}
	all := r.batch(1, rows, 1)
	for at := 0; at < rows; {
		n := min(rows-at, 41)
		b := all.Prefix(1, n, 0)
		b.MaxLen = n
		chainTables(r, b, at)
		of := func(x kernels.Buf) kernels.Buf { return x.Slice(at, at+n) }
		r.q.Keep(of(k), cs.Layer(0), &b, true)
		spec := kernels.ChooseSpec{Heads: heads, Dim: dim, TopK: topK, Best: of(masks[1]), BestBlocks: blocks, BlockSize: size}
		r.q.Choose(of(masks[0]), of(q), of(w), cs.Layer(0), &b, &spec)
		spec.Within, spec.Best = spec.Best, kernels.Buf{}
		r.q.Choose(of(masks[2]), of(q), of(w), cs.Layer(0), &b, &spec)
		r.q.Commit(cs, &b, r.putInts(1, 1, int32(n)), kernels.Buf{})
		at += n
	}
	bits := func(mask kernels.Buf) func(row, g int) bool {
		x := r.ints(mask)
		return func(row, g int) bool { return x[row*words+g/32]>>(g%32)&1 != 0 }
	}
	return bits(masks[0]), bits(masks[1]), bits(masks[2])
}

// chainTables lays out one chain of all rows of b in slot 0.
func chainTables(r *rig, b kernels.Batch, start int) {
	n := b.Rows
	pos, parent := make([]int32, n), make([]int32, n)
	for i := range n {
		pos[i], parent[i] = int32(start+i), int32(i-1)
	}
	for _, x := range []struct {
		dst kernels.Buf
		v   []int32
	}{{b.Seq, []int32{0}}, {b.Start, []int32{int32(start)}}, {b.Len, []int32{int32(n)}}, {b.RowOff, []int32{0}}, {b.Pos, pos}, {b.Parent, parent}, {b.Span, make([]int32, n)}} {
		r.q.Write(x.dst, packInts(x.v))
	}
}

// testHyper compares the coefficients of streams, and the SwiGLU with a limit, with
// ref, and rows alone with rows together.
func testHyper(t *testing.T, s suite) {
	const rows = 37
	for _, c := range []struct{ streams, iters, width int }{{4, 20, 64}, {3, 1, 50}, {4, 0, 64}, {1, 3, 96}} {
		name := fmt.Sprintf("%d streams, %d iterations", c.streams, c.iters)
		t.Run(name, func(t *testing.T) {
			var got kernels.Buf
			var back *rig
			run := func(r *rig) kernels.Buf {
				h := kernels.HyperSpec{Streams: c.streams, NormEps: 1e-6, Eps: 1e-4, Iters: c.iters}
				n, cols := h.Cols(), c.streams*c.width
				h.Fn = r.load(kernels.Table, kernels.DTypeF32, n, cols, r.uniform(n*cols, -0.3, 0.3))
				h.Base, h.Scale = r.vector(n, -1, 1), r.vector(h.Scales(), 0.5, 2)
				x, dst := r.put(kernels.BF16, rows, cols, r.normal(rows*cols, 2)), r.alloc(kernels.F32, rows, n)
				r.q.Hyper(dst, x, &h)
				one := r.alloc(kernels.F32, rows, n)
				for i := range rows {
					r.q.Hyper(one.Slice(i, i+1), x.Slice(i, i+1), &h)
				}
				if back, got = r, dst; r.o.Float64 {
					return dst
				}
				require.Equal(t, r.bytes(dst), r.bytes(one), "rows alone and together")
				return got
			}
			s.judge(t, 74, boundF32, rows, name, run)
			_ = back
		})
	}
	for _, limit := range []float32{0, 0.7} {
		t.Run(fmt.Sprintf("GateUp/limit=%v", limit), func(t *testing.T) {
			s.judge(t, 75, boundBF16, rows, "gate up", func(r *rig) kernels.Buf {
				x, dst := r.put(kernels.F32, rows, 2*70, r.normal(rows*2*70, 1.5)), r.alloc(kernels.BF16, rows, 70)
				r.q.GateUp(dst, x, limit)
				return dst
			})
		})
	}
}

// testRounding holds coarser grids to kernels.Round, of values that the format has
// halves of.
func testRounding(t *testing.T, s suite) {
	r := s.rig(t, 76)
	const rows, dim = 40, 96
	rope := r.rope(64, 4)
	x := r.normal(rows*dim, 1)
	for i := range x {
		if i%3 == 0 {
			x[i] = toBF16(float32(int(x[i]*16)) / 16)
		}
		if i/dim%7 == 3 {
			x[i] = 0
		}
		if i%dim >= dim-4 {
			x[i] = 0 // what is rotated, by rows with angles of their own
		}
	}
	src, dst, all := r.put(kernels.BF16, rows, dim, x), r.alloc(kernels.BF16, rows, dim), r.batch(1, rows, 1)
	b := all.Prefix(1, rows, 0)
	b.MaxLen = rows
	chainTables(r, b, 0)
	for _, round := range []kernels.Rounding{kernels.RoundFP8, kernels.RoundFP4, kernels.RoundFP4Fine} {
		r.q.Rotate(dst, src, &b, &kernels.RotateSpec{Heads: 1, Dim: dim, Rotary: 4, Rope: rope, Round: round})
		got := r.floats(dst)
		for i := range rows {
			want := append([]float32(nil), x[i*dim:][:dim]...)
			kernels.Round(round, want)
			require.Equal(t, want, got[i*dim:][:dim], "rounding %d, row %d", round, i)
		}
	}
}
