package kerneltest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// testTables checks the operations that rewrite the tables of a batch on the
// device, against their definitions.
func testTables(t *testing.T, s suite) {
	t.Run("Chain", func(t *testing.T) { testChain(t, s) })
	t.Run("Accept", func(t *testing.T) { testAccept(t, s) })
	t.Run("Shift", func(t *testing.T) { testShift(t, s) })
	t.Run("Commit", func(t *testing.T) { testCommit(t, s) })
}

// layout is a batch read back: active spans only, by index.
type layout struct {
	seq, start, off map[int]int32
	// tokens, pos and parent by span.
	tokens, pos, parent map[int][]int32
	logit               []int32
}

// layout reads a batch and checks what must hold of any: rows of idle spans are
// idle, idle rows have a valid token.
func (r *rig) layout(b kernels.Batch, vocab int32) layout {
	r.t.Helper()
	seq, start, length, off := r.ints(b.Seq), r.ints(b.Start), r.ints(b.Len), r.ints(b.RowOff)
	token, pos, parent, span := r.ints(b.Token), r.ints(b.Pos), r.ints(b.Parent), r.ints(b.Span)
	l := layout{
		seq: map[int]int32{}, start: map[int]int32{}, off: map[int]int32{},
		tokens: map[int][]int32{}, pos: map[int][]int32{}, parent: map[int][]int32{},
		logit: r.ints(b.Logit),
	}
	owner := make([]int32, b.Rows)
	for i := range owner {
		owner[i] = -1
	}
	for i, n := range length {
		if n == 0 {
			continue
		}
		l.seq[i], l.start[i], l.off[i] = seq[i], start[i], off[i]
		l.tokens[i], l.pos[i], l.parent[i] = token[off[i]:off[i]+n], pos[off[i]:off[i]+n], parent[off[i]:off[i]+n]
		for j := range n {
			owner[off[i]+j] = int32(i)
		}
	}
	for i, s := range span {
		if owner[i] < 0 {
			require.Negative(r.t, s, "row %d is idle", i)
		} else {
			require.Equal(r.t, owner[i], s, "row %d", i)
		}
		require.True(r.t, token[i] >= 0 && token[i] < vocab, "row %d has token %d", i, token[i])
	}
	return l
}

// attentionCaches returns caches of one small attention layer, with all pages of
// each slot set.
func (r *rig) attentionCaches(slots, slotPages, maxDraft int) kernels.Caches {
	c, err := r.be.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{{Kind: kernels.Attention, KVHeads: 1, HeadDim: 32}},
		Slots:  slots, Pages: slots * slotPages, SlotPages: slotPages, MaxDraft: maxDraft,
	})
	require.NoError(r.t, err)
	for s := range slots {
		pages := make([]int32, slotPages)
		for i := range pages {
			pages[i] = int32(s*slotPages + i)
		}
		r.q.SetPages(c, s, 0, pages)
	}
	return c
}

// batch allocates the tables of a batch, filled with nonsense.
func (r *rig) batch(spans, rows, logitRows int) kernels.Batch {
	b, err := kernels.NewBatch(r.be, spans, rows, logitRows)
	require.NoError(r.t, err)
	for _, t := range []kernels.Buf{b.Seq, b.Start, b.Len, b.RowOff, b.Token, b.Pos, b.Parent, b.Span, b.Logit} {
		x := make([]int32, t.Rows)
		for i := range x {
			x[i] = 3
		}
		r.q.Write(t, packInts(x))
	}
	return b
}

// setLength commits n rows of an empty slot that no layer has run over.
func (r *rig) setLength(c kernels.Caches, slot, n int) {
	b := r.batch(1, n, 1)
	r.q.Write(b.Seq, packInts([]int32{int32(slot)}))
	r.writeChain(b, 0, n)
	r.q.Commit(c, &b, r.putInts(1, 1, int32(n)), kernels.Buf{})
}

// writeChain fills the tables of a batch of one span of n rows, Seq aside.
func (r *rig) writeChain(b kernels.Batch, start, n int) {
	pos, parent := make([]int32, n), make([]int32, n)
	for i := range n {
		pos[i], parent[i] = int32(start+i), int32(i-1)
	}
	r.q.Write(b.Start, packInts([]int32{int32(start)}))
	r.q.Write(b.Len, packInts([]int32{int32(n)}))
	r.q.Write(b.RowOff, packInts([]int32{0}))
	r.q.Write(b.Token, packInts(make([]int32, n)))
	r.q.Write(b.Span, packInts(make([]int32, n)))
	r.q.Write(b.Pos, packInts(pos))
	r.q.Write(b.Parent, packInts(parent))
}

