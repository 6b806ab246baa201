package experiments

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/fakedev"
)

// exportOptions continue three short sequences of the embedded model.
func exportOptions(t *testing.T) HiddenOptions {
	ids := filepath.Join(t.TempDir(), "ids.jsonl")
	require.NoError(t, os.WriteFile(ids, []byte("[13, 87, 198, 4, 9]\n\n[700]\n[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]\n"), 0o644))
	return HiddenOptions{
		Model: "embedded", Backend: "cpu", IDs: ids, Length: 512, New: 80, IgnoreEOS: true, Taps: []int{4, 20}, TopK: 3,
		Sequences: 16, Chunk: 512, Rows: 1024, ShardBytes: 1 << 30, Out: filepath.Join(t.TempDir(), "out"),
	}
}

// export runs Hidden and returns the tensors of its only shard, by name, and the
// shard's bytes.
func export(t *testing.T, o HiddenOptions) (*HiddenResult, map[string]checkpoint.Tensor, []byte) {
	t.Helper()
	res, err := Hidden(context.Background(), o, nil)
	require.NoError(t, err)
	require.Len(t, res.Files, 1)
	raw, err := os.ReadFile(filepath.Join(o.Out, res.Files[0].Name))
	require.NoError(t, err)
	require.Equal(t, res.Files[0].Bytes, int64(len(raw)))
	tensors, err := checkpoint.ReadSafetensors(raw)
	require.NoError(t, err)
	named := map[string]checkpoint.Tensor{}
	for _, x := range tensors {
		named[x.Name] = x
	}
	return res, named, raw
}

func tensorBytes(t *testing.T, x checkpoint.Tensor, from, n int) []byte {
	t.Helper()
	out := make([]byte, n)
	_, err := x.ReadAt(out, int64(from))
	require.NoError(t, err)
	return out
}

