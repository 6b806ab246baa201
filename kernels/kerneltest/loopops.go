package kerneltest

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// testLoopOps holds the operations of a LoopQueue to what package kernels says of them.
func testLoopOps(t *testing.T, s suite) {
	r := s.rig(t, 120)
	be, ok := r.be.(kernels.Looper)
	if !ok {
		t.Skip("the backend has no loops")
	}
	ring, err := be.Ring(4, 8)
	if err != nil {
		t.Skip(err)
	}
	q := r.q.(kernels.LoopQueue)
	t.Run("Post", func(t *testing.T) { testPost(newSubRig(t, r), q, ring) })
	t.Run("Limit", func(t *testing.T) { testLimit(newSubRig(t, r), q) })
	t.Run("Halt", func(t *testing.T) { testHalt(newSubRig(t, r), q) })
	t.Run("Draw", func(t *testing.T) { testDraw(newSubRig(t, r), q) })
}

// testPost posts more than the ring has room for, taken in time.
func testPost(r *rig, q kernels.LoopQueue, ring kernels.Ring) {
	var last kernels.Entry
	for i := range int32(9) {
		q.Post(ring, r.putInts(2, 3, i, 1, 2, 3, 4, 5).Columns(0, 2), r.putInts(1, 1, 7))
		var e kernels.Entry
		for looks := 0; ; looks++ {
			there, err := ring.Take(&e)
			require.NoError(r.t, err)
			if there {
				break
			}
			require.Less(r.t, looks, 1<<30)
		}
		require.Equal(r.t, []int32{i, 1, 3, 4, 7}, e.Data)
		require.GreaterOrEqual(r.t, e.At, last.At)
		require.GreaterOrEqual(r.t, e.Work.Ops, last.Work.Ops)
		last = e
	}
	there, err := ring.Take(&last)
	require.NoError(r.t, err)
	require.False(r.t, there)
	require.NoError(r.t, ring.Close())
}

func testLimit(r *rig, q kernels.LoopQueue) {
	drafts := r.putInts(5, 4, 9, 1, 2, 3, 9, 4, 5, 6, 9, 7, 8, 10, 9, 11, 12, 13, 9, 14, 15, 16)
	q.Limit(drafts.Columns(1, 4), r.putInts(5, 1, 100, 3, 1, 0, 4), r.putInts(5, 1, 3, 3, 3, 3, 1))
	require.Equal(r.t, []int32{9, 1, 2, 3, 9, 4, 5, -1, 9, -1, -1, -1, 9, -1, -1, -1, 9, 14, -1, -1}, r.ints(drafts))
}

func testHalt(r *rig, q kernels.LoopQueue) {
	const n, k, stops = 200, 3, 4
	draw := func(count, below int) []int32 {
		x := make([]int32, count)
		for i := range x {
			x[i] = int32(r.rnd.IntN(below)) - 1
		}
		return x
	}
	slots, left, next, drafts, ends := draw(n, 8), draw(n, 7), draw(n, 9), draw(n*k, 9), draw(n*stops, 30)
	kept := draw(n, k+1)
	for i := range kept {
		kept[i]++
	}
	s, l := r.putInts(n, 1, slots...), r.putInts(n, 1, left...)
	q.Halt(s, l, r.putInts(n, 1, kept...), r.putInts(n, 1, next...), r.putInts(n, k, drafts...), r.putInts(n, stops, ends...))
	for i := range n {
		slots[i], left[i] = kernels.HaltRow(slots[i], left[i], kept[i], next[i], drafts[i*k:][:k], ends[i*stops:][:stops])
	}
	require.Equal(r.t, slots, r.ints(s))
	require.Equal(r.t, left, r.ints(l))
}

// testDraw draws rows of several spans, one of which takes the argmax.
func testDraw(r *rig, q kernels.LoopQueue) {
	const vocab, width, spans, rows = 5003, 5120, 3, 11
	b := r.batch(spans, rows, rows)
	r.spansOf(b, []int32{0, 1, 2}, []int32{40, 0, 900}, []int32{1, 2, 3, 4}, []int32{5, 6}, []int32{7, 8, 9, 10})
	logits := r.normal(rows*width, 3)
	logits[17], logits[width+1] = float32(math.Inf(-1)), 60
	var how []int32
	for i, temperature := range []float32{0.7, 0, 1.9} {
		row := [kernels.DrawCols]int32{
			kernels.DrawTemperature: int32(math.Float32bits(temperature)), kernels.DrawMinP: int32(math.Float32bits(0.01 * float32(i))),
			kernels.DrawSeedLo: int32(r.rnd.Uint32()), kernels.DrawSeedHi: int32(r.rnd.Uint32()), kernels.DrawChoice: int32(i),
		}
		how = append(how, row[:]...)
	}
	x := r.put(kernels.F32, rows, width, logits)
	stats := r.alloc(kernels.I32, rows, kernels.StatCols)
	q.Stats(stats, x, vocab, false)
	dst := r.alloc(kernels.I32, rows, 2)
	q.Draw(dst.Columns(1, 2), stats, x, r.putInts(spans, kernels.DrawCols, how...), &b, vocab)
	span, pos, logit, scratch := r.ints(b.Span), r.ints(b.Pos), r.ints(b.Logit), make([]float64, vocab)
	var want, got []int32
	for i, row := range logit {
		id := int32(-1)
		if row >= 0 {
			line := logits[i*width:][:vocab]
			top := int32(slices.Index(line, slices.Max(line)))
			id = kernels.DrawRow(scratch, line, top, int(pos[row])+1, how[span[row]*kernels.DrawCols:][:kernels.DrawCols])
		}
		want, got = append(want, id), append(got, r.ints(dst.Slice(i, i+1))[1])
	}
	require.Contains(r.t, want, int32(-1), "no row is idle")
	require.Equal(r.t, want, got)
}
