package kerneltest

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// testStreams compares the operations on residual streams with ref.
func testStreams(t *testing.T, s suite) {
	const rows, n, h = 7, 3, 44
	streams := func(r *rig) kernels.Buf { return r.put(kernels.BF16, rows, n*h, r.normal(rows*n*h, 2)) }
	for _, kind := range []kernels.Kind{kernels.BF16, kernels.F32} {
		for act, bound := range map[kernels.Act]float64{kernels.Identity: 1e-6, kernels.SiLU: boundF32, kernels.Sigmoid: boundF32} {
			t.Run(fmt.Sprintf("Activate/%s/%d", kind, act), func(t *testing.T) {
				s.judge(t, 70, max(bound, map[kernels.Kind]float64{kernels.BF16: boundBF16}[kind]), rows, "activate", func(r *rig) kernels.Buf {
					dst := r.alloc(kind, rows, 50)
					r.q.Activate(dst.Columns(3, 47), r.put(kernels.F32, rows, 44, r.uniform(rows*44, -9, 9)), kernels.Activation{Act: act, In: 1.0 / 3, Out: 2})
					return dst
				})
			})
		}
	}
	for _, cols := range []int{0, n, n * h} {
		t.Run(fmt.Sprintf("Collapse/%d", cols), func(t *testing.T) {
			s.judge(t, 71, boundBF16, rows, "collapse", func(r *rig) kernels.Buf {
				x, dst := streams(r), r.alloc(kernels.BF16, rows, h)
				var w kernels.Buf
				if cols > 0 {
					w = r.put(kernels.F32, rows, cols, r.uniform(rows*cols, 0, 1))
				}
				r.q.Collapse(dst, x, w, 1.0/n)
				return dst
			})
		})
	}
	for _, mixed := range []bool{false, true} {
		t.Run(fmt.Sprintf("Spread/mixed=%t", mixed), func(t *testing.T) {
			s.judge(t, 72, boundBF16, rows, "spread", func(r *rig) kernels.Buf {
				x, y := streams(r), r.put(kernels.BF16, rows, h, r.normal(rows*h, 1))
				inject := r.put(kernels.F32, rows, n, r.uniform(rows*n, 0, 2))
				var mix kernels.Buf
				if mixed {
					mix = r.put(kernels.F32, rows, n*n, r.uniform(rows*n*n, 0, 1))
				}
				r.q.Spread(x, y, inject, mix)
				return x
			})
		})
	}
	for kind, bound := range map[kernels.Kind]float64{kernels.BF16: boundBF16, kernels.F32: boundF32} {
		t.Run("Gate/"+kind.String(), func(t *testing.T) {
			s.judge(t, 73, bound, rows, "gate", func(r *rig) kernels.Buf {
				dst := r.alloc(kind, rows, n)
				r.q.Gate(dst, streams(r), streams(r))
				return dst
			})
		})
	}
	t.Run("NormOfEach", func(t *testing.T) {
		for _, kind := range []kernels.Kind{kernels.BF16, kernels.F32} {
			for _, centered := range []bool{false, true} {
				s.judge(t, 74, boundBF16, rows, "norm with a weight of all groups", func(r *rig) kernels.Buf {
					norm, dst := r.norm(n*h, centered), r.alloc(kernels.BF16, rows, n*h)
					norm.Group = h
					r.q.Norm(dst, r.put(kind, rows, n*h, r.normal(rows*n*h, 2)), norm)
					return dst
				})
			}
		}
	})
	t.Run("Blend", func(t *testing.T) {
		s.judge(t, 75, boundLayer, 90, "blend", func(r *rig) kernels.Buf {
			m := r.machine(1, 3, 3, 0, r.blendLayer())
			return m.prefill(90, 1, 2, 30, 57)
		})
	})
	t.Run("Refused", func(t *testing.T) { refusedStreams(t, s) })
}

