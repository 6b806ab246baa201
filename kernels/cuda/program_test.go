//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// loop is the speculative step of the embedded model with its MTP module, made
// of device operations alone: draft tables in, draft tables out.
type loop struct {
	*runner
	spans         int
	b, shifted, d kernels.Batch
	next, drafts  kernels.Buf // I32 [spans, 1], [spans, drafts]
	carry, last   kernels.Buf // h' by slot, by span
	draftStats    kernels.Buf
}

func newLoop(r *runner, spans int) *loop {
	l := &loop{runner: r, spans: spans}
	batch := func(rows, logits, maxLen int) kernels.Batch {
		b, err := kernels.NewBatch(r.be, spans, rows, logits)
		require.NoError(r.t, err)
		b.MaxLen = maxLen
		return b
	}
	rows := spans * (drafts + 1)
	l.b, l.shifted, l.d = batch(rows, rows, drafts+1), batch(rows, spans, drafts+1), batch(spans, spans, 1)
	h := r.m.Config.HiddenSize
	l.next, l.drafts = r.alloc(kernels.I32, spans, 1), r.alloc(kernels.I32, spans, drafts)
	l.carry, l.last = r.alloc(kernels.BF16, spans, h), r.alloc(kernels.BF16, spans, h)
	l.draftStats = r.alloc(kernels.I32, spans, kernels.StatCols)
	slots := make([]int32, spans)
	for i := range slots {
		slots[i] = int32(i)
	}
	r.q.Write(l.b.Seq, packed(slots...))
	r.q.Write(l.d.Seq, packed(slots...))
	return l
}

// draft lets the module observe the kept rows of b and draft.
func (l *loop) draft(q kernels.Queue, b, shifted *kernels.Batch, kept, next, hidden kernels.Buf) {
	mtp := l.cs.Layer(len(l.m.Layers()))
	n := b.Spans
	q.Shift(shifted, b, kept, next)
	h := l.mtp.Forward(q, shifted, mtp, hidden)
	q.Gather(l.last.Top(n), h, shifted.Logit)
	q.Scatter(l.carry, l.last.Top(n), shifted.Seq)
}

// redraft proposes from carry, for all spans.
func (l *loop) redraft(q kernels.Queue) {
	mtp := l.cs.Layer(len(l.m.Layers()))
	for j := range drafts {
		top := l.draftStats.Columns(kernels.StatTop1, kernels.StatTop1+1)
		q.Stats(l.draftStats, l.mtp.Logits(q, l.carry), l.mtp.Vocab, false)
		q.Copy(l.drafts.Columns(j, j+1), top)
		if j+1 < drafts {
			q.Chain(&l.d, l.cs, 1+j, top, kernels.Buf{})
			q.Copy(l.carry, l.mtp.Forward(q, &l.d, mtp, l.carry))
		}
	}
}

// step records one turn.
func (l *loop) step(q kernels.Queue) {
	q.Chain(&l.b, l.cs, 0, l.next, l.drafts)
	out := l.m.Forward(q, &l.b, l.cs)
	q.Stats(l.stats.Top(l.b.Rows), out.Logits, l.m.Config.VocabSize, true)
	q.Accept(l.kept, l.next, kernels.RuleGreedy, &l.b, l.stats.Top(l.b.Rows))
	q.Commit(l.cs, &l.b, l.kept, kernels.Buf{})
	l.draft(q, &l.b, &l.shifted, l.kept, l.next, out.Hidden.Top(l.b.Rows))
	l.redraft(q)
}

// start empties the slots, takes the prompts in and makes the first drafts.
func (l *loop) start(prompt [][]int32) {
	for s, ids := range prompt {
		l.q.Reset(l.cs, s)
		out, b := l.pass(s, 0, ids)
		b.LogitRows = 1
		b.Logit = b.Logit.Top(1)
		sh, err := kernels.NewBatch(l.be, 1, len(ids), 1)
		require.NoError(l.t, err)
		next := l.next.Slice(s, s+1)
		l.q.Copy(next, l.stats.Slice(len(ids)-1, len(ids)).Columns(kernels.StatTop1, kernels.StatTop1+1))
		l.draft(l.q, &b, &sh, l.kept.Top(1), next, out.Hidden.Top(len(ids)))
	}
	l.redraft(l.q)
	require.NoError(l.t, l.q.Err())
}

