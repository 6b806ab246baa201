package kerneltest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// testQueue checks order and the life of host memory.
func testQueue(t *testing.T, s suite) {
	t.Run("RoundTrip", func(t *testing.T) { testRoundTrip(t, s) })
	t.Run("Order", func(t *testing.T) { testOrder(t, s) })
	t.Run("BatchAndSpecAreCopied", func(t *testing.T) { testCopies(t, s) })
	t.Run("Info", func(t *testing.T) { testInfo(t, s) })
}

func testRoundTrip(t *testing.T, s suite) {
	r := s.rig(t, 60)
	for _, k := range []kernels.Kind{kernels.BF16, kernels.F32, kernels.I32} {
		b := r.alloc(k, 5, 7)
		require.Equal(t, make([]byte, b.Bytes()), r.bytes(b), "%s: zeroed", k)
		raw := make([]byte, b.Bytes())
		for i := range raw {
			raw[i] = byte(3*i + 1)
		}
		r.q.Write(b, raw)
		require.Equal(t, raw, r.bytes(b), "%s", k)
		part := b.Slice(1, 4).Columns(2, 5)
		require.Equal(t, 9*k.Size(), part.Bytes())
		var want []byte
		for row := 1; row < 4; row++ {
			want = append(want, raw[(row*7+2)*k.Size():(row*7+5)*k.Size()]...)
		}
		require.Equal(t, want, r.bytes(part), "%s: dense rows of a view", k)
		r.q.Write(part, make([]byte, part.Bytes()))
		require.Equal(t, make([]byte, part.Bytes()), r.bytes(part))
		require.Equal(t, raw[:7*k.Size()], r.bytes(b.Top(1)), "%s: other rows stay", k)
	}
}

func testOrder(t *testing.T, s suite) {
	r := s.rig(t, 61)
	a, b := r.alloc(kernels.I32, 1, 2), r.alloc(kernels.I32, 1, 2)
	src := packInts([]int32{1, 2})
	r.q.Write(a, src)
	clear(src) // Write has its own copy
	first, second := make([]byte, 8), make([]byte, 8)
	early := r.q.Read(first, a)
	r.q.Write(a, packInts([]int32{3, 4}))
	r.q.Copy(b, a)
	r.q.Write(a, packInts([]int32{5, 6}))
	late := r.q.Read(second, b)
	require.NoError(t, late.Wait())
	require.NoError(t, early.Wait(), "a ticket may be waited for late")
	require.NoError(t, early.Wait(), "and again")
	require.Equal(t, []int32{1, 2}, unpackInts(first), "a read sees what was before it")
	require.Equal(t, []int32{3, 4}, unpackInts(second))
	require.Equal(t, []int32{5, 6}, r.ints(a))
	require.NoError(t, r.q.Err())
}

func testCopies(t *testing.T, s suite) {
	r := s.rig(t, 62)
	l := r.attnLayer(attnShapes[1])
	m := r.machine(1, 1, 0, 0, l)
	m.ensure(0, 2)
	rows := m.sequence(1)
	want := m.plain(piece{rows: rows, kept: -1})[0][0]
	b, spec := m.batch.Prefix(1, 1, 0), *l.attn
	out := r.alloc(kernels.BF16, 1, l.out)
	r.q.Attend(out, m.proj[0].Top(1), m.cs.Layer(0), &b, &spec)
	b, spec = kernels.Batch{}, kernels.AttnSpec{}
	r.same(kernels.BF16, want, r.bytes(out), "the caller reuses its structs")
}

func testInfo(t *testing.T, s suite) {
	r := s.rig(t, 63)
	info := r.be.Info()
	require.NotEmpty(t, info.Name)
	require.NotEmpty(t, info.Kernels)
	require.NotEmpty(t, info.Arithmetic)
	require.Same(t, r.q, r.be.Queue(), "there is one queue")
}
