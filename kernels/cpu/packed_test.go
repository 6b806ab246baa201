package cpu

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// packedTensors are one of each use; no byte of them is 0.
func packedTensors() []kernels.Tensor {
	source := func(name string, rows, cols int) kernels.Source {
		raw := bytes.Repeat([]byte{0x11, 0x3f, 0x22, 0x3e, 0x33, 0xbd}, rows*cols)
		return kernels.Source{Name: name, Rows: rows, Cols: cols, DType: kernels.DTypeBF16, Data: bytes.NewReader(raw[:2*rows*cols])}
	}
	return []kernels.Tensor{
		{Name: "m", Use: kernels.Matrix, Parts: []kernels.Source{source("a", 70, 36), source("b", 9, 36)}},
		{Name: "p", Use: kernels.Matrix, Paired: true, Parts: []kernels.Source{source("g", 40, 64), source("u", 40, 64)}},
		{Name: "v", Use: kernels.Vector, Parts: []kernels.Source{source("v", 1, 33)}},
		{Name: "t", Use: kernels.Taps, Parts: []kernels.Source{source("t", 12, 4)}},
		{Name: "r", Use: kernels.Table, Parts: []kernels.Source{source("r", 5, 6)}},
	}
}

// loadPacked loads the tensors with a packed file; Data of nil is never read.
func loadPacked(t *testing.T, path, key string, read bool) (*Backend, bool) {
	t.Helper()
	b, err := New(Options{Threads: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.UsePacked(path, key))
	for _, x := range packedTensors() {
		for i := range x.Parts {
			if !read {
				x.Parts[i].Data = strings.NewReader("")
			}
		}
		_, err := b.Load(x)
		require.NoError(t, err)
	}
	written, err := b.FinishPacked()
	require.NoError(t, err)
	return b, written
}

// The second start reads nothing: its parameters are the bytes of the first, in a
// shared mapping.
func TestPackedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "packed")
	first, written := loadPacked(t, path, "key", true)
	require.True(t, written)
	second, written := loadPacked(t, path, "key", false)
	require.False(t, written)
	require.Len(t, second.weights, len(first.weights))
	for i, w := range first.weights {
		x := second.weights[i]
		require.Equal(t, w.mem.chunk.mem[w.mem.off:w.mem.off+w.mem.size], x.mem.chunk.mem[x.mem.off:x.mem.off+x.mem.size], w.name)
		require.Equal(t, w.values, x.values)
		require.Equal(t, w.centered, x.centered)
		require.Equal(t, w.packed == nil, x.packed == nil)
	}
	require.Equal(t, first.Memory(), second.Memory())
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		require.Regexp(t, `r--s .*`+path, string(maps), "processes share the pages")
	}
	// What is loaded later does not come from the file.
	_, err := second.Load(kernels.Tensor{Name: "v", Use: kernels.Vector, Parts: []kernels.Source{{Name: "v", Rows: 1, Cols: 33, DType: kernels.DTypeBF16, Data: strings.NewReader("")}}})
	require.Error(t, err)
	// A parameter of another shape is loaded beside the file.
	third, err := New(Options{Threads: 1})
	require.NoError(t, err)
	defer third.Close()
	require.NoError(t, third.UsePacked(path, "key"))
	_, err = third.Load(kernels.Tensor{Name: "r", Use: kernels.Table, Parts: []kernels.Source{{Name: "r", Rows: 2, Cols: 2, DType: kernels.DTypeBF16, Data: strings.NewReader("12345678")}}})
	require.NoError(t, err)
	require.False(t, third.weights[0].mem.chunk.file)
}

// A file that can't be written leaves the backend as it is.
func TestPackedFileNotWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	dir := filepath.Join(t.TempDir(), "packed")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for _, path := range []string{filepath.Join(file, "packed"), dir} {
		b, err := New(Options{Threads: 1})
		require.NoError(t, err)
		b.packing = &packing{path: path, key: "key"} // as if there were nothing
		for _, x := range packedTensors() {
			_, err := b.Load(x)
			require.NoError(t, err)
		}
		_, err = b.FinishPacked()
		require.ErrorContains(t, err, "write packed weights to "+path)
		require.Len(t, b.weights, len(packedTensors()))
		require.NoError(t, b.Close())
	}
	left, err := filepath.Glob(filepath.Dir(dir) + "/.writing*")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestPackedFileRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "packed")
	_, written := loadPacked(t, path, "key", true)
	require.True(t, written)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	b, err := New(Options{Threads: 1})
	require.NoError(t, err)
	defer b.Close()
	require.ErrorContains(t, b.UsePacked(path, "other"), "it belongs to other weights; remove the file")
	for want, bad := range map[string][]byte{
		"it is not a packed file":     []byte("something else, of some length"),
		"it is cut":                   good[:40],
		"bytes of":                    good[:len(good)-1],
		"invalid character":           bytes.Replace(good, []byte(`{"key"`), []byte(`x"key"`+""), 1),
		"lies outside of it":          bytes.Replace(good, []byte(`"off":4096`), []byte(`"off":   0`), 1),
		"it is no file with contents": {},
	} {
		require.NoError(t, os.WriteFile(path, bad, 0o644))
		require.ErrorContains(t, b.UsePacked(path, "key"), want)
	}
}
