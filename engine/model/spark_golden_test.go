package model_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ref"
)

// sparkGolden are drafts of a DSpark module behind the tokens at some positions: logits
// of the places of each block, the tokens, and how sure the module is of each.
type sparkGolden struct {
	at, chain    []int32
	logits, sure []float32
}

// TestDSparkOfDeepseekV41 holds the module in a model's files to its equations, behind
// windows that are full and not.
func TestDSparkOfDeepseekV41(t *testing.T) {
	for _, name := range []string{"deepseek_v41", "deepseek_v41_published"} {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			require.NotEmpty(t, g.spark.at)
			be := ref.New()
			defer func() { require.NoError(t, be.Close()) }()
			ck, err := checkpoint.Open(filepath.Join("testdata", name))
			require.NoError(t, err)
			defer func() { require.NoError(t, ck.Close()) }()
			m, err := model.Load(be, model.Checkpoint{Checkpoint: ck}, model.Options{MaxTokens: 256, MTP: true})
			require.NoError(t, err)
			head, err := m.LoadDSpark("")
			require.NoError(t, err)
			require.Equal(t, len(g.spark.chain)/len(g.spark.at), head.Most())
			require.NoError(t, m.Reserve(256, 256, head.Taps()))
			size, v := head.Most(), m.Config.VocabSize
			for i, at := range g.spark.at {
				logits, chain, sure := sparkDrafts(t, be, m, head, g.ids[:at+1])
				require.Less(t, worst(logits, g.spark.logits[i*size*v:][:size*v], v), 1e-4)
				require.Equal(t, g.spark.chain[i*size:][:size], chain)
				for j, p := range sure {
					require.InDelta(t, g.spark.sure[i*size+j], p, 1e-4)
				}
			}
		})
	}
}

// What the publisher stores in 8 and 4 bits gives the same logits expanded into a file
// once, but for the tables of n-grams, which stay as they are; what is for images is
// left out. Tokens that don't fit the tables are refused.
func TestPublishedDeepseekV41(t *testing.T) {
	const dir = "testdata/deepseek_v41_published"
	ids := readGolden(t, filepath.Base(dir)).ids[:40]
	logits := func(cache string) []float32 {
		ck, err := checkpoint.Open(dir)
		require.NoError(t, err)
		defer func() { require.NoError(t, ck.Close()) }()
		require.Equal(t, []string{"image_newline", "vision.norm.weight"}, ck.Skipped())
		if cache != "" {
			require.True(t, ck.Expanded())
			require.NoError(t, ck.UseCache(t.Context(), cache))
			require.False(t, ck.Expanded())
			table, err := ck.Tensor("layers.1.engram.embed.weight")
			require.NoError(t, err)
			require.Equal(t, "F8_E4M3", table.Stored)
			require.Equal(t, int64(table.Len()), table.StoredSize())
		}
		be := ref.New()
		defer func() { require.NoError(t, be.Close()) }()
		m, err := model.Load(be, model.Checkpoint{Checkpoint: ck}, model.Options{MaxTokens: 256, MTP: true})
		require.NoError(t, err)
		head, err := m.LoadDSpark("")
		require.NoError(t, err)
		require.NoError(t, m.Reserve(256, 256, head.Taps()))
		out, _, _ := sparkDrafts(t, be, m, head, ids)
		return out
	}
	require.Equal(t, logits(""), logits(t.TempDir()))

	other := t.TempDir()
	require.NoError(t, os.CopyFS(other, os.DirFS(dir)))
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	for _, c := range []struct{ old, new, want string }{
		{`"engram_compressed_vocab_size": `, `"engram_compressed_vocab_size": 1`, "tokens say "},
		{`"engram_vocab_size": 50`, `"engram_vocab_size": 60`, "engram_num_embeddings[0] is 384; the primes from 60 on give a table of 434"},
	} {
		require.Contains(t, string(text), c.old)
		require.NoError(t, os.WriteFile(filepath.Join(other, "config.json"), []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o644))
		ck, err := checkpoint.Open(other)
		require.NoError(t, err)
		be := ref.New()
		_, err = model.Load(be, model.Checkpoint{Checkpoint: ck}, model.Options{MaxTokens: 256})
		require.ErrorContains(t, err, c.want)
		require.NoError(t, be.Close())
		require.NoError(t, ck.Close())
	}
}

// sparkDrafts drafts behind the last of ids, which the target has not seen.
func sparkDrafts(t *testing.T, be kernels.Backend, m *model.Model, head *model.DSparkHead, ids []int32) (logits []float32, chain []int32, sure []float64) {
	t.Helper()
	q, n := be.Queue(), len(m.Layers())
	caches, err := be.Caches(kernels.CacheSpec{Layers: append(m.Layers(), head.Layers()...), Slots: 2, Pages: 8, SlotPages: 8, MaxDraft: 8})
	require.NoError(t, err)
	batch, err := kernels.NewBatch(be, 1, 256, 256)
	require.NoError(t, err)
	kept, err := be.Alloc(kernels.Tables, kernels.I32, 1, 1)
	require.NoError(t, err)
	r := &runner{t: t, be: be, m: m, caches: caches, batch: batch, kept: kept}
	q.Reset(caches, 1)
	q.SetPages(caches, 1, 0, []int32{3, 1, 6, 2})
	net, err := head.New(256, 1)
	require.NoError(t, err)
	defer net.Close()
	layer := func(i int) kernels.Layer { return caches.Layer(n + i) }
	seen, pending := ids[:len(ids)-1], ids[len(ids)-1]
	b := r.tables(0, seen)
	out := m.Forward(q, &b, caches)
	net.Context(q, &b, layer, out.Taps[0])
	block := []int32{pending}
	for len(block) < head.Most() {
		block = append(block, head.Mask())
	}
	b = r.tables(len(seen), block)
	hidden := net.Forward(q, &b, layer)
	before, err := be.Alloc(kernels.Tables, kernels.I32, 1, 1)
	require.NoError(t, err)
	for i := range head.Most() {
		token := pending
		if i > 0 {
			token = chain[i-1]
		}
		q.Write(before, binary.LittleEndian.AppendUint32(nil, uint32(token)))
		row, confidence := net.Step(q, hidden.Slice(i, i+1), before)
		logits = append(logits, r.read(row)...)
		chain = append(chain, int32(argmax(logits[i*m.Config.VocabSize:])))
		sure = append(sure, head.Sure(r.read(confidence)[0]))
	}
	require.NoError(t, q.Err())
	return logits, chain, sure
}
