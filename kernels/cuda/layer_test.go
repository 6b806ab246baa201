//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ref"
)

// deviation returns ‖have-want‖ / ‖want‖ over all rows, and of the worst row.
func deviation(have, want []float32, cols int) (all, worst float64) {
	var diff, size float64
	for at := 0; at < len(want); at += cols {
		var d, s float64
		for i := at; i < at+cols; i++ {
			e := float64(have[i]) - float64(want[i])
			d += e * e
			s += float64(want[i]) * float64(want[i])
		}
		diff, size = diff+d, size+s
		worst = max(worst, math.Sqrt(d/s))
	}
	return math.Sqrt(diff / size), worst
}

// text is a prompt of n ids from the held-out ones.
func text(t *testing.T, n int) []int32 {
	var ids []int32
	for _, p := range prompts(t) {
		ids = append(ids, p...)
	}
	require.GreaterOrEqual(t, len(ids), n)
	return ids[:n]
}

// TestEmbeddedLayer runs one Gated DeltaNet layer and one attention layer of the
// embedded model, each between embedding and head, on the device and on ref. The
// bounds are some roundings to BF16 (2^-9 each, at most) deep.
func TestEmbeddedLayer(t *testing.T) {
	be := open(t)
	src := embedded(t)
	ids := text(t, 150)
	for _, l := range []struct {
		name, prefix string
		kind         checkpoint.LayerKind
	}{
		{"gated delta net", "model.layers.0.", checkpoint.LinearAttention},
		{"attention", "model.layers.3.", checkpoint.FullAttention},
	} {
		t.Run(l.name, func(t *testing.T) {
			judge := ref.New()
			defer func() { require.NoError(t, judge.Close()) }()
			one := oneLayer{src, l.prefix, l.kind}
			want, _ := newRunner(t, judge, one, 1).pass(0, 0, ids)
			r := newRunner(t, be, one, 1)
			got, _ := r.pass(0, 0, ids)
			for _, c := range []struct {
				what      string
				got, want kernels.Buf
			}{{"hidden", got.Hidden.Top(len(ids)), want.Hidden.Top(len(ids))}, {"logits", got.Logits.Top(len(ids)), want.Logits.Top(len(ids))}} {
				oracle := &runner{t: t, q: judge.Queue()}
				all, worst := deviation(r.floats(c.got), oracle.floats(c.want), int(c.got.Cols))
				t.Logf("%s: relative error %.2e, worst row %.2e", c.what, all, worst)
				require.Less(t, all, 0.006, c.what)
				require.Less(t, worst, 0.02, c.what)
			}
		})
	}
}

// TestEmbeddedModel runs the whole embedded model on a prompt, compares it with
// ref, and holds chunks of every size to the same bits.
func TestEmbeddedModel(t *testing.T) {
	be := open(t)
	src := embedded(t)
	ids := text(t, 150)
	judge := ref.New()
	defer func() { require.NoError(t, judge.Close()) }()
	oracle := newRunner(t, judge, src, 1)
	want, _ := oracle.pass(0, 0, ids)
	r := newRunner(t, be, src, 2)
	got, _ := r.pass(0, 0, ids)
	v := r.m.Config.VocabSize
	logits, truth := r.floats(got.Logits.Top(len(ids))), oracle.floats(want.Logits.Top(len(ids)))
	all, worst := deviation(logits, truth, v)
	whole := r.ints(r.stats.Top(len(ids)))
	best := oracle.ints(oracle.stats.Top(len(ids)))
	differ := 0
	for i := range ids {
		if whole[i*kernels.StatCols] != best[i*kernels.StatCols] {
			differ++
			row := truth[i*v : (i+1)*v]
			t.Logf("position %d: argmax %d, the oracle's %d, its margin %.4f", i, whole[i*kernels.StatCols], best[i*kernels.StatCols],
				row[best[i*kernels.StatCols]]-row[whole[i*kernels.StatCols]])
		}
	}
	t.Logf("logits: relative error %.2e, worst row %.2e; %d of %d argmax differ", all, worst, differ, len(ids))
	require.Less(t, all, 0.03)
	require.LessOrEqual(t, differ, len(ids)/20)

	for _, chunk := range []int{1, 7, 64, 65} {
		begin := time.Now()
		r.q.Reset(r.cs, 1)
		for at := 0; at < len(ids); at += chunk {
			to := min(at+chunk, len(ids))
			r.pass(1, at, ids[at:to])
			part := r.ints(r.stats.Top(to - at))
			require.Equal(t, whole[at*kernels.StatCols:to*kernels.StatCols], part, "chunk of %d at %d", chunk, at)
		}
		t.Logf("chunks of %d: equal bits, %.2f ms a pass", chunk, float64(time.Since(begin).Microseconds())/1e3/float64((len(ids)+chunk-1)/chunk))
	}
	t.Logf("held: %v, work: %+v", be.Memory(), be.Work())
}

// TestRecordingAllocatesNothing checks that recording a pass makes no garbage.
func TestRecordingAllocatesNothing(t *testing.T) {
	be := open(t)
	r := newRunner(t, be, embedded(t), 1)
	b := r.write(0, 0, text(t, 4))
	var out model.Output
	n := testing.AllocsPerRun(20, func() {
		out = r.m.Forward(r.q, &b, r.cs)
		r.q.Stats(r.stats.Top(4), out.Logits, r.m.Config.VocabSize, true)
	})
	require.NoError(t, r.q.Err())
	require.Zero(t, n)
}
