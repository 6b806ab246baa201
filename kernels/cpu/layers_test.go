package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// layerCase is one cached layer with random parameters, run over sequences whose
// inputs are a function of sequence and position.
type layerCase struct {
	*rig
	c         kernels.Caches
	full      kernels.Batch
	proj, out kernels.Buf
	in, width int // columns of proj and out
	op        func(b *kernels.Batch, dst, proj kernels.Buf)
	kept      kernels.Buf
	scale     float64
}

const (
	testSlots = 4
	testPages = 12 // of a slot
	testDraft = 9
	testScale = 0.1
)

func (l *layerCase) finish(spec kernels.LayerSpec, rows int) {
	var err error
	l.c, err = l.b.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{spec}, Slots: testSlots, Pages: testSlots * testPages,
		SlotPages: testPages, MaxDraft: testDraft, Snapshots: 1,
	})
	require.NoError(l.t, err)
	l.full = l.batch(testSlots, rows, rows)
	l.proj, l.out = l.alloc(kernels.BF16, rows, l.in), l.alloc(kernels.BF16, rows, l.width)
	l.kept = l.alloc(kernels.I32, testSlots, 1)
	for s := range testSlots {
		l.q.Reset(l.c, s)
		pages := make([]int32, testPages)
		for i := range pages {
			pages[i] = int32(i*testSlots + (s+i)%testSlots) // scattered
		}
		l.q.SetPages(l.c, s, 0, pages)
	}
	if l.scale == 0 {
		l.scale = 1
	}
}

type attnShape struct{ heads, kv, dim, rotary, first int }

func newAttnCase(t testing.TB, threads int, set string, s attnShape, gated bool) *layerCase {
	l := &layerCase{rig: newRig(t, threads, set)}
	qn, _ := l.vector(21, s.dim, 0.5)
	kn, _ := l.vector(22, s.dim, 0.5)
	spec := &kernels.AttnSpec{
		QHeads: s.heads, KVHeads: s.kv, HeadDim: s.dim, Scale: testScale, Gated: gated, Rotary: s.rotary, FirstKey: s.first,
		QNorm: kernels.Norm{W: qn, Eps: 1e-6, Centered: true}, KNorm: kernels.Norm{W: kn, Eps: 1e-6, Centered: true},
	}
	if s.rotary > 0 {
		spec.Rope = l.load(kernels.Table, false, part("rope", testPages*page, s.rotary, random(23, testPages*page*s.rotary, 0.6)))
	}
	l.width = s.heads * s.dim
	l.in = l.width + 2*s.kv*s.dim
	if gated {
		l.in += l.width
	}
	l.op = func(b *kernels.Batch, dst, proj kernels.Buf) { l.q.Attend(dst, proj, l.c.Layer(0), b, spec) }
	l.finish(kernels.LayerSpec{Kind: kernels.Attention, KVHeads: s.kv, HeadDim: s.dim}, 1000)
	return l
}

func newDeltaCase(t testing.TB, threads int, set string, kh, vh, kd, vd, conv int) *layerCase {
	l := &layerCase{rig: newRig(t, threads, set)}
	ch := 2*kh*kd + vh*vd
	norm, _ := l.vector(31, vd, 1)
	aLog, _ := l.vector(32, vh, 0.5)
	bias, _ := l.vector(33, vh, 0.5)
	spec := &kernels.DeltaSpec{
		KHeads: kh, VHeads: vh, KDim: kd, VDim: vd, Conv: conv, ALog: aLog, DtBias: bias,
		Taps: l.load(kernels.Taps, false, part("taps", ch, conv, random(34, ch*conv, 0.6))),
		Norm: kernels.Norm{W: norm, Eps: 1e-6}, Gate: kernels.SiLU,
	}
	l.in, l.width = ch+vh*vd+2*vh, vh*vd
	l.op = func(b *kernels.Batch, dst, proj kernels.Buf) { l.q.Delta(dst, proj, l.c.Layer(0), b, spec) }
	l.finish(kernels.LayerSpec{Kind: kernels.Delta, KHeads: kh, VHeads: vh, KDim: kd, VDim: vd, Conv: conv}, 1000)
	return l
}

// input is the row of a sequence at a position; a rejected row differs.
func (l *layerCase) input(seq, pos int, rejected bool) []uint16 {
	seed := uint64(seq*100000 + pos)
	if rejected {
		seed += 1 << 40
	}
	return random(seed, l.in, l.scale)
}

// todo is a span to run: kept of its rows are committed.
type todo struct{ slot, seq, start, n, kept int }

