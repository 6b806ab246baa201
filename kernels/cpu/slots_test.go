package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// A snapshot restored in another slot continues with the bits of the original.
func TestSaveRestore(t *testing.T) {
	for _, at := range []int{64, 128} {
		l := newDeltaCase(t, 2, "", 2, 4, 32, 32, 4)
		want := l.whole(1, 200)
		l.q.Reset(l.c, 1)
		l.step(todo{1, 1, 0, at - 1, at - 1})
		l.step(todo{1, 1, at - 1, 3, 1}) // the border itself is verified
		l.q.Save(l.c, 1, 0)
		l.step(todo{1, 1, at, 5, 5})
		l.q.Reset(l.c, 2)
		l.step(todo{2, 0, 0, 70, 70}) // something else was there
		l.q.Restore(l.c, 2, 0, at)
		require.Equal(t, int32(at), l.getI32(l.c.Len())[2])
		require.Equal(t, want[at:], l.step(todo{2, 1, at, 200 - at, 200 - at})[0])
	}
}

// Rows that are not finite change nothing for the rows that don't see them: the
// rejected tail of a verification, later rows of the same prefill, an earlier
// owner of a page.
func TestPoisonStaysAway(t *testing.T) {
	for _, s := range []attnShape{{4, 2, 64, 16, 0}, {2, 1, 24, 8, 1}} {
		l := newAttnCase(t, 2, "", s, true)
		want := l.whole(1, 150)
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			l.q.Reset(l.c, 0)
			l.poisoned(bad, 0, 150, 0)
			l.q.Reset(l.c, 0)
			var got [][]uint16
			for len(got) < 150 {
				n := min(7, 150-len(got))
				got = append(got, l.poisoned(bad, len(got), n+2, n)...)
			}
			require.Equal(t, want, got)
		}
	}
}

// poisoned runs n rows of sequence 1 in slot 0, of which those from kept on are
// bad, and commits kept.
func (l *layerCase) poisoned(bad float32, start, n, kept int) [][]uint16 {
	var rows []uint16
	for i := range n {
		in := l.input(1, start+i, false)
		if i >= kept {
			for j := range in {
				in[j] = vec.BF16(bad)
			}
		}
		rows = append(rows, in...)
	}
	b := l.lay(l.full, piece{0, start, n})
	l.q.Write(l.proj.Top(n), raw16(rows))
	l.q.Write(l.kept.Top(1), rawI32([]int32{int32(kept)}))
	l.op(&b, l.out.Top(n), l.proj.Top(n))
	if kept > 0 {
		l.q.Commit(l.c, &b, l.kept.Top(1), kernels.Buf{})
	}
	all := l.get16(l.out.Top(n))
	var out [][]uint16
	for i := range kept {
		out = append(out, all[i*l.width:(i+1)*l.width])
	}
	return out
}

func TestCommitRules(t *testing.T) {
	l := newDeltaCase(t, 1, "", 1, 1, 16, 16, 4)
	b := l.lay(l.full, piece{0, 0, testDraft + 2})
	l.q.Write(l.kept.Top(1), rawI32([]int32{3}))
	l.q.Commit(l.c, &b, l.kept.Top(1), kernels.Buf{})
	require.ErrorContains(t, l.q.Err(), "commit: span 0 of 11 rows keeps 3; more than 10 rows are kept whole")
}

func TestSlotTwice(t *testing.T) {
	for _, l := range []*layerCase{newDeltaCase(t, 1, "", 1, 1, 16, 16, 4), newAttnCase(t, 2, "", attnShape{1, 1, 16, 0, 0}, false)} {
		b := l.lay(l.full, piece{1, 0, 2}, piece{1, 2, 2})
		l.op(&b, l.out.Top(4), l.proj.Top(4))
		require.ErrorContains(t, l.q.Err(), "span 1 is the second of slot 1 in its batch")
	}
}

// A long span that is dropped leaves the committed window as it was.
func TestDroppedPrefill(t *testing.T) {
	l := newDeltaCase(t, 2, "", 2, 2, 16, 16, 4)
	want := l.whole(1, 200)
	l.q.Reset(l.c, 0)
	got := l.step(todo{0, 1, 0, 100, 100})[0]
	got = append(got, l.step(todo{0, 1, 100, 2, 2})[0]...)
	b := l.lay(l.full, piece{0, 102, 90})
	var rows []uint16
	for i := range 90 {
		rows = append(rows, l.input(9, i, true)...)
	}
	l.q.Write(l.proj.Top(90), raw16(rows))
	l.op(&b, l.out.Top(90), l.proj.Top(90))
	got = append(got, l.step(todo{0, 1, 102, 98, 98})[0]...)
	require.Equal(t, want, got)
}

func TestCounters(t *testing.T) {
	m := newModel(t, 2, 1)
	before := m.rig.b.Work()
	m.record(m.q)
	m.record(m.q)
	w := m.rig.b.Work().Sub(before)
	require.Equal(t, kernels.Counters{
		Ops: 28, Launches: w.Launches, MatMulRows: 14,
		MACs:        2 * hidden * (384 + 128 + 392 + 128 + 192 + 96 + 500),
		WeightBytes: 2 * 2 * hidden * (384 + 128 + 416 + 128 + 192 + 96 + 512),
		AttendRows:  2, KVTokens: 1 + 2, DeltaRows: 2, LogitRows: 2,
	}, w)
}
