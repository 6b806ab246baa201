package cpu

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// BenchmarkSelectBlocks measures the choice of 512 blocks of 4 keys for one row, of the
// shape of Qwen3.8-Flash-Next's, behind a prefix: with the keys of its blocks there, and
// when they must be made first, as behind a hit in the prefix cache.
func BenchmarkSelectBlocks(b *testing.B) {
	const heads, dim = 4, 128
	for _, n := range []int{4096, 32768} {
		r := newRig(b, 0, "")
		pages := n/page + 1
		cs, err := r.b.Caches(kernels.CacheSpec{
			Layers: []kernels.LayerSpec{{Kind: kernels.Attention, KVHeads: 1, HeadDim: 2, IndexDim: dim, IndexRatio: 4}}, Slots: 1, Pages: pages, SlotPages: pages,
		})
		require.NoError(b, err)
		table := make([]int32, pages)
		for i := range table {
			table[i] = int32(i)
		}
		r.q.SetPages(cs, 0, 0, table)
		t, err := kernels.NewBatch(r.b, 1, 1, 1)
		require.NoError(b, err)
		for _, x := range []struct {
			dst kernels.Buf
			v   int32
		}{{t.Start, int32(n)}, {t.Len, 1}, {t.Pos, int32(n)}, {t.Parent, -1}} {
			r.q.Write(x.dst, rawI32([]int32{x.v}))
		}
		proj, mask := r.alloc(kernels.BF16, 1, (heads+1)*dim), r.alloc(kernels.I32, 1, kernels.MaskWords(pages*page))
		r.q.Write(proj, raw16(random(1, (heads+1)*dim, 1)))
		spec := kernels.BlockSpec{Heads: heads, Dim: dim, Ratio: 4, TopK: 512}
		for _, made := range []bool{true, false} {
			b.Run(fmt.Sprintf("prefix=%d/made=%t", n, made), func(b *testing.B) {
				for range b.N {
					if !made {
						r.q.SetPages(cs, 0, 0, table)
					}
					r.q.SelectBlocks(mask, proj, cs.Layer(0), &t, &spec)
				}
				require.NoError(b, r.q.Err())
			})
		}
	}
}
