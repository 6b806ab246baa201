package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func dtypeNames() string { return fmt.Sprint(DTypes()) }

// tensorOf wraps raw bytes; skew shifts them off their alignment.
func tensorOf(d DType, raw []byte, skew int) Tensor {
	room := make([]byte, len(raw)+16+skew)
	at := room[skew : skew+len(raw) : skew+len(raw)]
	copy(at, raw)
	return Tensor{Name: "w", Source: "w", File: "model.safetensors", DType: d, Shape: []int{len(raw) / d.Size()}, data: at}
}

func TestTensorReader(t *testing.T) {
	x := tensorOf(F32, []byte("0123456789abcdef"), 0)
	require.NoError(t, iotest.TestReader(io.NewSectionReader(x, 0, x.Size()), []byte("0123456789abcdef")))
	n, err := x.ReadAt(make([]byte, 4), 14)
	require.Equal(t, 2, n)
	require.Equal(t, io.EOF, err)
	_, err = x.ReadAt(make([]byte, 4), 16)
	require.Equal(t, io.EOF, err)
	_, err = x.ReadAt(nil, 99)
	require.NoError(t, err)
	_, err = x.ReadAt(nil, -1)
	require.EqualError(t, err, `tensor "w": offset -1 is negative`)
}

// Bytes that are not aligned for their type are copied, with the same values.
func TestUnaligned(t *testing.T) {
	var raw []byte
	for i := range 9 {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i)*1.5))
	}
	for skew := range 4 {
		x := tensorOf(F32, raw, skew)
		require.Equal(t, skew == 0, x.Aligned())
		got, err := x.Float32s()
		require.NoError(t, err)
		require.Equal(t, []float32{0, 1.5, 3, 4.5, 6, 7.5, 9, 10.5, 12}, got)

		h := tensorOf(BF16, raw, skew)
		require.Equal(t, skew%2 == 0, h.Aligned())
		bits, err := h.Uint16s()
		require.NoError(t, err)
		require.Equal(t, uint16(0x3fc0), bits[3])
	}
}

// TestHalfWidening checks all 65,536 halves against arithmetic.
func TestHalfWidening(t *testing.T) {
	for b := range 1 << 16 {
		exp, frac := b>>10&0x1f, b&0x3ff
		want := math.Ldexp(float64(frac|0x400), exp-25)
		switch {
		case exp == 0:
			want = math.Ldexp(float64(frac), -24)
		case exp == 0x1f && frac == 0:
			want = math.Inf(1)
		case exp == 0x1f:
			require.NotEqual(t, f16ToF32(uint16(b)), f16ToF32(uint16(b)), "%#x is a NaN", b)
			continue
		}
		if b>>15 == 1 {
			want = math.Copysign(want, -1)
		}
		require.Equal(t, math.Float32bits(float32(want)), math.Float32bits(f16ToF32(uint16(b))), "%#x", b)
	}
}

// TestCheckFinite puts every kind of bad value at many places among the
// largest good ones, and compares with a plain test of each element.
func TestCheckFinite(t *testing.T) {
	type kind struct {
		d    DType
		good []uint32
		bad  []uint32
	}
	for _, k := range []kind{
		{BF16, []uint32{0x7f7f, 0xff7f, 0x0001, 0x8000, 0x0000, 0x3f80}, []uint32{0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f81}},
		{F16, []uint32{0x7bff, 0xfbff, 0x0001, 0x8000, 0x0000, 0x3c00}, []uint32{0x7c00, 0xfc00, 0x7e00, 0xffff, 0x7c01}},
		{F32, []uint32{0x7f7fffff, 0xff7fffff, 1, 0x80000000, 0, 0x3f800000}, []uint32{0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x7f800001}},
	} {
		size := k.d.Size()
		put := func(p []byte, v uint32) {
			if size == 2 {
				binary.LittleEndian.PutUint16(p, uint16(v))
			} else {
				binary.LittleEndian.PutUint32(p, v)
			}
		}
		for _, n := range []int{0, 1, 3, 15, 16, 17, 2047, 2048, 2049, 5000} {
			raw := make([]byte, n*size)
			for i := range n {
				put(raw[i*size:], k.good[i%len(k.good)])
			}
			x := tensorOf(k.d, raw, 0)
			require.NoError(t, x.CheckFinite(), "%s %d", k.d, n)
			for i := 0; i < n; i += 1 + i/3 {
				for _, bad := range k.bad {
					old := append([]byte(nil), x.data[i*size:(i+1)*size]...)
					put(x.data[i*size:], bad)
					require.ErrorContains(t, x.CheckFinite(), fmt.Sprintf("element %d ", i))
					copy(x.data[i*size:], old)
				}
			}
		}
	}
}

func TestCheckFiniteNames(t *testing.T) {
	x := tensorOf(BF16, make([]byte, 12), 0)
	x.Shape = []int{2, 3}
	binary.LittleEndian.PutUint16(x.data[8:], 0x7fc0)
	require.EqualError(t, x.CheckFinite(), `tensor "w" in model.safetensors: element 4 (index [1 1]) is NaN; weights must be finite`)
	binary.LittleEndian.PutUint16(x.data[2:], 0xff80)
	require.EqualError(t, x.CheckFinite(), `tensor "w" in model.safetensors: element 1 (index [0 1]) is -Inf; weights must be finite`)
	require.EqualError(t, tensorOf(I32, make([]byte, 4), 0).CheckFinite(), `tensor "w" in model.safetensors is I32; weights must be BF16, F16 or F32`)
}

func TestDTypeSizes(t *testing.T) {
	require.Len(t, DTypes(), 22)
	for _, d := range DTypes() {
		require.Positive(t, d.Bits(), d)
		if strings.HasPrefix(string(d), "F8") {
			require.Equal(t, 1, d.Size(), d)
		}
	}
	require.Zero(t, DType("F31").Bits())
	require.Equal(t, 2, BF16.Size())
	require.Zero(t, F4.Size())
}

func BenchmarkCheckFinite(b *testing.B) {
	raw := make([]byte, 16<<20)
	for _, d := range []DType{BF16, F32} {
		b.Run(string(d), func(b *testing.B) {
			x := tensorOf(d, raw, 0)
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				require.NoError(b, x.CheckFinite())
			}
		})
	}
}