// step runs a batch and returns the output rows of the kept rows, by span.
func (l *layerCase) step(spans ...todo) [][][]uint16 {
	var chunks []piece
	var rows []uint16
	kept := make([]int32, len(spans))
	for i, s := range spans {
		chunks = append(chunks, piece{s.slot, s.start, s.n})
		for j := range s.n {
			rows = append(rows, l.input(s.seq, s.start+j, j >= s.kept)...)
		}
		kept[i] = int32(s.kept)
	}
	b := l.lay(l.full, chunks...)
	l.q.Write(l.proj.Top(b.Rows), raw16(rows))
	l.q.Write(l.kept.Top(len(spans)), rawI32(kept))
	l.op(&b, l.out.Top(b.Rows), l.proj.Top(b.Rows))
	l.q.Commit(l.c, &b, l.kept.Top(len(spans)), kernels.Buf{})
	all := l.get16(l.out.Top(b.Rows))
	var out [][][]uint16
	at := 0
	for _, s := range spans {
		var o [][]uint16
		for j := range s.n {
			if j < s.kept {
				o = append(o, all[(at+j)*l.width:(at+j+1)*l.width])
			}
		}
		at += s.n
		out = append(out, o)
	}
	return out
}

// whole runs a sequence as one prefill in slot 0.
func (l *layerCase) whole(seq, n int) [][]uint16 {
	l.q.Reset(l.c, 0)
	return l.step(todo{0, seq, 0, n, n})[0]
}

// single runs a sequence one row at a time.
func (l *layerCase) single(seq, n int) (out [][]uint16) {
	l.q.Reset(l.c, 1)
	for i := range n {
		out = append(out, l.step(todo{1, seq, i, 1, 1})[0]...)
	}
	return out
}

// mixed runs several sequences at once in random chunks, some of which are
// verifications with rejected tails.
func (l *layerCase) mixed(r *rand.Rand, seqs, n int) [][][]uint16 {
	out := make([][][]uint16, seqs)
	for s := range seqs {
		l.q.Reset(l.c, s)
	}
	for {
		var spans []todo
		for s := range seqs {
			at := len(out[s])
			if at >= n || r.IntN(4) == 0 {
				continue
			}
			d := todo{slot: s, seq: s, start: at}
			switch r.IntN(4) {
			case 0: // prefill piece
				d.n = min(1+r.IntN(150), n-at)
				d.kept = d.n
			case 1:
				d.n, d.kept = 1, 1
			default: // verification
				d.n = 1 + r.IntN(testDraft+1)
				d.kept = min(1+r.IntN(d.n), n-at)
			}
			spans = append(spans, d)
		}
		if len(spans) == 0 {
			done := true
			for s := range seqs {
				done = done && len(out[s]) >= n
			}
			if done {
				return out
			}
			continue
		}
		r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		for i, o := range l.step(spans...) {
			out[spans[i].slot] = append(out[spans[i].slot], o...)
		}
	}
}

// invariance holds a layer to the bits of the first way that want was computed.
func invariance(t *testing.T, length int, make func(threads int, set string) *layerCase) {
	const seqs = 3
	var want [][][]uint16
	for _, set := range sets() {
		for _, threads := range []int{1, 2, 3} {
			l := make(threads, set)
			if want == nil {
				for s := range seqs {
					want = append(want, l.whole(s, length))
				}
				require.Equal(t, want[0], l.single(0, length), "%s, one by one", set)
			}
			for s := range seqs {
				require.Equal(t, want[s], l.whole(s, length), "%s, %d threads, prefill of %d", set, threads, s)
			}
			got := l.mixed(rand.New(rand.NewPCG(uint64(threads), 3)), seqs, length)
			for s := range seqs {
				for i := range want[s] {
					require.Equal(t, want[s][i], got[s][i], "%s, %d threads, sequence %d, position %d", set, threads, s, i)
				}
			}
		}
	}
}

func TestAttendInvariance(t *testing.T) {
	for _, s := range []attnShape{{4, 2, 64, 16, 0}, {6, 2, 24, 8, 0}, {1, 1, 16, 0, 1}, {16, 2, 128, 128, 0}, {8, 1, 32, 32, 1}} {
		for _, gated := range []bool{false, true} {
			t.Run(fmt.Sprint(s, gated), func(t *testing.T) {
				t.Parallel()
				invariance(t, 70+8000/s.dim/s.heads, func(threads int, set string) *layerCase { return newAttnCase(t, threads, set, s, gated) })
			})
		}
	}
}

func TestAttendInvarianceSplits(t *testing.T) {
	s := attnShape{2, 1, 32, 16, 0}
	invariance(t, 600, func(threads int, set string) *layerCase { return newAttnCase(t, threads, set, s, true) })
}

func TestDeltaInvariance(t *testing.T) {
	for _, c := range [][5]int{{2, 4, 64, 64, 4}, {1, 3, 16, 24, 4}, {3, 3, 8, 16, 2}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			invariance(t, 200, func(threads int, set string) *layerCase {
				return newDeltaCase(t, threads, set, c[0], c[1], c[2], c[3], c[4])
			})
		})
	}
}
