package kerneltest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// The loop's bucket: three sequences and an idle span, three drafts.
const (
	loopSpans = 4
	loopK     = 3
	loopRows  = loopSpans * (loopK + 1)
	loopPages = 8
)

// loop is a device loop of draft, verification, acceptance and redraft.
type loop struct {
	*toy
	r  *rig
	cs kernels.Caches
	// b is the verification, shifted its successor view, step a drafter's
	// single rows.
	b, shifted, step  kernels.Batch
	next, drafts      kernels.Buf // I32 [spans, 1] and [spans, k]
	kept              kernels.Buf
	stats, draftStats kernels.Buf
}

// testLoop decodes speculatively in a program that only the device sees, and
// requires the tokens and logit hashes of plain decoding.
func testLoop(t *testing.T, s suite) {
	prompts := [][]int32{make([]int32, 61), make([]int32, 5), make([]int32, 126)}
	for i, p := range prompts {
		for j := range p {
			p[j] = int32((7*i + 13*j + j*j) % toyVocab)
		}
	}
	const tokens = 150
	r := s.rig(t, 110)
	model := r.toy(200)
	var want []*transcript
	for _, p := range prompts {
		want = append(want, r.decode(model, p, tokens))
	}
	for _, captured := range []bool{false, true} {
		t.Run(fmt.Sprintf("captured=%t", captured), func(t *testing.T) {
			r := newSubRig(t, r)
			testLoopOf(r, model, prompts, want, captured)
		})
	}
}

// newSubRig reports to a subtest on the backend of its parent.
func newSubRig(t *testing.T, r *rig) *rig {
	sub := *r
	sub.t = t
	return &sub
}

// transcript is what a sequence emitted, with the hash of the logits behind each
// token.
type transcript struct {
	tokens []int32
	hashes []uint64
}

// decode decodes n tokens plainly, one row at a time.
func (r *rig) decode(model *toy, prompt []int32, n int) *transcript {
	r.t.Helper()
	cs := r.loopCaches(model, 1)
	b, stats, out := r.batch(1, 1, 1), r.alloc(kernels.I32, 1, kernels.StatCols), &transcript{}
	kept := r.putInts(1, 1, 1)
	pages := make([]int32, loopPages)
	for i := range pages {
		pages[i] = int32(i)
	}
	r.q.SetPages(cs, 0, 0, pages)
	token := prompt[0]
	for at := 0; len(out.tokens) < n; at++ {
		r.spansOf(b, []int32{0}, []int32{int32(at)}, []int32{token})
		model.target(r.q, cs, &b, stats)
		r.q.Commit(cs, &b, kept, kernels.Buf{})
		st := readStats(r.ints(stats))
		if at+1 < len(prompt) {
			token = prompt[at+1]
			continue
		}
		token = st.top1
		out.tokens, out.hashes = append(out.tokens, token), append(out.hashes, st.hash)
	}
	require.NoError(r.t, cs.Close())
	return out
}

func (r *rig) loopCaches(model *toy, slots int) kernels.Caches {
	cs, err := r.be.Caches(kernels.CacheSpec{
		Layers: model.specs(), Slots: slots, Pages: slots * loopPages, SlotPages: loopPages, MaxDraft: loopK,
	})
	require.NoError(r.t, err)
	return cs
}

// loop prepares the loop's memory; slots have interleaved pages.
func (r *rig) loop(model *toy, slots []int32) *loop {
	l := &loop{
		toy: model, r: r, cs: r.loopCaches(model, loopSpans),
		b: r.batch(loopSpans, loopRows, loopRows), shifted: r.batch(loopSpans, loopRows, loopSpans),
		step: r.batch(loopSpans, loopSpans, loopSpans),
		next: r.alloc(kernels.I32, loopSpans, 1), drafts: r.alloc(kernels.I32, loopSpans, loopK), kept: r.alloc(kernels.I32, loopSpans, 1),
		stats: r.alloc(kernels.I32, loopRows, kernels.StatCols), draftStats: r.alloc(kernels.I32, loopSpans, kernels.StatCols),
	}
	for s := range loopSpans {
		pages := make([]int32, loopPages)
		for i := range pages {
			pages[i] = int32(i*loopSpans + s)
		}
		r.q.SetPages(l.cs, s, 0, pages)
	}
	r.q.Write(l.b.Seq, packInts(slots))
	r.q.Write(l.step.Seq, packInts(slots))
	return l
}

