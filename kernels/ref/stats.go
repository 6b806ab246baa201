package ref

import (
	"math"

	"exacta.dev/exacta/kernels"
)

// Stats reduces each row of logits, as float32. A NaN is below every number, and
// of equal logits the lowest id comes first.
func (r *recorder) Stats(dst, logits kernels.Buf, vocab int, hash bool) {
	r.add("stats", func() (func() error, error) {
		o := operands{be: r.be}
		d := o.kind(dst, "dst", kernels.I32, 0, kernels.StatCols)
		x := o.kind(logits, "logits", kernels.F32, d.rows, -1)
		if o.err == nil && (vocab < 2 || vocab > x.cols) {
			o.fail("vocabulary of %d in %d columns; it must be from 2 to that", vocab, x.cols)
		}
		return func() error {
			row := make([]float32, x.cols)
			for i := range d.rows {
				for j, v := range x.floats(i) {
					row[j] = float32(v)
				}
				stats(d.ints(i), row, vocab, hash)
			}
			r.be.work.LogitRows += uint64(d.rows)
			return nil
		}, o.err
	})
}

func stats(dst []int32, row []float32, vocab int, hash bool) {
	clear(dst)
	top, second := 0, -1
	for i := 1; i < vocab; i++ {
		switch {
		case above(row[i], row[top]):
			top, second = i, top
		case second < 0 || above(row[i], row[second]):
			second = i
		}
	}
	dst[kernels.StatTop1], dst[kernels.StatTop2] = int32(top), int32(second)
	dst[kernels.StatLogit1] = int32(math.Float32bits(row[top]))
	dst[kernels.StatLogit2] = int32(math.Float32bits(row[second]))
	for _, v := range row {
		if v != v {
			dst[kernels.StatNaNs]++
		}
	}
	if hash {
		h := kernels.HashRow(row)
		dst[kernels.StatHashLo], dst[kernels.StatHashHi] = int32(uint32(h)), int32(uint32(h>>32))
	}
}

// above reports whether a sorts before b: a number above a NaN.
func above(a, b float32) bool { return a > b || b != b && a == a }