// turn is what one step leaves for the host.
type turn struct{ kept, next, tokens, stats, drafts []int32 }

func (l *loop) look() turn {
	return turn{l.ints(l.kept), l.ints(l.next), l.ints(l.b.Token), l.ints(l.stats.Top(l.b.Rows)), l.ints(l.drafts)}
}

// plain decodes n tokens one row at a time; stats are those of each row.
func (l *loop) plain(prompt []int32, n int) (tokens []int32, stats [][]int32) {
	l.q.Reset(l.cs, 0)
	l.pass(0, 0, prompt)
	last := len(prompt) - 1
	tokens = []int32{l.ints(l.stats.Slice(last, last+1))[kernels.StatTop1]}
	for len(tokens) < n {
		l.pass(0, len(prompt)+len(tokens)-1, tokens[len(tokens)-1:])
		st := l.ints(l.stats.Top(1))
		stats = append(stats, st)
		tokens = append(tokens, st[kernels.StatTop1])
	}
	return tokens, stats
}

// TestCapturedProgram runs the speculative loop of the embedded model recorded
// step by step, captured as a graph and looked at after each replay, and
// replayed back to back. All give the same bits, and the tokens and logits of
// plain decoding.
func TestCapturedProgram(t *testing.T) {
	be := open(t)
	r := newRunner(t, be, embedded(t), 2)
	require.NotNil(t, r.mtp, "the embedded model has an MTP module")
	l := newLoop(r, 2)
	const turns = 40
	all := prompts(t)
	prompt := [][]int32{all[0][:min(61, len(all[0]))], all[1][:min(30, len(all[1]))]}
	begin := time.Now()
	const tokens = 120
	var want [2][]int32
	var rows [2][][]int32
	for s, p := range prompt {
		want[s], rows[s] = l.plain(p, tokens)
	}
	plain := time.Since(begin) / (2 * tokens)

	l.start(prompt)
	var direct []turn
	for range turns {
		l.step(r.q)
		direct = append(direct, l.look())
	}
	emitted, accepted := checkAgainstPlain(t, direct, want, rows)

	program, err := r.q.Capture(kernels.GraphKey{Name: "step", Spans: 2, Rows: l.b.Rows}, l.step)
	require.NoError(t, err)
	l.start(prompt)
	for i := range turns {
		r.q.Run(program)
		require.Equal(t, direct[i], l.look(), "turn %d", i)
	}
	l.start(prompt)
	begin = time.Now()
	for range turns {
		r.q.Run(program)
	}
	require.NoError(t, r.q.Err())
	replay := time.Since(begin) / turns
	require.Equal(t, direct[turns-1], l.look(), "after replays that nobody watched")
	l.start(prompt)
	begin = time.Now()
	for range turns {
		l.step(r.q)
	}
	require.NoError(t, r.q.Err())
	record := time.Since(begin) / turns
	require.Equal(t, direct[turns-1], l.look(), "recorded without looking")

	t.Logf("%d turns of 2 sequences and %d drafts: %d tokens emitted, accept length %.2f", turns, drafts, emitted, 1+float64(accepted)/float64(2*turns))
	t.Logf("plain step %v (1 row, with host), recorded step %v, replayed step %v (8 rows)", plain, record, replay)
	require.Positive(t, accepted)
	require.Less(t, accepted, 2*turns*drafts, "no draft was ever rejected: the test shows nothing")
}

// checkAgainstPlain holds each emitted token, and the statistics and logit hash
// of the row behind it, to plain decoding.
func checkAgainstPlain(t *testing.T, turns []turn, want [2][]int32, rows [2][][]int32) (emitted, accepted int) {
	var done [2]int
	for i, tn := range turns {
		for s := range 2 {
			require.Positive(t, tn.kept[s])
			accepted += int(tn.kept[s]) - 1
			for j := range int(tn.kept[s]) {
				if done[s]+1 >= len(want[s]) {
					break
				}
				row := s*(drafts+1) + j
				require.Equal(t, rows[s][done[s]], tn.stats[row*kernels.StatCols:(row+1)*kernels.StatCols], "turn %d, sequence %d, row %d", i, s, j)
				require.Equal(t, want[s][done[s]], tn.tokens[row], "turn %d, sequence %d, row %d", i, s, j)
				done[s]++
				emitted++
			}
		}
	}
	return emitted, accepted
}
