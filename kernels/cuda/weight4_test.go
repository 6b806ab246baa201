//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// part4 is a random part of 4 bits with zero points, its scales negative and positive.
func part4(seed uint64, rows, cols, group int) kernels.Source {
	r := rand.New(rand.NewPCG(seed, 4))
	raw, scales, zeros := make([]byte, rows*cols/2), make([]byte, 2*rows*cols/group), make([]byte, rows*cols/group)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	for i := range zeros {
		zeros[i] = byte(r.IntN(16))
		binary.LittleEndian.PutUint16(scales[2*i:], bf16(float32(r.NormFloat64())))
	}
	return kernels.Source{
		Name: "part", Rows: rows, Cols: cols, DType: kernels.DTypeInt4, Data: bytes.NewReader(raw),
		Int4: &kernels.Int4{Group: group, Scales: bytes.NewReader(scales), Zeros: bytes.NewReader(zeros)},
	}
}

// TestLayout4 reads tiles as the kernels do, lane by lane, and compares with what the
// 4 bits stand for; it also checks that the two BF16 parts of each weight are exact.
func TestLayout4(t *testing.T) {
	for _, c := range []struct {
		rows   []int
		cols   int
		group  int
		paired bool
	}{{[]int{64}, 96, 32, false}, {[]int{7, 30, 11}, 128, 64, false}, {[]int{20, 20}, 256, 128, true}, {[]int{1}, 32, 32, false}} {
		x := kernels.Tensor{Name: "w", Use: kernels.Matrix, Paired: c.paired}
		var want [][]float32
		for i, n := range c.rows {
			p := part4(uint64(i), n, c.cols, c.group)
			rows, err := p.ReadInt4(0, n)
			require.NoError(t, err)
			for r := range n {
				row := make([]float32, c.cols)
				rows.Dequantize(row, r)
				want = append(want, row)
			}
			x.Parts = append(x.Parts, p)
		}
		w := &weight{paired: c.paired}
		w.rows, w.cols = x.Shape()
		l := newLayout4(w, c.group)
		require.EqualValues(t, l.halves*l.tiles*(l.tileBytes()+l.metaBytes()), l.bytes())
		nibbles, meta := make([]byte, l.tileBytes()), make([]byte, l.metaBytes())
		for tile := range l.halves * l.tiles {
			require.NoError(t, l.tile(x, tile, nibbles, meta))
			for lane := range 32 {
				for chunk := range c.cols / chunk4Cols {
					for r := range 2 {
						word := binary.LittleEndian.Uint32(nibbles[((chunk*32+lane)*2+r)*4:])
						for b := range 4 {
							col := chunk*chunk4Cols + b/2*16 + b%2*8 + lane%4*2
							row := lane/4 + 8*r
							m := binary.LittleEndian.Uint32(meta[4*(col/c.group*tile4Rows+row):])
							for i := range 2 {
								got := dequantized(word>>(8*b+4*i)&15, m)
								out := tile%l.tiles*tile4Rows + row
								if out >= l.rows {
									require.Zero(t, got)
								} else {
									require.Equal(t, want[tile/l.tiles*l.rows+out][col+i], got)
								}
							}
						}
					}
				}
			}
		}
	}
}

// dequantized is split4 of the kernels: a BF16 number and what is left, which must be
// one too.
func dequantized(q, meta uint32) float32 {
	w := math.Float32frombits(meta&0xffff0000)*float32(int(q)-int(meta&255)) + 0
	wide := func(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }
	hi := wide(bf16(w))
	return hi + wide(bf16(w-hi))
}
