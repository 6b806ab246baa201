//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"encoding/binary"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

func TestCubinCache(t *testing.T) {
	c := cubinCache{dir: t.TempDir() + "/deep/er"}
	key := cacheKey("source", []string{"-a", "-b"})
	require.NotEqual(t, key, cacheKey("source", []string{"-a-b"}))
	require.NotEqual(t, key, cacheKey("source2", []string{"-a", "-b"}))
	require.Nil(t, c.get(key))
	c.put(key, []byte("machine code"))
	require.Equal(t, "machine code", string(c.get(key)))

	raw, err := os.ReadFile(c.path(key))
	require.NoError(t, err)
	raw[len(raw)-1] ^= 1
	require.NoError(t, os.WriteFile(c.path(key), raw, 0o644))
	require.Nil(t, c.get(key), "a damaged entry is none")
	require.NoError(t, os.WriteFile(c.path(key), raw[:10], 0o644))
	require.Nil(t, c.get(key), "a truncated entry is none")
	c.put(key, []byte("again"))
	require.Equal(t, "again", string(c.get(key)))
	left, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary files stay")

	cubinCache{}.put(key, []byte("x"))
	require.Nil(t, cubinCache{}.get(key))
}

func TestArchitecture(t *testing.T) {
	for _, c := range []struct{ major, minor, arch int }{
		{8, 0, 80}, {8, 6, 80}, {8, 9, 80}, {9, 0, 90}, {10, 0, 100}, {10, 3, 100}, {12, 0, 120}, {12, 1, 120},
	} {
		got, err := architectureOf(driver.Device{Major: c.major, Minor: c.minor})
		require.NoError(t, err)
		require.Equal(t, c.arch, got)
	}
	for _, major := range []int{7, 11, 13} {
		_, err := architectureOf(driver.Device{Name: "some card", Major: major, Minor: 5})
		require.ErrorContains(t, err, "some card has compute capability")
	}
}

// TestKernelTable checks that every kernel of the table stands in its source and
// that its arguments fit the launch block.
func TestKernelTable(t *testing.T) {
	for id, k := range kernelTable {
		require.NotEmpty(t, k.name, "kernel %d", id)
		require.LessOrEqual(t, k.args, uintptr(driver.ParamBytes), k.name)
		text, err := source(k.file)
		require.NoError(t, err)
		require.Regexp(t, `(KERNEL|KERNEL_OF|MATMUL|MATMUL4|WIDE|NARROW|ATTEND)\((.*, )?`+k.name+`,`, text)
	}
}

// TestFaultTexts checks that the codes of common.cuh have texts.
func TestFaultTexts(t *testing.T) {
	text, err := source("rows")
	require.NoError(t, err)
	_, list, _ := strings.Cut(text, "FAULT_INDEX = 1,")
	list, _, _ = strings.Cut(list, "}")
	require.Equal(t, len(strings.Split(list, ","))+1, len(faultTexts)-1)
}

func TestConvert(t *testing.T) {
	for _, c := range []struct {
		in   float32
		bits uint16
	}{
		{1, 0x3f80}, {-2, 0xc000}, {1 + 1.0/256, 0x3f80}, {1 + 3.0/256, 0x3f82}, {1 + 1.0/128, 0x3f81},
		{float32(math.Inf(1)), 0x7f80}, {math.MaxFloat32, 0x7f80}, {0, 0},
	} {
		require.Equal(t, c.bits, bf16(c.in), "%g", c.in)
	}
	require.Greater(t, bf16(math.Float32frombits(0x7f800001)), uint16(0x7f80), "a NaN stays one")
	for _, c := range []struct {
		bits uint16
		out  float32
	}{
		{0x3c00, 1}, {0xc000, -2}, {1, float32(math.Ldexp(1, -24))}, {0x7c00, float32(math.Inf(1))}, {0x3555, 0.333251953125}, {0x7bff, 65504},
	} {
		require.Equal(t, c.out, half(c.bits))
	}
	require.True(t, math.IsNaN(float64(half(0x7e00))))

	wide := make([]byte, 8)
	convert(wide, []byte{0x80, 0x3f, 0x00, 0xc0}, kernels.DTypeBF16, false)
	require.Equal(t, math.Float32bits(1), binary.LittleEndian.Uint32(wide))
	require.Equal(t, math.Float32bits(-2), binary.LittleEndian.Uint32(wide[4:]))
	narrow := make([]byte, 4)
	convert(narrow, []byte{0x00, 0x3c, 0x00, 0xc0}, kernels.DTypeF16, true)
	require.Equal(t, []byte{0x80, 0x3f, 0x00, 0xc0}, narrow)
}

