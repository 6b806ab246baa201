package sched

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkStep is Plan and Commit with all slots decoding and a long queue.
func BenchmarkStep(b *testing.B) {
	for _, slots := range []int{16, 256} {
		b.Run(fmt.Sprintf("running=%d", slots), func(b *testing.B) {
			cfg := Config{
				Slots: slots, Pages: 8 * slots, SlotPages: 1 << 10, MaxBatchTokens: 8 * slots, Chunk: 512,
				PrefixCache: true,
			}
			c := newCore(b, cfg)
			results := make([]Result, 0, slots)
			for id := int64(0); b.Loop(); {
				for c.Len() < slots+1000 {
					prompt := []int32{int32(id), 2, 3}
					require.NoError(b, c.Submit(Request{ID: id, Prompt: prompt, MaxLen: 400, K: 3}))
					id++
				}
				results = results[:0]
				for _, it := range c.Plan().Items {
					r := Result{ID: it.ID, Kept: it.Rows, Tokens: []int32{1}}
					if it.Phase == Decode {
						r.Kept, r.Tokens = 1+it.K/2, make([]int32, 1+it.K/2)
					}
					results = append(results, r)
				}
				require.NoError(b, c.Commit(results))
			}
		})
	}
}
