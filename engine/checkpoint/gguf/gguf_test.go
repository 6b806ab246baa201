package gguf_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/checkpoint/gguf"
)

func golden(t testing.TB) []byte {
	data, err := os.ReadFile("testdata/quants.gguf")
	require.NoError(t, err)
	return data
}

// Every type is expanded to the values, as bits, that the Python package gguf
// gives (testdata/make_golden.py).
func TestExpand(t *testing.T) {
	f, err := gguf.Parse(golden(t))
	require.NoError(t, err)
	raw, err := os.ReadFile("testdata/quants.safetensors")
	require.NoError(t, err)
	list, err := checkpoint.ReadSafetensors(raw)
	require.NoError(t, err)
	want := map[string][]float32{}
	for _, w := range list {
		want[w.Name], err = w.Float32s()
		require.NoError(t, err)
	}
	require.Len(t, f.Tensors, 11)
	for _, tensor := range f.Tensors {
		require.Equal(t, tensor.Name, tensor.Type.String())
		require.True(t, tensor.Type.Supported())
		require.Equal(t, []int{3, 512}, tensor.Shape)
		require.Len(t, tensor.Data, tensor.Type.Size(3*512))
		got := make([]float32, 3*512)
		tensor.Type.Expand(got, tensor.Data)
		for i := range got {
			require.Equal(t, math.Float32bits(want[tensor.Name][i]), math.Float32bits(got[i]), "%s, element %d", tensor.Name, i)
		}
	}
}

func TestValues(t *testing.T) {
	f, err := gguf.Parse(golden(t))
	require.NoError(t, err)
	require.EqualValues(t, 3, f.Version)
	for key, want := range map[string]int64{
		"uint8": 200, "int8": -100, "uint16": 60000, "int16": -30000, "uint32": 4e9, "int32": -2e9, "uint64": 1 << 40, "int64": -1 << 40,
	} {
		v := f.Values["kind."+key]
		n, ok := v.Integer()
		require.True(t, ok, key)
		require.Equal(t, want, n, key)
		require.Equal(t, key, v.Kind.String())
		x, ok := v.Number()
		require.True(t, ok)
		require.EqualValues(t, want, x)
	}
	x, ok := f.Values["kind.float32"].Number()
	require.True(t, ok)
	require.Equal(t, 1e-5, x, "the shortest decimal text of a float32")
	x, ok = f.Values["kind.float64"].Number()
	require.True(t, ok)
	require.Equal(t, 1e-300, x)
	yes, ok := f.Values["kind.bool"].Truth()
	require.True(t, ok && yes)
	s, ok := f.Values["kind.string"].Text()
	require.True(t, ok)
	require.Equal(t, "grüße", s)
	texts, ok := f.Values["kind.strings"].Texts()
	require.True(t, ok)
	require.Equal(t, []string{"a", "", "b c"}, texts)
	ints, ok := f.Values["kind.ints"].Integers()
	require.True(t, ok)
	require.Equal(t, []int64{3, -1, 2}, ints)
	floats, ok := f.Values["kind.floats"].Float32s()
	require.True(t, ok)
	require.Equal(t, []float32{0.5, 0.25}, floats)

	// A value of another kind is none.
	_, ok = f.Values["kind.string"].Integer()
	require.False(t, ok)
	_, ok = f.Values["kind.ints"].Texts()
	require.False(t, ok)
	_, ok = f.Values["kind.floats"].Integers()
	require.False(t, ok)
	_, ok = f.Values["kind.ints"].Float32s()
	require.False(t, ok)
	var none gguf.Value
	_, ok = none.Text()
	require.False(t, ok)
	_, ok = none.Integer()
	require.False(t, ok)
	_, ok = none.Number()
	require.False(t, ok)
	_, ok = none.Truth()
	require.False(t, ok)
}

// file builds a file by hand.
type file struct{ bytes.Buffer }

func (f *file) put(values ...any) *file {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			f.put(uint64(len(v)))
			f.WriteString(v)
		case []byte:
			f.Write(v)
		default:
			_ = binary.Write(f, binary.LittleEndian, v)
		}
	}
	return f
}

func header(tensors, values uint64) *file {
	return new(file).put([]byte("GGUF"), uint32(3), tensors, values)
}

// f32 is a row of the table of tensors.
func (f *file) tensor(name string, dims []uint64, kind gguf.Type, offset uint64) *file {
	return f.put(name, uint32(len(dims)), dims, uint32(kind), offset)
}

func (f *file) data(n int) []byte {
	for f.Len()%32 != 0 {
		f.WriteByte(0)
	}
	return f.put(make([]byte, n)).Bytes()
}