// refusedStreams checks that shapes that don't fit are errors that name the operation.
func refusedStreams(t *testing.T, s suite) {
	for name, op := range map[string]func(r *rig, b kernels.Buf){
		"activate": func(r *rig, b kernels.Buf) {
			r.q.Activate(b, r.alloc(kernels.F32, 2, 8), kernels.Activation{Act: kernels.SwiGLU, In: 1, Out: 1})
		},
		"collapse": func(r *rig, b kernels.Buf) { r.q.Collapse(b, r.alloc(kernels.BF16, 2, 12), kernels.Buf{}, 1) },
		"spread": func(r *rig, b kernels.Buf) {
			r.q.Spread(r.alloc(kernels.BF16, 2, 16), b, r.alloc(kernels.F32, 2, 3), kernels.Buf{})
		},
		"gate": func(r *rig, b kernels.Buf) {
			r.q.Gate(r.alloc(kernels.F32, 2, 3), b, r.alloc(kernels.BF16, 2, 8))
		},
		"lookup": func(r *rig, b kernels.Buf) {
			r.q.Lookup(b, r.load(kernels.Rows, kernels.DTypeBF16, 5, 4, r.normal(20, 1)), r.putInts(2, 3, 0, 0, 0, 0, 0, 0))
		},
	} {
		r := s.rig(t, 76)
		op(r, r.alloc(kernels.BF16, 2, 8))
		require.ErrorContains(t, r.q.Err(), name)
	}
	r := s.rig(t, 77)
	table := r.load(kernels.Rows, kernels.DTypeBF16, 5, 4, r.normal(20, 1))
	r.q.Lookup(r.alloc(kernels.BF16, 1, 8), table, r.putInts(1, 2, 4, 5))
	require.ErrorContains(t, r.q.Err(), "lookup")
}

// blendLayer is a layer that adds an n-gram memory to 3 streams, kept beside a
// recurrent state that never runs.
func (r *rig) blendLayer() *layer {
	const n, h, taps = 3, 20, 3
	spec := r.deltaLayer(deltaShapes[1]).spec
	spec.RowDim = n + h
	norm := r.norm(n*h, true)
	norm.Group = h
	b := &kernels.BlendSpec{Taps: r.load(kernels.Taps, kernels.DTypeF32, n*h, taps, r.uniform(n*h*taps, -1, 1)), Dilation: 5, Norm: norm}
	return &layer{
		spec: spec, proj: n*h + n + h, out: n * h,
		run: func(m *machine, out, proj kernels.Buf, c kernels.Layer, t *kernels.Batch) {
			m.q.Copy(out, proj.Columns(0, n*h))
			m.q.Blend(out, proj.Columns(n*h, n*h+n+h), c, t, b)
		},
	}
}

// gramSpec is a hash of n-grams of up to 4 tokens, of which 0 ends them.
func gramSpec() kernels.GramSpec {
	return kernels.GramSpec{
		Size: 4, Heads: 2, Multipliers: []uint64{0x12d687a1f3, 77777777777, 1<<62 + 3, 0xfedcba9876543211},
		Mod: []uint32{7, 11, 13, 17, 19, 23}, Offset: []uint32{0, 7, 18, 31, 48, 67}, Stop: 0, Pad: 5,
	}
}

// gramLayer looks the n-grams of its rows' tokens up.
func (r *rig) gramLayer() *layer {
	const dim = 6
	s := gramSpec()
	table := r.load(kernels.Rows, kernels.DTypeBF16, 90, dim, r.normal(90*dim, 1))
	ids := r.alloc(kernels.I32, bucketRows, s.Columns())
	return &layer{
		spec: kernels.LayerSpec{Kind: kernels.Attention, KVHeads: 1, HeadDim: 8, Tokens: true}, proj: 2, out: dim * s.Columns(),
		run: func(m *machine, out, _ kernels.Buf, c kernels.Layer, t *kernels.Batch) {
			m.q.Grams(ids.Top(t.Rows), c, t, &s)
			// Idle rows have no n-grams: any row of the table will do.
			m.q.Lookup(out, table, ids.Top(t.Rows))
		},
	}
}