// TestPlan checks that the parts of a slot neither overlap nor leave its sum.
func TestPlan(t *testing.T) {
	spec := kernels.CacheSpec{
		Layers: []kernels.LayerSpec{
			{Kind: kernels.Delta, KHeads: 2, VHeads: 4, KDim: 64, VDim: 32, Conv: 4},
			{Kind: kernels.Attention, KVHeads: 2, HeadDim: 64},
			{Kind: kernels.Delta, KHeads: 1, VHeads: 1, KDim: 16, VDim: 16, Conv: 2},
			{Kind: kernels.Attention, KVHeads: 1, HeadDim: 32},
		},
		Slots: 3, Pages: 5, SlotPages: 4, MaxDraft: 8, Snapshots: 2,
	}
	p, z := plan(spec)
	require.Equal(t, 80, z.ring, "the window and 9 rows, rounded up to 8")
	require.Equal(t, 12, z.convRing, "9 rows and 3 taps before them")
	require.EqualValues(t, 2*64*2*(2*64+32), z.page)
	require.EqualValues(t, 4*64*32+16*16, z.state)
	require.EqualValues(t, 80*(2*64+4*32+4)+80*(16+16+1), z.records)
	require.EqualValues(t, 3*(2*2*64+4*32)+1*48, z.tail)
	require.EqualValues(t, 12*(384+48), z.conv)
	require.EqualValues(t, 0, p[1].keys)
	require.EqualValues(t, 5*64*128*2, p[1].values)
	require.EqualValues(t, 2*5*64*128*2, p[3].keys)
	require.EqualValues(t, 4*64*32, p[2].state)
	require.EqualValues(t, 80*(128+128+4), p[2].kRec)
	require.Len(t, z.deltas, 2)
	require.Equal(t, deltaLayer{state: 4 * 64 * 32, floats: 256, conv: 12 * 384, tail: 3 * 384, channels: 48, tapsN: 2}, z.deltas[1])
}

func TestCheckSpec(t *testing.T) {
	const shared = 99 << 10
	good := kernels.LayerSpec{Kind: kernels.Delta, KHeads: 1, VHeads: 2, KDim: 128, VDim: 128, Conv: 4}
	with := func(f func(*kernels.CacheSpec)) kernels.CacheSpec {
		s := kernels.CacheSpec{Layers: []kernels.LayerSpec{good}, Slots: 1, MaxDraft: 7}
		f(&s)
		return s
	}
	require.NoError(t, checkSpec(with(func(*kernels.CacheSpec) {}), shared))
	for text, f := range map[string]func(*kernels.CacheSpec){
		"slots must be positive": func(s *kernels.CacheSpec) { s.Slots = 0 },
		"MaxDraft 64":            func(s *kernels.CacheSpec) { s.MaxDraft = 64 },
		"unknown kind":           func(s *kernels.CacheSpec) { s.Layers[0].Kind = 9 },
		"multiple of key heads":  func(s *kernels.CacheSpec) { s.Layers[0].KHeads = 3 },
		"9 taps":                 func(s *kernels.CacheSpec) { s.Layers[0].Conv = 9 },
		"a head at most": func(s *kernels.CacheSpec) {
			s.Layers[0] = kernels.LayerSpec{Kind: kernels.Attention, KVHeads: 1, HeadDim: maxHead + 1}
		},
		"bytes of shared memory": func(s *kernels.CacheSpec) { s.Layers[0].KDim, s.MaxDraft = 256, 63 },
	} {
		s := with(func(s *kernels.CacheSpec) { s.Layers = []kernels.LayerSpec{good}; f(s) })
		require.ErrorContains(t, checkSpec(s, shared), text)
	}
}

func TestSum(t *testing.T) {
	a := kernels.Counters{Ops: 3, MACs: 10}
	require.Equal(t, kernels.Counters{Ops: 5, MACs: 17, LogitRows: 4}, sum(a, kernels.Counters{Ops: 2, MACs: 7, LogitRows: 4}))
}
