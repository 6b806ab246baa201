package model_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ref"
)

// runner feeds a model one sequence and collects logits.
type runner struct {
	t      *testing.T
	be     kernels.Backend
	m      *model.Model
	mtp    *model.MTP
	caches kernels.Caches
	batch  kernels.Batch
	kept   kernels.Buf
	out    kernels.Buf // of the MTP module's last pass
}

func newRunner(t *testing.T, be kernels.Backend, dir string) *runner {
	t.Helper()
	ck, err := checkpoint.Open(filepath.Join("testdata", dir))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ck.Close()) })
	m, err := model.Load(be, model.Checkpoint{Checkpoint: ck}, model.Options{MaxTokens: 256, MTP: true})
	require.NoError(t, err)
	var taps [][]int
	layers := m.Layers()
	if l, ok := m.MTPLayer(); ok {
		layers = append(layers, l)
		head, err := m.LoadMTP("")
		require.NoError(t, err)
		taps = [][]int{head.Taps()}
	}
	if len(taps) == 0 || taps[0] == nil {
		taps = nil
	}
	require.NoError(t, m.Reserve(256, 256, taps...))
	caches, err := be.Caches(kernels.CacheSpec{Layers: layers, Slots: 2, Pages: 8, SlotPages: 8, MaxDraft: 8})
	require.NoError(t, err)
	batch, err := kernels.NewBatch(be, 1, 256, 256)
	require.NoError(t, err)
	kept, err := be.Alloc(kernels.Tables, kernels.I32, 1, 1)
	require.NoError(t, err)
	mtp, err := m.MTP(256, 256)
	require.NoError(t, err)
	r := &runner{t: t, be: be, m: m, mtp: mtp, caches: caches, batch: batch, kept: kept}
	be.Queue().Reset(caches, 1)
	be.Queue().SetPages(caches, 1, 0, []int32{3, 1, 6, 2})
	return r
}

// tables writes a span of ids at start; logits lists every row.
func (r *runner) tables(start int, ids []int32) kernels.Batch {
	q, n := r.be.Queue(), len(ids)
	b := r.batch.Prefix(1, n, n)
	b.MaxLen = n
	seq := func(f func(i int) int32) []byte {
		var out []byte
		for i := range n {
			out = binary.LittleEndian.AppendUint32(out, uint32(f(i)))
		}
		return out
	}
	one := func(v int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }
	q.Write(b.Seq, one(1))
	q.Write(b.Start, one(start))
	q.Write(b.Len, one(n))
	q.Write(b.RowOff, one(0))
	q.Write(b.Token, seq(func(i int) int32 { return ids[i] }))
	q.Write(b.Pos, seq(func(i int) int32 { return int32(start + i) }))
	q.Write(b.Parent, seq(func(i int) int32 { return int32(i - 1) }))
	q.Write(b.Span, seq(func(int) int32 { return 0 }))
	q.Write(b.Logit, seq(func(i int) int32 { return int32(i) }))
	return b
}

// run feeds ids from start on and returns their logits rows, and the MTP
// module's if next (the ids one token on) is given.
func (r *runner) run(start int, ids, next []int32) (logits, mtp []float32) {
	q := r.be.Queue()
	b := r.tables(start, ids)
	out := r.m.Forward(q, &b, r.caches)
	logits = r.read(out.Logits)
	q.Write(r.kept, binary.LittleEndian.AppendUint32(nil, uint32(len(ids))))
	q.Commit(r.caches, &b, r.kept, kernels.Buf{})
	if next != nil {
		var taps kernels.Buf
		if len(out.Taps) > 0 {
			taps = out.Taps[0].Top(len(next))
		}
		hidden := r.mtp.Features(q, out.Hidden.Top(len(next)), taps)
		mb := r.tables(start+1, next)
		h := r.mtp.Forward(q, &mb, r.caches.Layer(len(r.m.Layers())), hidden)
		mtp, r.out = r.read(r.mtp.Logits(q, h)), h
	}
	require.NoError(r.t, q.Err())
	return logits, mtp
}