// testGrams checks hashes number by number: along a chain in chunks, with a map of
// tokens and without, and tables in parts of every type.
func testGrams(t *testing.T, s suite) {
	for _, mapped := range []bool{false, true} {
		t.Run(fmt.Sprintf("mapped=%t", mapped), func(t *testing.T) { gramRows(t, s, mapped) })
	}
	t.Run("Parts", func(t *testing.T) {
		r := s.rig(t, 78)
		var want []float32
		tensor := kernels.Tensor{Name: "table", Use: kernels.Rows}
		for i, d := range []kernels.DType{kernels.DTypeBF16, kernels.DTypeF32, kernels.DTypeF16} {
			x := r.normal((3+i)*6, 1)
			for j := range x {
				x[j] = max(x[j], 0.5) // what F16 holds
			}
			tensor.Parts = append(tensor.Parts, source(fmt.Sprintf("shard_%d", i), d, 3+i, 6, x))
			want = append(want, x...)
		}
		w, err := r.be.Load(tensor)
		require.NoError(t, err)
		dst := r.alloc(kernels.BF16, 6, 12)
		r.q.Lookup(dst, w, r.putInts(6, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))
		require.Equal(t, want, r.floats(dst))
	})
}

func gramRows(t *testing.T, s suite, mapped bool) {
	const rows, vocab = 100, 9
	r := s.rig(t, 79)
	spec, tokens, ids := gramSpec(), make([]int32, rows), make([]int32, vocab)
	for i := range tokens {
		tokens[i] = int32(r.rnd.IntN(vocab))
	}
	for i := range ids {
		ids[i] = int32(i)
		if mapped {
			ids[i] = int32(i*i + 3)
		}
	}
	if mapped {
		spec.Map = r.putInts(vocab, 1, ids...)
	}
	l := r.gramLayer()
	cs, err := r.be.Caches(kernels.CacheSpec{Layers: []kernels.LayerSpec{l.spec}, Slots: 2, Pages: 2, SlotPages: 2})
	require.NoError(t, err)
	r.q.SetPages(cs, 1, 0, []int32{1, 0})
	dst, all := r.alloc(kernels.I32, rows, spec.Columns()), r.batch(1, rows, 1)
	for at, n := 0, 1; at < rows; at, n = at+n, min(n*3, rows-at-n) {
		b := r.chainAt(all, 1, at, tokens[at:at+n])
		r.q.Grams(dst.Slice(at, at+n), cs.Layer(0), &b, &spec)
		r.q.Commit(cs, &b, r.putInts(1, 1, int32(n)), kernels.Buf{})
	}
	got := r.ints(dst)
	for i := range rows {
		var want []int32
		h, ended := uint64(ids[tokens[i]])*spec.Multipliers[0], false
		for back := 1; back < spec.Size; back++ {
			ended = ended || i < back || tokens[i-back] == spec.Stop
			id := uint64(spec.Pad)
			if !ended {
				id = uint64(ids[tokens[i-back]])
			}
			h ^= id * spec.Multipliers[back]
			for c := (back - 1) * spec.Heads; c < back*spec.Heads; c++ {
				want = append(want, int32(h%uint64(spec.Mod[c]))+int32(spec.Offset[c]))
			}
		}
		require.Equal(t, want, got[i*len(want):][:len(want)], "row %d", i)
	}
}

