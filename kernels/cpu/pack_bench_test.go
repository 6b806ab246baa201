package cpu

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// Packing beside a copy of the same bytes into memory of the same kind.
func BenchmarkPack(b *testing.B) {
	const rows, cols = 6144, 2048
	raw := make([]byte, rows*cols*2)
	for i := range raw {
		raw[i] = byte(i * 7)
	}
	be, err := New(Options{})
	require.NoError(b, err)
	defer func() { require.NoError(b, be.Close()) }()
	b.Run("load", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			_, err := be.Load(kernels.Tensor{Name: "w", Use: kernels.Matrix, Parts: []kernels.Source{{Name: "w", Rows: rows, Cols: cols, DType: kernels.DTypeBF16, Data: bytes.NewReader(raw)}}})
			require.NoError(b, err)
			w := be.weights[len(be.weights)-1]
			b.StopTimer()
			require.NoError(b, be.mem.free(w.mem))
			be.weights = be.weights[:len(be.weights)-1]
			b.StartTimer()
		}
	})
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			_, _, err := be.CopyIn([][]byte{raw})
			require.NoError(b, err)
		}
	})
}