func (r *runner) read(b kernels.Buf) []float32 {
	raw := make([]byte, b.Bytes())
	require.NoError(r.t, r.be.Queue().Read(raw, b).Wait())
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

type golden struct {
	ids, chain        []int32 // chain: drafts of the MTP module behind the last row
	logits, mtp, bf16 []float32
	spark             sparkGolden
}

func readGolden(t *testing.T, dir string) golden {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", dir, "golden.safetensors"))
	require.NoError(t, err)
	tensors, err := checkpoint.ReadSafetensors(raw)
	require.NoError(t, err)
	var g golden
	for _, x := range tensors {
		switch x.Name {
		case "logits":
			g.logits, err = x.Float32s()
		case "logits_bf16":
			g.bf16, err = x.Float32s()
		case "mtp_logits":
			g.mtp, err = x.Float32s()
		case "ids":
			g.ids = int32s(x.Bytes())
		case "mtp_chain":
			g.chain = int32s(x.Bytes())
		case "spark_at":
			g.spark.at = int32s(x.Bytes())
		case "spark_chain":
			g.spark.chain = int32s(x.Bytes())
		case "spark_logits":
			g.spark.logits, err = x.Float32s()
		case "spark_sure":
			g.spark.sure, err = x.Float32s()
		}
		require.NoError(t, err)
	}
	return g
}

func int32s(b []byte) (out []int32) {
	for ; len(b) > 0; b = b[4:] {
		out = append(out, int32(binary.LittleEndian.Uint32(b)))
	}
	return out
}

// drafts continues the MTP module behind the n rows of its last pass, whose last
// logits are given, with its own tokens and hidden states.
func (r *runner) drafts(n, k int, last []float32) []int32 {
	q := r.be.Queue()
	hidden, err := r.be.Alloc(kernels.Activations, kernels.BF16, 1, r.mtp.Hidden)
	require.NoError(r.t, err)
	q.Copy(hidden, r.out.Slice(n-1, n))
	var choices kernels.Buf
	if words := r.mtp.Choices(); words > 0 {
		choices, err = r.be.Alloc(kernels.Tables, kernels.I32, 1, words)
		require.NoError(r.t, err)
		q.Copy(choices, r.mtp.Chosen(n).Slice(n-1, n))
	}
	out := []int32{int32(argmax(last))}
	for len(out) < k {
		b := r.tables(n+len(out), out[len(out)-1:])
		r.mtp.Reuse(choices)
		h := r.mtp.Forward(q, &b, r.caches.Layer(len(r.m.Layers())), hidden)
		q.Copy(hidden, h)
		out = append(out, int32(argmax(r.read(r.mtp.Logits(q, h)))))
	}
	return out
}

func argmax(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}

// worst returns the largest |have-want| over a row, relative to the row's
// largest |want|.
func worst(have, want []float32, vocab int) float64 {
	w := 0.0
	for r := 0; r < len(want); r += vocab {
		top, diff := 0.0, 0.0
		for i := r; i < r+vocab; i++ {
			top = max(top, math.Abs(float64(want[i])))
			diff = max(diff, math.Abs(float64(have[i])-float64(want[i])))
		}
		w = max(w, diff/top)
	}
	return w
}

// goldens are tiny models of transformers; those of deepseek_v41, which the installed
// version lacks, are of the published equations in NumPy (make_v41_goldens.py), one of
// them stored as the publisher stores it.
var goldens = []string{"llama", "llama3_scaled", "qwen3", "qwen3_5", "qwen3_moe", "qwen3_next", "qwen3_5_moe", "glm4_moe", "deepseek_v3", "deepseek_v3_no_rank", "deepseek_v32", "glm_moe_dsa", "qwen4_exp", "deepseek_v4", "deepseek_v41", "deepseek_v41_published"}

// TestRefAgainstTransformers holds the float64 backend to transformers' float32
// logits at every position, within 1e-4 of the row's largest.
func TestRefAgainstTransformers(t *testing.T) {
	for _, name := range goldens {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			be := ref.New()
			defer func() { require.NoError(t, be.Close()) }()
			r := newRunner(t, be, name)
			var next []int32
			if g.mtp != nil {
				next = g.ids[1:]
			}
			logits, mtp := r.run(0, g.ids, next)
			require.Len(t, logits, len(g.logits))
			w := worst(logits, g.logits, r.m.Config.VocabSize)
			t.Logf("largest deviation %.2g of the row's largest logit", w)
			require.Less(t, w, 1e-4)
			if g.mtp != nil {
				require.Len(t, mtp, len(g.mtp))
				w := worst(mtp, g.mtp, r.m.Config.VocabSize)
				t.Logf("MTP: largest deviation %.2g", w)
				require.Less(t, w, 1e-4)
				if g.chain != nil {
					v := r.m.Config.VocabSize
					require.Equal(t, g.chain, r.drafts(len(next), len(g.chain), mtp[len(mtp)-v:]), "draft chain")
				}
			}
		})
	}
}