func testChain(t *testing.T, s suite) {
	r := s.rig(t, 30)
	c := r.attentionCaches(5, 4, 3)
	r.setLength(c, 1, 63)
	r.setLength(c, 4, 130)
	require.Equal(t, []int32{0, 63, 0, 0, 130}, r.ints(c.Len()))

	// Four spans, the second idle; room for all logits, two rows to spare.
	b := r.batch(4, 14, 13)
	r.q.Write(b.Seq, packInts([]int32{4, -1, 1, 2}))
	tokens := r.putInts(4, 3, 0, 10, 0, 0, 11, 0, 0, 12, 0, 0, 13, 0)
	rest := r.putInts(4, 4, 0, 20, 21, 0, 0, 22, 23, 0, 0, 24, 25, 0, 0, 26, 27, 0)
	r.q.Chain(&b, c, 0, tokens.Columns(1, 2), rest.Columns(1, 3))
	l := r.layout(b, 100)
	require.Equal(t, map[int]int32{0: 4, 2: 1, 3: 2}, l.seq)
	require.Equal(t, map[int]int32{0: 130, 2: 63, 3: 0}, l.start)
	require.Equal(t, map[int][]int32{0: {10, 20, 21}, 2: {12, 24, 25}, 3: {13, 26, 27}}, l.tokens)
	require.Equal(t, map[int][]int32{0: {130, 131, 132}, 2: {63, 64, 65}, 3: {0, 1, 2}}, l.pos)
	require.Equal(t, map[int][]int32{0: {-1, 0, 1}, 2: {-1, 0, 1}, 3: {-1, 0, 1}}, l.parent)
	want := make([]int32, 13)
	for i := range want {
		want[i] = -1
	}
	for _, off := range l.off {
		for j := range int32(3) {
			want[off+j] = off + j
		}
	}
	require.Equal(t, want, l.logit, "every row, at its own index")

	// Spans that end before their first negative token.
	short := r.putInts(4, 2, -1, 21, 22, 23, 24, -1, 26, 27)
	r.q.Chain(&b, c, 0, tokens.Columns(1, 2), short)
	l = r.layout(b, 100)
	require.Equal(t, map[int][]int32{0: {10}, 2: {12, 24}, 3: {13, 26, 27}}, l.tokens)
	require.Equal(t, map[int][]int32{0: {130}, 2: {63, 64}, 3: {0, 1, 2}}, l.pos)
	for i := range want {
		want[i] = -1
	}
	for s, off := range l.off {
		for j := range int32(len(l.tokens[s])) {
			want[off+j] = off + j
		}
	}
	require.Equal(t, want, l.logit)

	// No room for all: the last row of each span. One row per span, ahead.
	b = r.batch(4, 12, 4)
	r.q.Write(b.Seq, packInts([]int32{4, -1, 1, 2}))
	r.q.Chain(&b, c, 0, tokens.Columns(1, 2), rest.Columns(1, 3))
	l = r.layout(b, 100)
	require.Equal(t, []int32{l.off[0] + 2, -1, l.off[2] + 2, l.off[3] + 2}, l.logit)
	b = r.batch(4, 4, 4)
	r.q.Write(b.Seq, packInts([]int32{4, -1, 1, 2}))
	r.q.Chain(&b, c, 2, tokens.Columns(1, 2), kernels.Buf{})
	l = r.layout(b, 100)
	require.Equal(t, map[int][]int32{0: {132}, 2: {65}, 3: {2}}, l.pos)
	require.Equal(t, map[int]int32{0: 132, 2: 65, 3: 2}, l.start)
	require.Equal(t, map[int][]int32{0: {10}, 2: {12}, 3: {13}}, l.tokens)
	require.Equal(t, []int32{l.off[0], -1, l.off[2], l.off[3]}, l.logit)
}

// spansOf writes a batch of chains, one per entry of tokens (nil is idle), all
// rows wanted, laid out one behind the other.
func (r *rig) spansOf(b kernels.Batch, seq, start []int32, tokens ...[]int32) {
	length, off := make([]int32, b.Spans), make([]int32, b.Spans)
	token, pos, parent := make([]int32, b.Rows), make([]int32, b.Rows), make([]int32, b.Rows)
	span, logit := make([]int32, b.Rows), make([]int32, b.LogitRows)
	for i := range span {
		span[i] = -1
	}
	for i := range logit {
		logit[i] = -1
	}
	at := int32(0)
	for i, x := range tokens {
		length[i], off[i] = int32(len(x)), at
		for j, id := range x {
			token[at], pos[at], parent[at], span[at] = id, start[i]+int32(j), int32(j-1), int32(i)
			if int(at) < len(logit) {
				logit[at] = at
			}
			at++
		}
	}
	for _, w := range []struct {
		dst kernels.Buf
		x   []int32
	}{
		{b.Seq, seq}, {b.Start, start}, {b.Len, length}, {b.RowOff, off}, {b.Token, token},
		{b.Pos, pos}, {b.Parent, parent}, {b.Span, span}, {b.Logit, logit},
	} {
		r.q.Write(w.dst, packInts(w.x))
	}
}