func tensorInts(t *testing.T, x checkpoint.Tensor) []int32 {
	t.Helper()
	n := 1
	for _, d := range x.Shape {
		n *= d
	}
	out, raw := make([]int32, n), tensorBytes(t, x, 0, 4*n)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// What is exported is what a forward pass over the tokens gives, continuations
// included: final states, taps and largest logits; and the continuation is the
// greedy one.
func TestHiddenIsTheForward(t *testing.T) {
	o := exportOptions(t)
	res, x, _ := export(t, o)
	require.Equal(t, 3, res.Sequences)
	require.Equal(t, 3*o.New, res.Continued)
	starts, prompts, tokens := tensorInts(t, x["starts"]), tensorInts(t, x["prompts"]), tensorInts(t, x["tokens"])
	require.Equal(t, []int32{0, 85, 166, 259}, starts)
	require.Equal(t, []int32{5, 1, 13}, prompts)
	require.Equal(t, []int32{13, 87, 198, 4, 9}, tokens[:5])
	tops, values := tensorInts(t, x["top_ids"]), x["top_logits"]

	be, err := cpu.New(cpu.Options{})
	require.NoError(t, err)
	defer be.Close()
	e, err := registry.Open("embedded")
	require.NoError(t, err)
	defer e.Close()
	m, err := model.Load(be, e.Source, model.Options{})
	require.NoError(t, err)
	f, err := newFeeder(m, 128)
	require.NoError(t, err)
	defer f.close()
	require.NoError(t, m.Reserve(128, 128, o.Taps))
	h, w := m.Config.HiddenSize, m.Config.HiddenSize*len(o.Taps)
	require.Equal(t, []int{259, w}, x["taps"].Shape)
	for i := range prompts {
		ids := tokens[starts[i]:starts[i+1]]
		f.reset()
		for from := 0; from < len(ids); from += 64 {
			part := ids[from:min(from+64, len(ids))]
			out := f.forward(from, part, 0)
			for name, b := range map[string]kernels.Buf{"hidden": out.Hidden, "taps": out.Taps[0]} {
				want := make([]byte, b.Bytes())
				require.NoError(t, be.Queue().Read(want, b).Wait())
				width := map[string]int{"hidden": h, "taps": w}[name]
				require.Equal(t, want, tensorBytes(t, x[name], 2*width*(int(starts[i])+from), len(want)), "%s of sequence %d", name, i)
			}
			require.NoError(t, f.read(out.Logits))
			for j := range part {
				at, row := int(starts[i])+from+j, f.rows[j*m.Config.VocabSize:][:m.Config.VocabSize]
				for k, top := range topLogits(row, o.TopK) {
					require.Equal(t, top.ID, tops[at*o.TopK+k])
					raw := tensorBytes(t, values, 4*(at*o.TopK+k), 4)
					require.Equal(t, math.Float32bits(top.Logit), binary.LittleEndian.Uint32(raw))
				}
				if next := from + j + 1; next >= int(prompts[i]) && next < len(ids) {
					require.Equal(t, tops[at*o.TopK], ids[next], "the continuation is the first choice")
				}
			}
		}
	}
}

// The same file comes out whatever runs together and however it is cut; and a text
// that is read gives the rows that writing it gave.
func TestHiddenSameBits(t *testing.T) {
	o := exportOptions(t)
	o.Temperature, o.Seed = 1, 7
	_, want, whole := export(t, o)
	again := o
	again.Out, again.Threads, again.Chunk, again.Rows, again.Sequences = filepath.Join(t.TempDir(), "again"), 1, 3, 8, 2
	_, _, same := export(t, again)
	require.Equal(t, whole, same)

	forced := o
	forced.IDs, forced.New, forced.Out = filepath.Join(t.TempDir(), "forced.jsonl"), 0, filepath.Join(t.TempDir(), "forced")
	starts, tokens := tensorInts(t, want["starts"]), tensorInts(t, want["tokens"])
	var lines []byte
	for i := range len(starts) - 1 {
		lines = append(lines, '[')
		for j, id := range tokens[starts[i]:starts[i+1]] {
			if j > 0 {
				lines = append(lines, ',')
			}
			lines = appendInt(lines, id)
		}
		lines = append(lines, ']', '\n')
	}
	require.NoError(t, os.WriteFile(forced.IDs, lines, 0o644))
	res, got, _ := export(t, forced)
	require.Zero(t, res.Continued)
	for _, name := range []string{"tokens", "hidden", "taps", "top_ids", "top_logits"} {
		n := 4 * 259
		require.Equal(t, tensorBytes(t, want[name], 0, n), tensorBytes(t, got[name], 0, n), name)
	}
}

func appendInt(b []byte, v int32) []byte {
	if v >= 10 {
		b = appendInt(b, v/10)
	}
	return append(b, byte('0'+v%10))
}

// Full shards are written as soon as they are full, each with whole sequences, and
// the manifest lists them. A directory that holds an export is left alone.
func TestHiddenShards(t *testing.T) {
	o := exportOptions(t)
	o.New, o.ShardBytes, o.Taps, o.TopK = 2, 1, nil, 0
	res, err := Hidden(context.Background(), o, nil)
	require.NoError(t, err)
	require.Len(t, res.Files, 3)
	require.Equal(t, []HiddenFile{{"hidden-00002.safetensors", 1, 3, res.Files[1].Bytes}}, res.Files[1:2])
	require.FileExists(t, filepath.Join(o.Out, "export.json"))
	_, err = Hidden(context.Background(), o, nil)
	require.ErrorContains(t, err, "holds an export already")
}

// An export that is interrupted keeps what was finished.
func TestHiddenInterrupted(t *testing.T) {
	o := exportOptions(t)
	o.Sequences = 1
	ctx, stop := context.WithCancel(context.Background())
	res, err := Hidden(ctx, o, func(text string) {
		if text != "hidden 0 of 3 sequences, 0 tokens" {
			stop()
		}
	})
	stop()
	require.ErrorIs(t, err, ErrInterrupted)
	require.Equal(t, 1, res.Sequences)
	require.FileExists(t, filepath.Join(o.Out, "hidden-00001.safetensors"))
	require.FileExists(t, filepath.Join(o.Out, "export.json"))
}

// The rows are read through the queue: on a device whose memory the host can't see,
// they are the same.
func TestHiddenOnDevice(t *testing.T) {
	o := exportOptions(t)
	o.New = 6
	_, want, _ := export(t, o)
	inner, err := cpu.New(cpu.Options{})
	require.NoError(t, err)
	be := fakedev.New(inner)
	defer be.Close()
	e, err := registry.Open("embedded")
	require.NoError(t, err)
	defer e.Close()
	m, err := model.Load(be, e.Source, model.Options{})
	require.NoError(t, err)
	prompts, err := o.sequences(e)
	require.NoError(t, err)
	o.Out = filepath.Join(t.TempDir(), "device")
	w, err := newHiddenWriter(o, e, m)
	require.NoError(t, err)
	require.NoError(t, o.run(context.Background(), e, m, 32, prompts, w, nil))
	for _, x := range w.tensors() {
		require.Equal(t, tensorBytes(t, want[x.Name], 0, len(x.Bytes)), x.Bytes, x.Name)
	}
}

// What is wrong with a request is named.
func TestHiddenRefuses(t *testing.T) {
	text := func(s string) string {
		name := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(name, []byte(s), 0o644))
		return name
	}
	for want, change := range map[string]func(o *HiddenOptions){
		"give one of prompts, text and ids":                func(o *HiddenOptions) { o.Text = o.IDs },
		"new is -1; it must be 0..":                        func(o *HiddenOptions) { o.New = -1 },
		"sequences is 0; it must be 1..":                   func(o *HiddenOptions) { o.Sequences = 0 },
		"temperature":                                      func(o *HiddenOptions) { o.Temperature = -1 },
		"shards of 0 bytes":                                func(o *HiddenOptions) { o.ShardBytes = 0 },
		"top-k is 1000000; it must be 0..1024":             func(o *HiddenOptions) { o.TopK = 1000000 },
		"tap 0 is after layer 21; the model has 20 layers": func(o *HiddenOptions) { o.Taps = []int{21} },
		"sequence line-1 has 5 tokens and is to be continued by 5000; the context of 4096": func(o *HiddenOptions) { o.New = 5000 },
		":1: id 4096 at position 1 is outside the vocabulary 0..4095":                      func(o *HiddenOptions) { o.IDs = text("[1,4096]") },
		":2: no token ids":       func(o *HiddenOptions) { o.IDs = text("[1]\n[]") },
		"want an array":          func(o *HiddenOptions) { o.IDs = text("{}") },
		": no token ids":         func(o *HiddenOptions) { o.IDs = text("\n") },
		"is not valid UTF-8":     func(o *HiddenOptions) { o.IDs, o.Text = "", text("\xff") },
		"is empty":               func(o *HiddenOptions) { o.IDs, o.Text = "", text("") },
		"no such file":           func(o *HiddenOptions) { o.IDs = "nowhere" },
		"not a directory":        func(o *HiddenOptions) { o.Out = filepath.Join(text("x"), "y") },
		"not a known name":       func(o *HiddenOptions) { o.Model = "nothing" },
		"backend \"tpu\" is not": func(o *HiddenOptions) { o.Backend = "tpu" },
	} {
		o := exportOptions(t)
		change(&o)
		_, err := Hidden(context.Background(), o, nil)
		require.ErrorContains(t, err, want)
	}
}
