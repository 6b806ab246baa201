//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// weight is a parameter on the device: BF16 rows for a Matrix, or tiles of 4 bits
// (layout4), else FP32.
type weight struct {
	block
	name       string
	use        kernels.Use
	rows, cols int
	paired     bool
	experts    int        // matrices of a Bank or Diagonal, which lie one after another
	group      int        // of 4 bits: columns that share a scale; else 0
	meta       driver.Ptr // of 4 bits: scales and zero points
}

// Load copies a parameter to the device, stacked as in the file; a Matrix, Bank,
// Diagonal or Rows becomes BF16 (rounded once if the file has another type), a Matrix may
// keep its 4 bits, the rest is FP32. The error names the tensor and its part.
func (be *Backend) Load(t kernels.Tensor) (kernels.Weight, error) {
	if err := be.usable("load " + t.Name); err != nil {
		return kernels.Weight{}, err
	}
	if err := t.Check(); err != nil {
		return kernels.Weight{}, err
	}
	w := &weight{name: t.Name, use: t.Use, paired: t.Paired}
	w.rows, w.cols = t.Shape()
	load := be.loadParts
	if t.Int4() {
		load = be.load4
	}
	if err := load(w, t); err != nil {
		return kernels.Weight{}, fmt.Errorf("load %s: %w", t.Name, err)
	}
	id := handles.Add(1)
	be.weights[id] = w
	return kernels.Weight{ID: id}, nil
}

// loadParts allocates w and streams its parts to the device.
func (be *Backend) loadParts(w *weight, t kernels.Tensor) (err error) {
	elem := int64(4)
	if t.Use == kernels.Matrix || t.Use == kernels.Bank || t.Use == kernels.Diagonal || t.Use == kernels.Rows {
		elem = 2
	}
	if t.Use == kernels.Bank || t.Use == kernels.Diagonal {
		w.experts = len(t.Experts())
	}
	if w.block, err = be.zeroed(kernels.Weights, int64(w.rows)*int64(w.cols)*elem, 0); err != nil {
		return fmt.Errorf("[%d, %d]: %w", w.rows, w.cols, err)
	}
	at := int64(0)
	for _, p := range t.Parts {
		if err := be.loadPart(w, p, at, elem); err != nil {
			be.q.settle(be.release(w.block))
			return fmt.Errorf("part %s: %w", p.Name, err)
		}
		at += int64(p.Rows) * int64(p.Cols) * elem
	}
	return nil
}

// loadPart streams one source through pinned memory to offset at of w.
func (be *Backend) loadPart(w *weight, p kernels.Source, at, elem int64) error {
	n, from := int64(p.Rows)*int64(p.Cols), int64(p.DType.Size())
	same := from == elem && p.DType != kernels.DTypeF16
	var raw []byte
	done := int64(0)
	for done < n {
		count := min(n-done, be.q.up.most()/elem)
		err := be.q.upload(w.at(at+done*elem), count*elem, func(dst []byte) error {
			src := dst
			if !same {
				if int64(len(raw)) < count*from {
					raw = make([]byte, count*from)
				}
				src = raw[:count*from]
			}
			if got, err := p.Data.ReadAt(src, done*from); got < len(src) {
				return fmt.Errorf("element %d of %d: %w", done+int64(got)/from, n, err)
			}
			if !same {
				convert(dst, src, p.DType, elem == 2)
			}
			return nil
		})
		if err != nil {
			return err
		}
		done += count
	}
	return nil
}

// convert widens elements to float32 and, if narrow, rounds them to BF16.
func convert(dst, src []byte, from kernels.DType, narrow bool) {
	size := from.Size()
	for i := 0; i*size < len(src); i++ {
		var f float32
		switch b := src[i*size:]; from {
		case kernels.DTypeBF16:
			f = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
		case kernels.DTypeF16:
			f = half(binary.LittleEndian.Uint16(b))
		default:
			f = math.Float32frombits(binary.LittleEndian.Uint32(b))
		}
		if narrow {
			binary.LittleEndian.PutUint16(dst[2*i:], bf16(f))
		} else {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(f))
		}
	}
}

// bf16 rounds to nearest even; a NaN stays a NaN.
func bf16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// half widens an IEEE 754 binary16.
func half(h uint16) float32 {
	exp, frac := int(h>>10&31), float64(h&1023)
	var f float64
	switch exp {
	case 0:
		f = math.Ldexp(frac, -24)
	case 31:
		f = math.Inf(1)
		if frac != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(1024+frac, exp-25)
	}
	if h>>15 != 0 {
		f = -f
	}
	return float32(f)
}
