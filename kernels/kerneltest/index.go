package kerneltest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// testSelect checks which keys are chosen, where the numbers leave no doubt: queries
// and keys are one-hot or small integers, so that all scores are exact.
func testSelect(t *testing.T, s suite) {
	const rows = 70
	for _, c := range []struct {
		name   string
		first  int
		scores func(i int) float32 // of key i to every query, not negative
	}{
		{"rising", 0, func(i int) float32 { return float32(i) }},
		{"falling", 0, func(i int) float32 { return float32(100 - i) }},
		{"equal", 0, func(int) float32 { return 3 }},
		{"nothing", 0, func(int) float32 { return 0 }},
		{"few values", 0, func(i int) float32 { return float32(i * 7 % 4) }},
		{"not the first", 1, func(i int) float32 { return float32(100 - i%9) }},
		{"not a number", 0, func(i int) float32 {
			if i%5 == 0 {
				return float32(math.NaN())
			}
			return float32(i % 3)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { selectRows(t, s, rows, c.first, c.scores) })
	}
}

// testMasked compares attention to the keys of random masks with ref, over several
// splits, of which some have no key, as some rows have none at all.
func testMasked(t *testing.T, s suite) {
	const rows = 600
	a := attnShape{q: 3, kv: 1, dim: 40, values: 32, rotary: 8}
	s.judge(t, 37, boundLayer, rows, "masked", func(r *rig) kernels.Buf {
		m := r.machine(1, 11, 3, 0, r.attnLayer(a))
		m.ensure(0, rows)
		words := kernels.MaskWords(maxPositions)
		masks := make([]int32, rows*words)
		for i := range masks {
			if i/words%50 != 7 && (i/words%3 > 0 || i%words < 10) {
				masks[i] = int32(r.rnd.Uint32() & r.rnd.Uint32())
			}
		}
		m.layers[0].attn.Keys = r.putInts(rows, words, masks...)
		m.plain(piece{rows: m.sequence(rows), kept: rows})
		return m.out[0].Top(rows)
	})
}

// selectRows runs a span in which key i scores as it is told, in two chunks, and
// compares each row's mask with a choice by counting.
func selectRows(t *testing.T, s suite, rows, first int, scores func(i int) float32) {
	const topK, heads, dim = 9, 2, 8
	r := s.rig(t, 36)
	cs, err := r.be.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{{Kind: kernels.Attention, KVHeads: 1, HeadDim: 8, IndexDim: dim}}, Slots: 1, Pages: 2, SlotPages: 2,
	})
	require.NoError(t, err)
	r.q.SetPages(cs, 0, 0, []int32{1, 0})
	proj, weights := make([]float32, rows*(heads+1)*dim), make([]float32, rows*heads)
	for i := range rows {
		row := proj[i*(heads+1)*dim:]
		row[0], row[dim] = 1, -1 // the second head's products are negative
		row[heads*dim] = scores(i)
		weights[i*heads], weights[i*heads+1] = 1, 5
	}
	p, w := r.put(kernels.BF16, rows, (heads+1)*dim, proj), r.put(kernels.F32, rows, heads, weights)
	spec := kernels.IndexSpec{Heads: heads, Dim: dim, TopK: topK, FirstKey: first}
	words := kernels.MaskWords(128)
	dst, all := r.alloc(kernels.I32, rows, words), r.batch(1, rows, 1)
	for at := 0; at < rows; {
		n := min(rows-at, 41)
		b := all.Prefix(1, n, 0)
		b.MaxLen = n
		var pos, parent []int32
		for i := range n {
			pos, parent = append(pos, int32(at+i)), append(parent, int32(i-1))
		}
		for _, x := range []struct {
			dst kernels.Buf
			v   []int32
		}{{b.Seq, []int32{0}}, {b.Start, []int32{int32(at)}}, {b.Len, []int32{int32(n)}}, {b.RowOff, []int32{0}}, {b.Pos, pos}, {b.Parent, parent}, {b.Span, make([]int32, n)}} {
			r.q.Write(x.dst, packInts(x.v))
		}
		r.q.Select(dst.Slice(at, at+n), p.Slice(at, at+n), w.Slice(at, at+n), cs.Layer(0), &b, &spec)
		kept := r.putInts(1, 1, int32(n))
		r.q.Commit(cs, &b, kept, kernels.Buf{})
		at += n
	}
	got := r.ints(dst)
	for i := range rows {
		for pos := range 32 * words {
			better := 0
			for j := first; j <= i; j++ {
				a, b := value(scores(j)), value(scores(pos))
				if a > b || a == b && j < pos {
					better++
				}
			}
			want := pos >= first && pos <= i && better < topK
			require.Equal(t, want, got[i*words+pos/32]>>(pos%32)&1 != 0, "row %d, key %d", i, pos)
		}
	}
}

// value is a score as keys are ordered.
func value(x float32) float32 {
	if x != x {
		return float32(math.Inf(-1))
	}
	return x
}
