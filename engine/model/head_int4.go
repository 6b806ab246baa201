package model

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// Names of the tensors that go with a matrix of 4 bits: its own and a suffix.
const (
	// ScaleSuffix is that of the scales, BF16 [rows, columns/group].
	ScaleSuffix = "_scale"
	// ZeroSuffix is that of the zero points, U8 [rows, columns/group]; without
	// it the weights are symmetric.
	ZeroSuffix = "_zero"
)

// int4Of checks a matrix of 4 bits and makes it a part to load. The group follows
// from the shape of the scales.
func (h headFiles) int4Of(t checkpoint.Tensor, name string, rows, cols int) (kernels.Source, error) {
	bad := func(t checkpoint.Tensor, want string) (kernels.Source, error) {
		return kernels.Source{}, fmt.Errorf("%s: tensor %s is %s %v; %s", h.Name(), t.Name, t.DType, t.Shape, want)
	}
	if cols%2 != 0 || !slices.Equal(t.Shape, []int{rows, cols / 2}) {
		return bad(t, fmt.Sprintf("4-bit weights of [%d, %d] are U8 [%d, %d]", rows, cols, rows, cols/2))
	}
	scales, err := h.file.Tensor(name + ScaleSuffix)
	if err != nil {
		return kernels.Source{}, err
	}
	if s := scales.Shape; scales.DType != checkpoint.BF16 || len(s) != 2 || s[0] != rows || s[1] < 1 || cols%s[1] != 0 || !slices.Contains(kernels.Int4Groups, cols/s[1]) {
		return bad(scales, fmt.Sprintf("scales of [%d, %d] are BF16 [%d, %d/group] with a group of %v that divides it", rows, cols, rows, cols, kernels.Int4Groups))
	}
	q := &kernels.Int4{Group: cols / scales.Shape[1], Scales: scales}
	if h.file.Has(name + ZeroSuffix) {
		zeros, err := h.file.Tensor(name + ZeroSuffix)
		if err != nil {
			return kernels.Source{}, err
		}
		if zeros.DType != checkpoint.U8 || !slices.Equal(zeros.Shape, scales.Shape) {
			return bad(zeros, fmt.Sprintf("zero points are U8 %v, as the scales", scales.Shape))
		}
		q.Zeros = zeros
	}
	return kernels.Source{Name: name, Rows: rows, Cols: cols, DType: kernels.DTypeInt4, Data: t, Int4: q}, nil
}
