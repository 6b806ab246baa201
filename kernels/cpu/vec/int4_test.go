package vec

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// int4Case is a product of 32 outputs, with the weights dequantised beside it.
type int4Case struct {
	data, meta []byte
	w          []float32 // [32][k]
	x          []float32
	m, k, xs   int
	group      int
}

func newInt4Case(r *rand.Rand, m, k, group int, next func(*rand.Rand) uint16) int4Case {
	c := int4Case{m: m, k: k, group: group, xs: k + r.IntN(9)}
	c.data = make([]byte, k*Int4Outputs/2)
	for i := range c.data {
		c.data[i] = byte(r.Uint32())
	}
	c.meta = make([]byte, k/group*Int4Meta)
	for g := range k / group {
		for o := range Int4Outputs {
			b := c.meta[g*Int4Meta+o/16*int4Block:]
			s := BF16(float32(r.NormFloat64()))
			if r.IntN(9) == 0 {
				s = 0
			}
			binary.LittleEndian.PutUint16(b[o%16*2:], s)
			b[32+o%16] = byte(r.IntN(16))
		}
	}
	c.w = make([]float32, Int4Outputs*k)
	for o := range Int4Outputs {
		for i := range k {
			b := c.meta[i/group*Int4Meta+o/16*int4Block:]
			q := c.data[(i/8*Int4Outputs+o)*4+i%8/2] >> (i % 2 * 4) & 15
			c.w[o*k+i] = F32(binary.LittleEndian.Uint16(b[o%16*2:])) * float32(int(q)-int(b[32+o%16]))
		}
	}
	for range m * c.xs {
		c.x = append(c.x, F32(next(r)))
	}
	return c
}

// TestInt4 compares every set with dequantising first and then adding the products
// in float64, rounded at each step; with rows alone; over shapes and groups.
func TestInt4(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, kind := range bf16Kinds {
		for m := 1; m <= 19; m++ {
			group := []int{32, 64, 128}[m%3]
			c := newInt4Case(r, m, group*(1+r.IntN(4)), group, kind.next)
			stride := Int4Outputs + r.IntN(5)
			want := make([]float32, m*stride)
			for i := range m {
				for o := range Int4Outputs {
					acc := float32(0)
					for k := 0; k < c.k; k += 2 {
						for _, j := range []int{k + 1, k} {
							w := c.w[o*c.k+j]
							if w == 0 {
								w = 0 // never -0
							}
							acc = mac(acc, w, flushedF32(c.x[i*c.xs+j]))
						}
					}
					want[i*stride+o] = acc
				}
			}
			for _, s := range testSets() {
				got := make([]float32, m*stride)
				s.Int4(&got[0], stride, &c.data[0], &c.meta[0], &c.x[0], c.xs, m, c.k, group)
				sameBits(t, want, got, "%s %s m=%d k=%d group=%d", s.Name, kind.name, m, c.k, group)
			}
		}
	}
}

// TestInt4Zero: a weight of zero is +0 whatever the signs of scale and numbers.
func TestInt4Zero(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 8))
	c := newInt4Case(r, 1, 32, 32, bf16Kinds[0].next)
	for i := range c.data {
		c.data[i] = 0x55
	}
	for o := range Int4Outputs {
		b := c.meta[o/16*int4Block:]
		binary.LittleEndian.PutUint16(b[o%16*2:], 0xbf80)
		b[32+o%16] = 5
	}
	for _, s := range testSets() {
		out := make([]float32, Int4Outputs)
		s.Int4(&out[0], Int4Outputs, &c.data[0], &c.meta[0], &c.x[0], c.xs, 1, 32, 32)
		require.Equal(t, make([]float32, Int4Outputs), out, s.Name)
	}
}

func BenchmarkInt4(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 8))
	for _, s := range Sets() {
		for _, m := range []int{1, 4, 8} {
			c := newInt4Case(r, m, 4096, 64, bf16Kinds[0].next)
			out := make([]float32, m*Int4Outputs)
			b.Run(s.Name+"/"+string(rune('0'+m)), func(b *testing.B) {
				for b.Loop() {
					s.Int4(&out[0], Int4Outputs, &c.data[0], &c.meta[0], &c.x[0], c.xs, m, c.k, 64)
				}
				b.ReportMetric(float64(c.k*Int4Outputs)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gweights/s")
			})
		}
	}
}
