//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"exacta.dev/exacta/kernels"
)

// A Matrix of 4 bits lies on the device as its fragments of mma.sync are read: tiles of
// 16 outputs, the last one filled up with outputs whose scales are 0. The halves of a
// paired weight have tiles of their own.
//
//	nibbles [tiles][K/32][32 lanes][2][4 bytes]: lane 4g+t has, of outputs g and g+8,
//	        byte 2s+h with columns 16s+8h+2t (low half) and the one after it
//	meta    [tiles][K/group][16] u32: the scale's float32 with the zero point in its
//	        lowest byte, which a BF16 scale leaves free
const (
	tile4Rows  = 16
	chunk4Cols = 32
)

// layout4 are the sizes of such a weight.
type layout4 struct {
	cols, group int
	tiles       int // of a half
	halves      int
	rows        int // of a half
}

func newLayout4(w *weight, group int) layout4 {
	l := layout4{cols: w.cols, group: group, rows: w.rows, halves: 1}
	if w.paired {
		l.rows, l.halves = w.rows/2, 2
	}
	l.tiles = ceil(l.rows, tile4Rows)
	return l
}

// tileBytes and metaBytes are what a tile takes.
func (l layout4) tileBytes() int { return tile4Rows * l.cols / 2 }
func (l layout4) metaBytes() int { return 4 * tile4Rows * l.cols / l.group }

// nibbles is the size of all tiles: where the meta data begin.
func (l layout4) nibbles() int64 { return int64(l.halves*l.tiles) * int64(l.tileBytes()) }

func (l layout4) bytes() int64 {
	return l.nibbles() + int64(l.halves*l.tiles)*int64(l.metaBytes())
}

// pack puts row i of rows into place r of a tile.
func (l layout4) pack(nibbles, meta []byte, r int, rows kernels.Int4Rows, i int) {
	line := rows.Nibbles[i*l.cols/2:][:l.cols/2]
	for at, b := range line {
		c, in := at/(chunk4Cols/2), at%(chunk4Cols/2) // in = 8s + 4h + t
		lane := r%8*4 + in%4
		nibbles[(c*32+lane)*8+r/8*4+in/4] = b
	}
	groups := l.cols / l.group
	for g := range groups {
		m := math.Float32bits(rows.Scales[i*groups+g]) | uint32(rows.Zeros[i*groups+g])
		binary.LittleEndian.PutUint32(meta[4*(g*tile4Rows+r):], m)
	}
}

// tile packs the outputs of tile i of all halves; buffers are cleared first.
func (l layout4) tile(t kernels.Tensor, i int, nibbles, meta []byte) error {
	clear(nibbles)
	clear(meta)
	half, in := i/l.tiles, i%l.tiles*tile4Rows
	from, to := half*l.rows+in, half*l.rows+min(in+tile4Rows, l.rows)
	base := 0
	for _, p := range t.Parts {
		lo, hi := max(from, base), min(to, base+p.Rows)
		if lo < hi {
			rows, err := p.ReadInt4(lo-base, hi-lo)
			if err != nil {
				return fmt.Errorf("part %s: %w", p.Name, err)
			}
			for r := lo; r < hi; r++ {
				l.pack(nibbles, meta, r-from, rows, r-lo)
			}
		}
		base += p.Rows
	}
	return nil
}

// load4 allocates w and streams its tiles to the device.
func (be *Backend) load4(w *weight, t kernels.Tensor) (err error) {
	w.group = t.Parts[0].Int4.Group
	l := newLayout4(w, w.group)
	if w.block, err = be.zeroed(kernels.Weights, l.bytes(), 0); err != nil {
		return fmt.Errorf("[%d, %d] of 4 bits: %w", w.rows, w.cols, err)
	}
	n, m := l.tileBytes(), l.metaBytes()
	w.meta = w.at(l.nibbles())
	meta := make([]byte, m)
	for i := range l.halves * l.tiles {
		err := be.q.upload(w.at(int64(i)*int64(n)), int64(n), func(dst []byte) error { return l.tile(t, i, dst, meta) })
		if err == nil {
			err = be.q.upload(w.at(l.nibbles()+int64(i)*int64(m)), int64(m), func(dst []byte) error {
				copy(dst, meta)
				return nil
			})
		}
		if err != nil {
			be.q.settle(be.release(w.block))
			return err
		}
	}
	return nil
}
