package checkpoint

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scaledFixture returns the tensors of a layout in testdata/scaled.safetensors, under
// names of a model, and the values that they mean.
func scaledFixture(t testing.TB, layout string) (stored []Data, want []byte) {
	raw, err := os.ReadFile("testdata/scaled.safetensors")
	require.NoError(t, err)
	list, err := ReadSafetensors(raw)
	require.NoError(t, err)
	for _, x := range list {
		if rest, ok := strings.CutPrefix(x.Name, layout+"."); ok {
			stored = append(stored, Data{Name: "model.layers.0.mlp.up_proj." + rest, DType: x.DType, Shape: x.Shape, Bytes: x.Bytes()})
		} else if x.Name == "want."+layout {
			want = x.Bytes()
		}
	}
	require.NotEmpty(t, want)
	return stored, want
}

// scaledDir is a checkpoint of those tensors and a plain one.
func scaledDir(t testing.TB, quantization string, stored []Data) string {
	config := strings.Replace(smallConfig, "{", `{"quantization_config":`+quantization+",", 1)
	return dir(t, map[string]string{"config.json": config, "model.safetensors": weights(t, append(stored, bf16("model.norm.weight", 8))...)})
}

// Weights beside scales have the values that torch gives (testdata/make_scaled.py),
// whether they are expanded as they are read or once, into a file.
func TestScaledWeights(t *testing.T) {
	for layout, q := range map[string]string{
		"block128":  `{"quant_method":"fp8","weight_block_size":[128,128]}`,
		"bf16scale": `{"quant_method":"fp8"}`,
		"ue8m0":     `{"quant_method":"fp8","weight_block_size":[32,32],"scale_fmt":"ue8m0"}`,
		"row":       `{"quant_method":"compressed-tensors"}`,
		"rows1d":    `{"quant_method":"fbgemm_fp8"}`,
		"one":       `{"quant_method":"fp8"}`,
		"stack":     `{"quant_method":"fp8","weight_block_size":[32,32]}`,
		"mx":        `{"quant_method":"fp8","weight_block_size":[32,32]}`,
		"mxpacked":  `{"quant_method":"compressed-tensors"}`,
		"nv":        `{"quant_method":"modelopt"}`,
		"nvpacked":  `{"quant_method":"compressed-tensors"}`,
	} {
		t.Run(layout, func(t *testing.T) {
			stored, want := scaledFixture(t, layout)
			d := scaledDir(t, q, stored)
			cache := t.TempDir()
			for _, pass := range []string{"lazy", "written", "mapped"} {
				ck, err := Open(d)
				require.NoError(t, err)
				require.True(t, ck.Expanded())
				hash := ck.Hash()
				if pass != "lazy" {
					require.NoError(t, ck.UseCache(t.Context(), cache))
					require.False(t, ck.Expanded())
				}
				require.Equal(t, hash, ck.Hash(), "the same weights")
				require.Equal(t, []string{"model.layers.0.mlp.up_proj.weight", "model.norm.weight"}, ck.Names())
				x, err := ck.Tensor("model.layers.0.mlp.up_proj.weight")
				require.NoError(t, err)
				require.Equal(t, BF16, x.DType)
				require.NotEmpty(t, x.Stored)
				require.NoError(t, x.CheckFinite())
				got, err := x.bytes()
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got), pass)
				part := make([]byte, 333)
				_, err = x.ReadAt(part, 101)
				require.NoError(t, err)
				require.Equal(t, want[101:434], part)
				require.NoError(t, ck.Close())
			}
			files, err := filepath.Glob(cache + "/*/*")
			require.NoError(t, err)
			require.Len(t, files, 1, "one file, and nothing left of its making")
		})
	}
}

// The codes' tables are those of the formats.
func TestCodes(t *testing.T) {
	require.Equal(t, []float32{0, 0x1p-9, 0x1p-6, 1, 448}, []float32{e4m3[0], e4m3[1], e4m3[8], e4m3[0x38], e4m3[0x7e]})
	require.True(t, math.IsNaN(float64(e4m3[0x7f])) && math.IsNaN(float64(e4m3[0xff])))
	require.Equal(t, float32(-448), e4m3[0xfe])
	require.Equal(t, []float32{0x1p-127, 1, 0x1p127}, []float32{e8m0(0), e8m0(127), e8m0(254)})
	require.True(t, math.IsNaN(float64(e8m0(255))))
}