func TestRefuses(t *testing.T) {
	one := []uint64{8}
	for want, data := range map[string][]byte{
		`does not begin with "GGUF"`:      []byte("GGML                        "),
		"version is 1; known are 2 and 3": new(file).put([]byte("GGUF"), uint32(1), uint64(0), uint64(0)).Bytes(),
		"big-endian":                      new(file).put([]byte("GGUF"), uint32(3<<24), uint64(0), uint64(0)).Bytes(),
		"tensor count is":                 header(1<<63, 0).Bytes(),
		"metadata count is":               header(0, 1<<63).Bytes(),
		"it is truncated":                 header(0, 1000).Bytes(),
		"a text of 9223372036854775808":   header(0, 1).put(uint64(1 << 63)).Bytes(),
		`key "a" occurs twice`:            header(0, 2).put("a", uint32(0), byte(1), "a").put(uint32(0), byte(1)).Bytes(),
		"kind 77 is not known":            header(0, 1).put("a", uint32(77)).Bytes(),
		"an array of kind 77":             header(0, 1).put("a", uint32(9), uint32(77), uint64(1)).Bytes(),
		"nested more than":                header(0, 1).put("a", uint32(9), uint32(9), uint64(1), uint32(9), uint64(1), uint32(9), uint64(1), uint32(9), uint64(1), uint32(9), uint64(0)).Bytes(),
		"general.alignment":               header(0, 1).put("general.alignment", uint32(4), uint32(0)).Bytes(),
		"it has 0 dimensions":             header(1, 0).tensor("a", nil, gguf.F32, 0).data(32),
		"it has 5 dimensions":             header(1, 0).tensor("a", []uint64{1, 1, 1, 1, 1}, gguf.F32, 0).data(32),
		"dimension 0":                     header(1, 0).tensor("a", []uint64{0}, gguf.F32, 0).data(32),
		"must not overflow":               header(1, 0).tensor("a", []uint64{1 << 40, 1 << 40}, gguf.F32, 0).data(32),
		"type 99 is not known":            header(1, 0).tensor("a", one, 99, 0).data(32),
		"no whole number of Q4_0 blocks":  header(1, 0).tensor("a", one, gguf.Q4_0, 0).data(32),
		`tensor "a" occurs twice`:         header(2, 0).tensor("a", one, gguf.F32, 0).tensor("a", one, gguf.F32, 32).data(64),
		"they overlap":                    header(2, 0).tensor("a", []uint64{16}, gguf.F32, 0).tensor("b", one, gguf.F32, 32).data(64),
		"a multiple of the alignment":     header(1, 0).tensor("a", one, gguf.F32, 8).data(64),
		"hole of 32 bytes":                header(1, 0).tensor("a", one, gguf.F32, 32).data(64),
		"needs 32 bytes":                  header(1, 0).tensor("a", one, gguf.F32, 0).data(16),
		"overflows":                       header(1, 0).tensor("a", one, gguf.F32, 1<<63).data(32),
		"bytes follow":                    header(1, 0).tensor("a", one, gguf.F32, 0).data(64),
		"not valid UTF-8":                 header(1, 0).tensor("\xff", one, gguf.F32, 0).data(32),
	} {
		_, err := gguf.Parse(data)
		require.ErrorContains(t, err, want)
	}
	_, err := gguf.Parse(header(1, 0).tensor("a", one, gguf.F32, 0).data(32))
	require.NoError(t, err)
	_, err = gguf.Parse(header(0, 0).Bytes())
	require.NoError(t, err)
}

// A cut file is refused wherever the cut is.
func TestTruncations(t *testing.T) {
	data := golden(t)
	for n := 0; n < len(data)-32; n += 1 + n/64 {
		_, err := gguf.Parse(data[:n])
		require.Error(t, err, "cut at %d", n)
	}
}

// What a number in a header asks for is not allocated: files that promise the most
// cost about what their own bytes do.
func TestHostileCounts(t *testing.T) {
	for name, data := range map[string][]byte{
		"strings": header(0, 1).put("a", uint32(9), uint32(8), uint64(1<<62)).Bytes(),
		"numbers": header(0, 1).put("a", uint32(9), uint32(12), uint64(1<<61)).Bytes(),
		"values":  header(0, 1<<16).Bytes(),
		"tensors": header(1<<18, 0).Bytes(),
		"arrays":  header(0, 1).put("a", uint32(9), uint32(9), uint64(1<<20)).put(bytes.Repeat([]byte{9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1<<16)).Bytes(),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		_, err := gguf.Parse(data)
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
		if !testing.Short() { // not under the race detector
			require.Less(t, time.Since(start), 5*time.Second, name)
		}
	}
}

func FuzzParse(f *testing.F) {
	data := golden(f)
	f.Add(data)
	f.Add(data[:600])
	f.Add(header(2, 1).put("general.alignment", uint32(4), uint32(64)).tensor("a", []uint64{32, 2}, gguf.Q8_0, 0).tensor("b", []uint64{8}, gguf.F32, 128).data(256))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data)
		if err != nil {
			return
		}
		for _, v := range file.Values {
			v.Text()
			v.Truth()
			v.Number()
			v.Texts()
			v.Integers()
			v.Float32s()
		}
		total := len(file.Header)
		for _, x := range file.Tensors {
			n := 1
			for _, d := range x.Shape {
				n *= d
			}
			require.Len(t, x.Data, x.Type.Size(n))
			total += len(x.Data)
			if x.Type.Supported() {
				x.Type.Expand(make([]float32, n), x.Data)
			}
		}
		require.LessOrEqual(t, total, len(data))
	})
}

func BenchmarkExpand(b *testing.B) {
	f, err := gguf.Parse(golden(b))
	require.NoError(b, err)
	for _, x := range f.Tensors {
		b.Run(fmt.Sprint(x.Type), func(b *testing.B) {
			dst := make([]float32, 3*512)
			b.SetBytes(3 * 512 * 2) // as BF16
			for b.Loop() {
				x.Type.Expand(dst, x.Data)
			}
		})
	}
}
