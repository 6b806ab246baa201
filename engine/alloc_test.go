package engine_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

func bytesOf(s []int32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), 4*len(s)) }

// Recording and running a forward, its statistics and the commit allocate
// nothing: tables go up, statistics come down, everything between is handles.
func TestForwardAllocatesNothing(t *testing.T) {
	t.Run("hybrid", func(t *testing.T) { forwardAllocatesNothing(t, tinyCPU(t)) })
	for _, name := range []string{"qwen3_5_moe", "glm_moe_dsa", "qwen4_exp", "deepseek_v4"} {
		t.Run(name, func(t *testing.T) { forwardAllocatesNothing(t, load(t, newCPU(t), family(t, name))) })
	}
}

func forwardAllocatesNothing(t *testing.T, m *model.Model) {
	t.Helper()
	be := m.Backend()
	const spans, rows = 2, 6
	require.NoError(t, m.Reserve(rows, rows))
	caches, err := be.Caches(kernels.CacheSpec{Layers: m.Layers(), Slots: spans, Pages: 12, SlotPages: 6, MaxDraft: 4})
	require.NoError(t, err)
	defer func() { require.NoError(t, caches.Close()) }()
	b, err := kernels.NewBatch(be, spans, rows, rows)
	require.NoError(t, err)
	alloc := func(r, c int) kernels.Buf {
		buf, err := be.Alloc(kernels.Tables, kernels.I32, r, c)
		require.NoError(t, err)
		return buf
	}
	first, rest, kept, stats := alloc(spans, 1), alloc(spans, 2), alloc(spans, 1), alloc(rows, kernels.StatCols)
	q := be.Queue()
	q.Write(b.Seq, bytesOf([]int32{0, 1}))
	for s := range int32(spans) {
		q.Reset(caches, int(s))
		q.SetPages(caches, int(s), 0, []int32{6 * s, 6*s + 1, 6*s + 2, 6*s + 3, 6*s + 4, 6*s + 5})
	}
	ids, drafts, keep := []int32{3, 4}, []int32{5, 6, 7, 8}, []int32{2, 3}
	host := make([]int32, rows*kernels.StatCols)
	step := func() {
		q.Write(first, bytesOf(ids))
		q.Write(rest, bytesOf(drafts))
		q.Write(kept, bytesOf(keep))
		q.Chain(&b, caches, 0, first, rest)
		out := m.Forward(q, &b, caches)
		q.Stats(stats, out.Logits, m.Config.VocabSize, true)
		q.Commit(caches, &b, kept, kernels.Buf{})
		if err := q.Read(bytesOf(host), stats).Wait(); err != nil {
			t.Fatal(err)
		}
		ids[0], drafts[1] = host[kernels.StatTop1], host[kernels.StatCols]
	}
	for range 3 {
		step()
	}
	// 70 steps of 2 or 3 tokens each: window, page and key borders are crossed.
	require.Zero(t, testing.AllocsPerRun(70, step))
	require.NotZero(t, host[kernels.StatHashLo])
}

// An engine step allocates what its records keep and the drafts and spans of
// the step, a bounded number for each sequence that does not grow with the
// sequence.
func TestStepAllocations(t *testing.T) {
	m := tinyCPU(t)
	for _, n := range []int{1, 4} {
		r := newRig(t, m, engine.Config{MaxSequences: n}, strategy(t, m, "mtp"))
		r.e.Cancel(r.submit(engine.Request{ID: "x", Prompt: prompt(4, 1), MaxNew: 1}))
		for i := range n {
			r.submit(engine.Request{ID: string(rune('a' + i)), Prompt: prompt(20, i), MaxNew: 290, IgnoreStop: true, Drafter: "mtp", K: 3})
		}
		step := func() {
			if _, err := r.e.Step(); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			step()
		}
		early := testing.AllocsPerRun(15, step)
		for range 20 {
			step()
		}
		late := testing.AllocsPerRun(15, step)
		t.Logf("%d sequences: %.1f allocations a step, %.1f later", n, early, late)
		require.LessOrEqual(t, early, float64(stepAllocs+n*seqAllocs))
		require.LessOrEqual(t, late, float64(stepAllocs+n*seqAllocs))
		for _, s := range r.out {
			r.e.Cancel(s.seq)
		}
		r.close()
	}
}

// The bounds: for the step, and for each sequence in it (seen: 10 and 12).
const (
	stepAllocs = 12
	seqAllocs  = 13
)