func testAccept(t *testing.T, s suite) {
	r := s.rig(t, 31)
	b := r.batch(6, 16, 16)
	r.spansOf(b, []int32{0, 1, -1, 2, 3, 4}, make([]int32, 6),
		[]int32{5, 6, 7, 8}, []int32{5, 6, 7, 8}, nil, []int32{9}, []int32{5, 6, 7}, []int32{1, 2})
	// Accept all, accept one, idle, no draft, accept none, a match behind a
	// mismatch doesn't count.
	choices := []int32{6, 7, 8, 50, 6, 70, 8, 51, 52, 60, 7, 53, 3, 2, 0, 0}
	target := make([]int32, 16*3)
	for i, c := range choices {
		target[3*i+1] = c
	}
	kept, next := r.putInts(6, 1, 9, 9, 9, 9, 9, 9), r.putInts(6, 1, 9, 9, 9, 9, 9, 9)
	r.q.Accept(kept, next, kernels.RuleGreedy, &b, r.putInts(16, 3, target...).Columns(1, 3))
	require.Equal(t, []int32{4, 2, 0, 1, 1, 1}, r.ints(kept))
	got := r.ints(next)
	got[2] = 0 // no meaning in an idle span
	require.Equal(t, []int32{50, 70, 0, 52, 60, 3}, got)
}

func testShift(t *testing.T, s suite) {
	r := s.rig(t, 32)
	src, dst := r.batch(5, 14, 14), r.batch(5, 14, 5)
	r.spansOf(src, []int32{3, 1, -1, 0, 2}, []int32{62, 10, 0, 0, 7},
		[]int32{5, 6, 7, 8}, []int32{15, 16, 17}, nil, []int32{9}, []int32{1, 2})
	kept, next := r.putInts(5, 1, 4, 2, 0, 1, 0), r.putInts(5, 1, 50, 51, 52, 53, 54)
	r.q.Shift(&dst, &src, kept, next)
	l := r.layout(dst, 100)
	require.Equal(t, map[int]int32{0: 3, 1: 1, 3: 0}, l.seq)
	require.Equal(t, map[int]int32{0: 63, 1: 11, 3: 1}, l.start)
	require.Equal(t, map[int]int32{0: 0, 1: 4, 3: 7}, l.off, "rows keep their indices")
	require.Equal(t, map[int][]int32{0: {6, 7, 8, 50}, 1: {16, 51}, 3: {53}}, l.tokens)
	require.Equal(t, map[int][]int32{0: {63, 64, 65, 66}, 1: {11, 12}, 3: {1}}, l.pos)
	require.Equal(t, map[int][]int32{0: {-1, 0, 1, 2}, 1: {-1, 0}, 3: {-1}}, l.parent)
	require.Equal(t, []int32{3, 5, -1, 7, -1}, l.logit)
	require.Equal(t, []int32{3, 1, -1, 0, -1}, r.ints(dst.Seq), "nothing kept is no slot")
	r.layout(src, 100) // unchanged enough to be a batch
}

func testCommit(t *testing.T, s suite) {
	r := s.rig(t, 33)
	c := r.attentionCaches(4, 2, 3)
	b := r.batch(4, 24, 24)
	long := make([]int32, 11)
	r.spansOf(b, []int32{2, 0, -1, 1}, []int32{0, 0, 0, 0}, []int32{5, 6, 7, 8}, []int32{5, 6, 7}, nil, long)
	r.q.Commit(c, &b, r.putInts(4, 1, 2, 0, 0, 11), kernels.Buf{})
	require.Equal(t, []int32{0, 11, 2, 0}, r.ints(c.Len()))
	r.q.Reset(c, 1)
	require.Equal(t, []int32{0, 0, 2, 0}, r.ints(c.Len()))
	r.q.Restore(c, 3, -1, 64)
	require.Equal(t, []int32{0, 0, 2, 64}, r.ints(c.Len()), "restore without a recurrent layer")
}
