package ref

import (
	"fmt"
	"math"

	"exacta.dev/exacta/kernels"
)

// Rotate norms, rotates and rounds heads.
func (r *recorder) Rotate(dst, src kernels.Buf, b *kernels.Batch, s *kernels.RotateSpec) {
	spec := *s
	r.add("rotate", func() (func() error, error) {
		o := operands{be: r.be}
		if err := spec.Check(); err != nil {
			return nil, err
		}
		t := o.batch(b, "batch")
		d := o.kind(dst, "dst", kernels.BF16, b.Rows, spec.Heads*spec.Dim)
		x := o.kind(src, "src", kernels.BF16, b.Rows, spec.Heads*spec.Dim)
		rope := o.weight(spec.Rope, kernels.Table, "rope")
		if o.err == nil && rope.cols != spec.Rotary {
			o.fail("%d rotary channels with a table of %d columns", spec.Rotary, rope.cols)
		}
		return func() error {
			for i := range t.rows {
				pos := t.pos.int(i)
				if spec.Ratio > 0 {
					pos -= spec.Ratio - 1
				}
				if t.span.int(i) < 0 || spec.Ratio > 0 && (t.pos.int(i)+1)%spec.Ratio != 0 {
					continue
				}
				if pos < 0 || pos >= rope.rows {
					return fmt.Errorf("position %d of a rope table of %d", pos, rope.rows)
				}
				copy(d.floats(i), x.floats(i))
				for at := 0; at < d.cols; at += spec.Dim {
					rotate(d.floats(i)[at:][:spec.Dim], rope.row(pos), &spec)
				}
			}
			return nil
		}, o.err
	})
}

func rotate(x, rope []float64, s *kernels.RotateSpec) {
	if s.Unit {
		var sum float64
		for _, v := range x {
			sum += v * v
		}
		inv := 1 / math.Sqrt(sum/float64(len(x))+float64(s.Eps))
		for i := range x {
			x[i] *= inv
		}
	}
	half := s.Rotary / 2
	tail := x[len(x)-s.Rotary:]
	for i := range half {
		cos, sin := rope[i], rope[half+i]
		if s.Inverse {
			sin = -sin
		}
		a, b := tail[2*i], tail[2*i+1]
		tail[2*i], tail[2*i+1] = a*cos-b*sin, b*cos+a*sin
	}
	kernels.Round(s.Round, x)
}
