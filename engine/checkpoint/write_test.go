package checkpoint

import (
	"bytes"
	"errors"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadsReference reads a file of the reference writer, and writes the same
// bytes back.
func TestReadsReference(t *testing.T) {
	raw, err := os.ReadFile("testdata/reference.safetensors")
	require.NoError(t, err)
	tensors, err := ReadSafetensors(raw)
	require.NoError(t, err)
	byName := map[string]Tensor{}
	var again []Data
	for i := len(tensors) - 1; i >= 0; i-- { // another order than that of the file
		x := tensors[i]
		byName[x.Name] = x
		again = append(again, Data{Name: x.Name, DType: x.DType, Shape: x.Shape, Bytes: x.Bytes()})
	}
	require.Len(t, byName, 7)
	for name, want := range map[string][]float32{
		"b.weight": {1, -2.5, 3, 0, float32(math.Copysign(0, -1)), 65536},
		"a.weight": {1, 2, 0x1p-24},
		"z.scale":  {0.1, 1e-40},
		"scalar":   {2.5},
		"empty":    {},
	} {
		got, err := byName[name].Float32s()
		require.NoError(t, err, name)
		require.Len(t, got, len(want), name)
		for i := range want {
			require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]), "%s[%d]", name, i)
		}
	}
	require.Equal(t, []int{2, 3}, byName["b.weight"].Shape)
	require.Empty(t, byName["scalar"].Shape)
	require.Equal(t, 1, byName["scalar"].Len())
	require.Zero(t, byName["empty"].Len())
	_, err = byName["ids"].Float32s()
	require.EqualError(t, err, `tensor "ids" is I64; weights must be BF16, F16 or F32`)

	var out bytes.Buffer
	require.NoError(t, WriteSafetensors(&out, again, map[string]string{"format": "pt"}))
	require.Equal(t, raw, out.Bytes())
}

func TestWriteRoundTrip(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, WriteSafetensors(&out, []Data{
		Float32Data("logits", []int{2, 2}, []float32{1, -2, 3.5, float32(math.Inf(1))}),
		Uint16Data("w<&>", BF16, []int{3}, []uint16{0x3f80, 0xbf80, 0x7f80}),
		{Name: "odd", DType: U8, Shape: []int{3}, Bytes: []byte{1, 2, 3}},
	}, nil))
	tensors, err := ReadSafetensors(out.Bytes())
	require.NoError(t, err)
	require.Equal(t, []string{"logits", "w<&>", "odd"}, []string{tensors[0].Name, tensors[1].Name, tensors[2].Name})
	got, err := tensors[0].Float32s()
	require.NoError(t, err)
	require.Equal(t, []float32{1, -2, 3.5, float32(math.Inf(1))}, got)
	bits, err := tensors[1].Uint16s()
	require.NoError(t, err)
	require.Equal(t, []uint16{0x3f80, 0xbf80, 0x7f80}, bits)
	_, err = tensors[2].Uint16s()
	require.EqualError(t, err, `tensor "odd" is U8; BF16 or F16 was asked for`)
	require.Contains(t, out.String(), `"w<&>"`)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriteRefuses(t *testing.T) {
	x := Float32Data("x", []int{1}, []float32{1})
	for want, tensors := range map[string][]Data{
		`name "x" is reserved or given twice`:                            {x, x},
		`name "__metadata__" is reserved or given twice`:                 {Float32Data("__metadata__", []int{1}, []float32{1})},
		`tensor "x": shape [2] of F32 takes 8 bytes, but 4 are given`:    {Float32Data("x", []int{2}, []float32{1})},
		`tensor "x": shape [-1] has a negative dimension`:                {Float32Data("x", []int{-1}, []float32{1})},
		`tensor "x": dtype "F5" is not known; known are ` + dtypeNames(): {{Name: "x", DType: "F5"}},
	} {
		require.EqualError(t, WriteSafetensors(&bytes.Buffer{}, tensors, nil), "write safetensors: "+want)
	}
	require.EqualError(t, WriteSafetensors(fullDisk{}, []Data{x}, nil), "write safetensors: no space left on device")
}