// prefill takes the prompts in, whole, and makes the first drafts.
func (l *loop) prefill(slots []int32, prompts [][]int32) {
	r, rows := l.r, 0
	for _, p := range prompts {
		rows += len(p)
	}
	b, shifted := r.batch(loopSpans, rows, loopSpans), r.batch(loopSpans, rows, loopSpans)
	r.spansOf(b, slots, make([]int32, loopSpans), prompts...)
	last, kept, at := make([]int32, loopSpans), make([]int32, loopSpans), 0
	for i, p := range prompts {
		at += len(p)
		last[i], kept[i] = int32(at-1), int32(len(p))
		if len(p) == 0 {
			last[i] = -1
		}
	}
	r.q.Write(b.Logit, packInts(last))
	r.q.Write(l.kept, packInts(kept))
	stats := l.stats.Top(loopSpans)
	l.target(r.q, l.cs, &b, stats)
	r.q.Copy(l.next, stats.Columns(kernels.StatTop1, kernels.StatTop1+1))
	r.q.Commit(l.cs, &b, l.kept, kernels.Buf{})
	l.redraft(r.q, &b, &shifted)
}

// redraft lets the drafter observe what was committed of b and draft k tokens.
func (l *loop) redraft(q kernels.Queue, b, shifted *kernels.Batch) {
	top := l.draftStats.Columns(kernels.StatTop1, kernels.StatTop1+1)
	q.Shift(shifted, b, l.kept, l.next)
	l.drafter(q, l.cs, shifted, l.hidden.Top(b.Rows), l.draftStats)
	q.Copy(l.drafts.Columns(0, 1), top)
	for j := 1; j < loopK; j++ {
		// The chosen rows' states are in sel.
		q.Chain(&l.step, l.cs, j, l.drafts.Columns(j-1, j), kernels.Buf{})
		l.drafter(q, l.cs, &l.step, l.sel.Top(loopSpans), l.draftStats)
		q.Copy(l.drafts.Columns(j, j+1), top)
	}
}

// iterate records one turn of the loop.
func (l *loop) iterate(q kernels.Queue) {
	q.Chain(&l.b, l.cs, 0, l.next, l.drafts)
	l.target(q, l.cs, &l.b, l.stats)
	q.Accept(l.kept, l.next, kernels.RuleGreedy, &l.b, l.stats)
	q.Commit(l.cs, &l.b, l.kept, kernels.Buf{})
	l.redraft(q, &l.b, &l.shifted)
}

func testLoopOf(r *rig, model *toy, prompts [][]int32, want []*transcript, captured bool) {
	t := r.t
	slots := []int32{2, 0, -1, 3}
	spans := [][]int32{prompts[0], prompts[1], nil, prompts[2]}
	expect := []*transcript{want[0], want[1], nil, want[2]}
	l := r.loop(model, slots)
	l.prefill(slots, spans)
	turn := func() { l.iterate(r.q) }
	if captured {
		p, err := r.q.Capture(kernels.GraphKey{Name: "loop", Spans: loopSpans, Rows: loopRows}, l.iterate)
		require.NoError(t, err)
		turn = func() { r.q.Run(p) }
	}
	done := make([]int, loopSpans) // tokens of expect that were seen
	check := func(s int, token int32, hash uint64) {
		require.Equal(t, expect[s].tokens[done[s]], token, "span %d, token %d", s, done[s])
		if hash != 0 && !r.o.Float64 {
			require.Equal(t, expect[s].hashes[done[s]], hash, "span %d, logits of token %d", s, done[s])
		}
		done[s]++
	}
	for s, id := range r.ints(l.next) {
		if spans[s] != nil {
			check(s, id, 0)
		}
	}
	var accepted, rejected, crossed int
	for range 28 {
		turn()
		tokens, stats, off := r.ints(l.b.Token), r.rows(l.stats), r.ints(l.b.RowOff)
		next := r.ints(l.next)
		for s, n := range r.ints(l.kept) {
			if spans[s] == nil {
				require.Zero(t, n, "the idle span")
				continue
			}
			before := len(spans[s]) + done[s] - 1
			if n <= loopK && before/kernels.WindowTokens != (before+loopK)/kernels.WindowTokens {
				crossed++
			}
			accepted += int(n) - 1
			rejected += loopK + 1 - int(n)
			for j := range n {
				id := next[s]
				if j+1 < n {
					id = tokens[off[s]+j+1]
				}
				check(s, id, readStats(unpackInts(stats[off[s]+j])).hash)
			}
		}
	}
	t.Logf("accepted %d, rejected %d, window borders crossed with a rejection %d", accepted, rejected, crossed)
	require.Positive(t, accepted, "no draft was ever accepted: the test shows nothing")
	require.Positive(t, rejected, "no draft was ever rejected: the test shows nothing")
	require.Positive(t, crossed, "no rejection in a span across a window border")
	blindTurns(l, turn, spans, expect)
	require.NoError(t, l.cs.Close())
}

// blindTurns runs three turns without looking and then checks where the
// sequences stand.
func blindTurns(l *loop, turn func(), spans [][]int32, expect []*transcript) {
	r := l.r
	for range 3 {
		turn()
	}
	length, next, seq := r.ints(l.cs.Len()), r.ints(l.next), r.ints(l.b.Seq)
	for s, p := range spans {
		if p == nil {
			continue
		}
		n := int(length[seq[s]]) - len(p)
		require.Equal(r.t, expect[s].tokens[n], next[s], "span %d after turns that nobody watched", s)
	}
}