func TestScaledRefuses(t *testing.T) {
	fp8 := func(name string, shape ...int) Data {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return Data{Name: name, DType: F8E4M3, Shape: shape, Bytes: make([]byte, n)}
	}
	scales := func(name string, shape ...int) Data {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return Float32Data(name, shape, make([]float32, n))
	}
	packed := fp8("a.weight", 4, 16)
	packed.DType = U8
	for want, list := range map[string][]Data{
		`tensor "a.weight": scales "a.weight_scale_inv": shape [2 2] does not go with a weight [64 64] in blocks of 128 by 128`: {fp8("a.weight", 64, 64), scales("a.weight_scale_inv", 2, 2)},
		`shape [3 1] does not go with a weight [4 4]`:                                        {fp8("a.weight", 4, 4), scales("a.weight_scale", 3)},
		`shape [1 2 3] does not go with`:                                                     {fp8("a.weight", 4, 4), scales("a.weight_scale", 1, 2, 3)},
		`shape [8]; a weight with scales must have two dimensions`:                           {fp8("a.weight", 8), scales("a.weight_scale", 1)},
		`it is F32 and has scales`:                                                           {scales("a.weight", 4, 4), scales("a.weight_scale", 1)},
		`groups of 8 elements; FP4 has 16 or 32`:                                             {packed, scales("a.weight_scale", 4, 4)},
		`tensor "b.weight_scale" belongs to quantised weights in a layout that is not known`: {fp8("a.weight", 4, 4), scales("a.weight_scale", 1), scales("b.weight_scale", 1)},
		`must be one number, beside FP4`:                                                     {fp8("a.weight", 4, 4), scales("a.weight_scale", 1), scales("a.weight_scale_2", 1)},
	} {
		_, err := Open(scaledDir(t, `{"quant_method":"fp8","weight_block_size":[128,128]}`, list))
		require.ErrorContains(t, err, want)
	}
	_, err := Open(scaledDir(t, `{"quant_method":"fp8"}`, []Data{fp8("a.weight", 64, 64), scales("a.weight_scale_inv", 4, 4)}))
	require.ErrorContains(t, err, "quantization_config.weight_block_size must say the size")

	nan := fp8("model.layers.0.mlp.up_proj.weight", 4, 4)
	nan.Bytes[6] = 0x7f
	ck, err := Open(scaledDir(t, `{"quant_method":"fp8"}`, []Data{nan, scales("model.layers.0.mlp.up_proj.weight_scale", 1)}))
	require.NoError(t, err)
	defer ck.Close()
	x, err := ck.Tensor("model.layers.0.mlp.up_proj.weight")
	require.NoError(t, err)
	require.ErrorContains(t, x.CheckFinite(), "element 6 (index [1 2]) is NaN")
}

// A cache that can't be used leaves the checkpoint as it was.
func TestExpandedCacheFails(t *testing.T) {
	stored, want := scaledFixture(t, "row")
	d := scaledDir(t, `{"quant_method":"fp8"}`, stored)
	open := func() *Checkpoint {
		ck, err := Open(d)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ck.Close()) })
		return ck
	}
	right := func(ck *Checkpoint) {
		x, err := ck.Tensor("model.layers.0.mlp.up_proj.weight")
		require.NoError(t, err)
		got, err := x.bytes()
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	}
	notDir := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(notDir, nil, 0o644))
	ck := open()
	require.ErrorContains(t, ck.UseCache(t.Context(), notDir), "write expanded weights to")
	right(ck)

	cache := t.TempDir()
	require.NoError(t, open().UseCache(t.Context(), cache))
	files, err := filepath.Glob(cache + "/*/" + expandedFile)
	require.NoError(t, err)
	require.Len(t, files, 1)
	raw, err := os.ReadFile(files[0])
	require.NoError(t, err)
	for what, bad := range map[string][]byte{
		"cut":     raw[:len(raw)-1],
		"another": []byte(weights(t, bf16("x", 3))),
		"empty":   []byte(weights(t)),
	} {
		require.NoError(t, os.WriteFile(files[0], bad, 0o644))
		ck := open()
		require.ErrorContains(t, ck.UseCache(t.Context(), cache), "remove the file", what)
		require.True(t, ck.Expanded())
		right(ck)
	}

	// Other weights have another folder.
	stored[0].Bytes = bytes.Clone(stored[0].Bytes)
	other, err := Open(scaledDir(t, `{"quant_method":"fp8"}`, stored))
	require.NoError(t, err)
	require.NoError(t, other.UseCache(t.Context(), cache))
	files, err = filepath.Glob(cache + "/*")
	require.NoError(t, err)
	require.Len(t, files, 2)
	require.NoError(t, other.Close())

	plain, err := Open(dir(t, map[string]string{"config.json": smallConfig, "model.safetensors": weights(t, bf16("model.norm.weight", 8))}))
	require.NoError(t, err)
	require.False(t, plain.Expanded())
	require.NoError(t, plain.UseCache(t.Context(), notDir), "nothing to write")
	require.NoError(t, plain.Close())
}

func BenchmarkScaled(b *testing.B) {
	for _, layout := range []string{"block128", "nv"} {
		stored, want := scaledFixture(b, layout)
		ck, err := Open(scaledDir(b, `{"quant_method":"fp8"}`, stored))
		require.NoError(b, err)
		x, err := ck.Tensor("model.layers.0.mlp.up_proj.weight")
		require.NoError(b, err)
		b.Run(fmt.Sprint(layout), func(b *testing.B) {
			b.SetBytes(int64(len(want)))
			buf := make([]byte, len(want))
			for b.Loop() {
				_, err := x.ReadAt(buf, 0)
				require.NoError(b, err)
			}
		})
		require.NoError(b, ck.Close())
	}
}
