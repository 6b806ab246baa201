package kerneltest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// source returns a part of a file; F16 is for values that it holds.
func source(name string, d kernels.DType, rows, cols int, x []float32) kernels.Source {
	var b []byte
	switch d {
	case kernels.DTypeBF16:
		b = pack(kernels.BF16, x)
	case kernels.DTypeF32:
		b = pack(kernels.F32, x)
	case kernels.DTypeF16:
		for _, v := range x {
			b = binary.LittleEndian.AppendUint16(b, toHalf(v))
		}
	}
	return kernels.Source{Name: name, Rows: rows, Cols: cols, DType: d, Data: bytes.NewReader(b)}
}

// toHalf converts a value that binary16 holds as a normal number, or zero.
func toHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	if f == 0 {
		return sign
	}
	return sign | uint16(int(b>>23&255)-127+15)<<10 | uint16(b>>13&1023)
}

// load takes a parameter of one part in.
func (r *rig) load(use kernels.Use, d kernels.DType, rows, cols int, x []float32) kernels.Weight {
	r.t.Helper()
	w, err := r.be.Load(kernels.Tensor{Name: "weight", Use: use, Parts: []kernels.Source{source("part", d, rows, cols, x)}})
	require.NoError(r.t, err)
	return w
}

// matrix returns a random BF16 matrix whose products keep the scale of their
// input.
func (r *rig) matrix(rows, cols int) kernels.Weight {
	return r.load(kernels.Matrix, kernels.DTypeBF16, rows, cols, r.normal(rows*cols, 1/math.Sqrt(float64(cols))))
}

// paired returns a random SwiGLU weight of half outputs.
func (r *rig) paired(half, cols int) kernels.Weight {
	scale := 1 / math.Sqrt(float64(cols))
	w, err := r.be.Load(kernels.Tensor{
		Name: "gate_up", Use: kernels.Matrix, Paired: true,
		Parts: []kernels.Source{
			source("gate", kernels.DTypeBF16, half, cols, r.normal(half*cols, scale)),
			source("up", kernels.DTypeBF16, half, cols, r.normal(half*cols, scale)),
		},
	})
	require.NoError(r.t, err)
	return w
}

// bank returns random experts of n outputs (paired: pairs) each.
func (r *rig) bank(experts, n, cols int, paired bool) kernels.Weight {
	t := kernels.Tensor{Name: "bank", Use: kernels.Bank, Paired: paired}
	for e := range experts {
		for _, what := range []string{"gate", "up"} {
			t.Parts = append(t.Parts, source(fmt.Sprintf("experts.%d.%s", e, what), kernels.DTypeBF16, n, cols, r.normal(n*cols, 1/math.Sqrt(float64(cols)))))
			if !paired {
				break
			}
		}
	}
	w, err := r.be.Load(t)
	require.NoError(r.t, err)
	return w
}

// identity returns the matrix that widens n columns; a matrix has an even number.
func (r *rig) identity(n int) kernels.Weight {
	x := make([]float32, n*n)
	for i := range n {
		x[i*n+i] = 1
	}
	return r.load(kernels.Matrix, kernels.DTypeBF16, n, n, x)
}

// diagonal returns a random block-diagonal matrix.
func (r *rig) diagonal(blocks, n, cols int) kernels.Weight {
	t := kernels.Tensor{Name: "diagonal", Use: kernels.Diagonal}
	for i := range blocks {
		t.Parts = append(t.Parts, source(fmt.Sprintf("blocks.%d", i), kernels.DTypeBF16, n, cols, r.normal(n*cols, 1/math.Sqrt(float64(cols)))))
	}
	w, err := r.be.Load(t)
	require.NoError(r.t, err)
	return w
}

// vector returns a random vector in [lo, hi), from an F32 file.
func (r *rig) vector(n int, lo, hi float64) kernels.Weight {
	return r.load(kernels.Vector, kernels.DTypeF32, 1, n, r.uniform(n, lo, hi))
}

// norm returns a norm over n elements.
func (r *rig) norm(n int, centered bool) kernels.Norm {
	if centered {
		return kernels.Norm{W: r.vector(n, -0.5, 0.5), Eps: 1e-6, Centered: true}
	}
	return kernels.Norm{W: r.vector(n, 0.5, 1.5), Eps: 1e-5}
}

// rope returns a rotary table.
func (r *rig) rope(positions, rotary int) kernels.Weight {
	half := rotary / 2
	x := make([]float32, 0, positions*rotary)
	for p := range positions {
		for i := range half {
			x = append(x, float32(math.Cos(float64(p)*math.Pow(1e4, -float64(i)/float64(half)))))
		}
		for i := range half {
			x = append(x, float32(math.Sin(float64(p)*math.Pow(1e4, -float64(i)/float64(half)))))
		}
	}
	return r.load(kernels.Table, kernels.DTypeF32, positions, rotary, x)
}
