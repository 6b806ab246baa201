package kerneltest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// testCapture checks that a captured program is what recording again would be.
func testCapture(t *testing.T, s suite) {
	t.Run("Replay", func(t *testing.T) { testReplay(t, s) })
	t.Run("State", func(t *testing.T) { testReplayState(t, s) })
	t.Run("NoHost", func(t *testing.T) { testNoHost(t, s) })
	t.Run("BadShape", func(t *testing.T) { testBadShape(t, s) })
}

func testReplay(t *testing.T, s suite) {
	r := s.rig(t, 100)
	const rows = 6
	w, head, n := r.paired(96, 64), r.matrix(130, 96), r.norm(64, true)
	x, mid := r.alloc(kernels.BF16, rows, 64), r.alloc(kernels.BF16, rows, 96)
	logits, stats := r.alloc(kernels.F32, rows, 130), r.alloc(kernels.I32, rows, kernels.StatCols)
	body := func(q kernels.Queue) {
		q.MatMul(mid, w, x, kernels.Linear{In: n, Act: kernels.SwiGLU})
		q.MatMul(logits, head, mid, kernels.Linear{})
		q.Stats(stats, logits, 130, true)
	}
	before := r.be.Work().Ops
	p, err := r.q.Capture(kernels.GraphKey{Name: "head", Rows: rows}, body)
	require.NoError(t, err)
	require.Equal(t, before, r.be.Work().Ops, "capturing runs nothing")
	for range 3 {
		r.q.Write(x, pack(kernels.BF16, r.normal(rows*64, 1)))
		body(r.q)
		want := [][]byte{r.bytes(logits), r.bytes(stats)}
		r.q.Write(logits, make([]byte, logits.Bytes()))
		r.q.Run(p)
		require.Equal(t, want, [][]byte{r.bytes(logits), r.bytes(stats)})
	}
	// Programs run in order with other operations, and more than once
	// between two waits.
	r.q.Write(x, make([]byte, x.Bytes()))
	r.q.Run(p)
	r.q.Write(x, pack(kernels.BF16, r.normal(rows*64, 1)))
	r.q.Run(p)
	got := r.bytes(logits)
	body(r.q)
	require.Equal(t, r.bytes(logits), got)
}

func testReplayState(t *testing.T, s suite) {
	// The tables are read when the program runs: one program decodes a
	// sequence of several windows.
	r := s.rig(t, 101)
	layers := r.hybrid()
	base := r.machine(1, 3, 0, 0, layers...)
	rows := base.sequence(140)
	want := base.baseline(rows)
	m := r.machine(2, 3, 3, 0, layers...)
	m.ensure(1, 144)
	b := m.batch.Prefix(2, 5, 0)
	p, err := r.q.Capture(kernels.GraphKey{Name: "layers", Spans: 2, Rows: 5}, func(q kernels.Queue) {
		q.Delta(m.out[0].Top(5), m.proj[0].Top(5), m.cs.Layer(0), &b, layers[0].delta)
		q.Attend(m.out[1].Top(5), m.proj[1].Top(5), m.cs.Layer(1), &b, layers[1].attn)
		q.Commit(m.cs, &b, m.kept.Top(2), kernels.Buf{})
	})
	require.NoError(t, err)
	for at := 0; at < len(rows); {
		good := min(1+m.rnd.IntN(4), len(rows)-at)
		span := append(append([][]float32(nil), rows[at:at+good]...), m.sequence(4-good)...)
		l := m.lay([]piece{{slot: 1, start: at, rows: span, kept: good}}, 2, 5, true)
		l.write(m, b)
		for i := range layers {
			r.q.Write(m.proj[i].Top(5), l.project(m, i))
		}
		r.q.Run(p)
		delta, attn := r.rows(m.out[0].Top(5)), r.rows(m.out[1].Top(5))
		for j := range good {
			row := l.off[0] + j
			r.same(kernels.BF16, want[at+j], append(append([]byte(nil), delta[row]...), attn[row]...), "row %d", at+j)
		}
		at += good
	}
	require.Equal(t, []int32{0, 140}, r.ints(m.cs.Len()))
}

func testNoHost(t *testing.T, s suite) {
	for name, body := range map[string]func(r *rig, q kernels.Queue, b kernels.Buf){
		"write": func(_ *rig, q kernels.Queue, b kernels.Buf) { q.Write(b, make([]byte, 4)) },
		"read":  func(_ *rig, q kernels.Queue, b kernels.Buf) { q.Read(make([]byte, 4), b) },
	} {
		r := s.rig(t, 102)
		b := r.putInts(1, 1, 7)
		_, err := r.q.Capture(kernels.GraphKey{Name: "bad"}, func(q kernels.Queue) { body(r, q, b) })
		require.ErrorContains(t, err, name)
		require.NoError(t, r.q.Err(), "a failed capture leaves the queue alone")
		require.Equal(t, []int32{7}, r.ints(b))
	}
}

func testBadShape(t *testing.T, s suite) {
	r := s.rig(t, 103)
	a, b := r.alloc(kernels.F32, 2, 2), r.alloc(kernels.F32, 3, 2)
	_, err := r.q.Capture(kernels.GraphKey{Name: "bad"}, func(q kernels.Queue) { q.Copy(a, b) })
	require.ErrorContains(t, err, "copy")
}
