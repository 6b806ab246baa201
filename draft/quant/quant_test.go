package quant

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

func widenScale(b uint16) float64 {
	return math.Abs(float64(math.Float32frombits(uint32(b) << 16)))
}

// dequantize reads the matrix back as backends do.
func (m *Matrix) dequantize() []float32 {
	raw := make([]byte, 0, 2*len(m.Scales))
	for _, s := range m.Scales {
		raw = binary.LittleEndian.AppendUint16(raw, s)
	}
	q := &kernels.Int4{Group: m.Group, Scales: bytes.NewReader(raw)}
	if m.Zeros != nil {
		q.Zeros = bytes.NewReader(m.Zeros)
	}
	rows, err := kernels.Source{Rows: m.Rows, Cols: m.Cols, DType: kernels.DTypeInt4, Data: bytes.NewReader(m.Nibbles), Int4: q}.ReadInt4(0, m.Rows)
	if err != nil {
		panic(err)
	}
	w := make([]float32, m.Rows*m.Cols)
	for i := range m.Rows {
		rows.Dequantize(w[i*m.Cols:(i+1)*m.Cols], i)
	}
	return w
}

func TestFrequent(t *testing.T) {
	all := []int32{8, 0, 1, 2, 3, 5, 6, 7}
	ids, err := Frequent([]int32{4, 4, 4, 4, 5, 5, 1, 7, 7, 7}, all, 4)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 5, 7}, ids, "ties go to the lower id; 4 is not in the list")
	require.EqualValues(t, 8, all[0], "the list is left as it was")
	_, err = Frequent(nil, all, 9)
	require.ErrorContains(t, err, "9 tokens of a vocabulary of 8")
}