// chainAt lays out tokens of a slot from a position on in b's tables.
func (r *rig) chainAt(b kernels.Batch, slot, at int, tokens []int32) kernels.Batch {
	n := len(tokens)
	b = b.Prefix(1, n, 0)
	b.MaxLen = n
	var pos, parent []int32
	for i := range n {
		pos, parent = append(pos, int32(at+i)), append(parent, int32(i-1))
	}
	for _, x := range []struct {
		dst kernels.Buf
		v   []int32
	}{{b.Seq, []int32{int32(slot)}}, {b.Start, []int32{int32(at)}}, {b.Len, []int32{int32(n)}}, {b.RowOff, []int32{0}}, {b.Token, tokens}, {b.Pos, pos}, {b.Parent, parent}, {b.Span, make([]int32, n)}} {
		r.q.Write(x.dst, packInts(x.v))
	}
	return b
}

// testSelectBlocks checks which blocks are chosen where the numbers leave no doubt.
func testSelectBlocks(t *testing.T, s suite) {
	const rows = 110
	for _, c := range []struct {
		name         string
		first, ratio int
		scores       func(i int) float32 // of key i to every query, not negative
	}{
		{"rising", 0, 4, func(i int) float32 { return float32(i) }},
		{"falling", 0, 4, func(i int) float32 { return float32(120 - i) }},
		{"equal", 0, 4, func(int) float32 { return 4 }},
		{"nothing", 0, 2, func(int) float32 { return 0 }},
		{"few values", 1, 4, func(i int) float32 { return float32(i / 4 * 7 % 4) }},
		{"ones", 1, 1, func(i int) float32 { return float32(i * 7 % 13) }},
		{"not a number", 0, 2, func(i int) float32 {
			if i%5 == 0 {
				return float32(math.NaN())
			}
			return float32(i % 3)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { blockRows(t, s, rows, c.first, c.ratio, c.scores) })
	}
}

// blockRows is selectRows for blocks of keys.
func blockRows(t *testing.T, s suite, rows, first, ratio int, scores func(i int) float32) {
	const topK, heads, dim = 5, 3, 8
	r := s.rig(t, 80)
	cs, err := r.be.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{{Kind: kernels.Attention, KVHeads: 1, HeadDim: 8, IndexDim: dim, IndexRatio: ratio}}, Slots: 1, Pages: 2, SlotPages: 2,
	})
	require.NoError(t, err)
	r.q.SetPages(cs, 0, 0, []int32{1, 0})
	proj := make([]float32, rows*(heads+1)*dim)
	for i := range rows {
		row := proj[i*(heads+1)*dim:]
		row[0], row[dim], row[2*dim] = 1, -1, 1 // the second head's products are negative
		row[heads*dim] = scores(i)
	}
	p := r.put(kernels.BF16, rows, (heads+1)*dim, proj)
	spec := kernels.BlockSpec{Heads: heads, Dim: dim, TopK: topK, Ratio: ratio, FirstKey: first}
	words := kernels.MaskWords(128)
	dst, all := r.alloc(kernels.I32, rows, words), r.batch(1, rows, 1)
	for at := 0; at < rows; {
		n := min(rows-at, 1+at*2)
		b := r.chainAt(all, 0, at, make([]int32, n))
		r.q.SelectBlocks(dst.Slice(at, at+n), p.Slice(at, at+n), cs.Layer(0), &b, &spec)
		r.q.Commit(cs, &b, r.putInts(1, 1, int32(n)), kernels.Buf{})
		at += n
	}
	of := func(block int) float32 {
		var sum float32
		for i := range ratio {
			sum += scores(first + block*ratio + i)
		}
		return value(sum)
	}
	got := r.ints(dst)
	for i := range rows {
		blocks := max(i+1-first, 0) / ratio
		for pos := range 32 * words {
			mine, better := (pos-first)/ratio, 0
			for j := range blocks {
				if a, b := of(j), of(mine); a > b || a == b && j < mine {
					better++
				}
			}
			want := pos >= first && pos <= i && (mine >= blocks || better < topK)
			require.Equal(t, want, got[i*words+pos/32]>>(pos%32)&1 != 0, "row %d, key %d", i, pos)
		}
	}
}
