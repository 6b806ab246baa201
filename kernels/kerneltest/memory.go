package kerneltest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// testMemory checks that what is held is counted under its purpose, and given
// back.
func testMemory(t *testing.T, s suite) {
	r := s.rig(t, 90)
	start := r.be.Memory()
	grew := func(before kernels.Memory, p kernels.Purpose, bytes int64, what string) {
		t.Helper()
		after := r.be.Memory()
		require.GreaterOrEqual(t, after[p]-before[p], bytes, what)
		require.LessOrEqual(t, after[p]-before[p], 4*bytes+1<<16, what)
		require.GreaterOrEqual(t, after.Total()-before.Total(), bytes, what)
	}
	for _, p := range []kernels.Purpose{kernels.Activations, kernels.Tables, kernels.State} {
		before := r.be.Memory()
		b, err := r.be.Alloc(p, kernels.F32, 1000, 300)
		require.NoError(t, err)
		grew(before, p, 4*1000*300, p.String())
		r.be.Free(b)
		require.Equal(t, before, r.be.Memory(), "%s freed", p)
	}
	before := r.be.Memory()
	r.matrix(256, 512)
	grew(before, kernels.Weights, 2*256*512, "a matrix")

	// Neither recording nor running changes what is held.
	layers := r.hybrid()
	before = r.be.Memory()
	m := r.machine(3, 8, 7, 5, layers...)
	page, slot, snapshot := m.cs.Bytes()
	require.Positive(t, page)
	require.Positive(t, slot)
	require.Positive(t, snapshot)
	grew(before, kernels.KV, page*3*8, "pages")
	grew(before, kernels.State, snapshot*(5+3), "a state in each slot and snapshot")
	require.GreaterOrEqual(t, page, int64(2*2*kernels.PageTokens*2*64), "keys and values of a page")
	require.GreaterOrEqual(t, snapshot, int64(4*4*64*64), "four states of 64 x 64")
	held := r.be.Memory()
	rows := m.sequence(130)
	m.play(false, chunks(100), &track{rows: rows, want: m.unchecked(rows), end: 130, slot: 1})
	require.Equal(t, held, r.be.Memory(), "held after a run")
	m.close()
	require.Equal(t, before, r.be.Memory(), "all given back")

	be := s.open(t)
	_, err := be.Alloc(kernels.Activations, kernels.F32, 10, 10)
	require.NoError(t, err)
	require.NoError(t, be.Close())
	_, err = be.Alloc(kernels.Activations, kernels.F32, 10, 10)
	require.Error(t, err, "a closed backend allocates nothing")
	require.NotNil(t, start)
}

// unchecked returns what rows give in slot 0, which is emptied after.
func (m *machine) unchecked(rows [][]float32) [][]byte {
	m.ensure(0, len(rows))
	out := m.plain(piece{rows: rows, kept: len(rows)})[0]
	m.reset(0)
	return out
}

// testCounters checks that the counters tell the work that was recorded.
func testCounters(t *testing.T, s suite) {
	r := s.rig(t, 91)
	w, x := r.matrix(96, 64), r.put(kernels.BF16, 5, 64, r.normal(5*64, 1))
	dst := r.alloc(kernels.F32, 5, 96)
	delta := func(record func()) kernels.Counters {
		before := r.be.Work()
		record()
		return r.be.Work().Sub(before)
	}
	c := delta(func() {
		r.q.MatMul(dst, w, x, kernels.Linear{})
		r.q.MatMul(dst.Top(2), w, x, kernels.Linear{})
	})
	require.EqualValues(t, 2, c.Ops)
	require.GreaterOrEqual(t, c.Launches, uint64(1))
	require.EqualValues(t, 7, c.MatMulRows)
	require.EqualValues(t, 7*96*64, c.MACs)
	require.GreaterOrEqual(t, c.WeightBytes, uint64(2*2*96*64))
	require.Zero(t, c.AttendRows+c.KVTokens+c.DeltaRows+c.LogitRows)

	c = delta(func() { r.q.Stats(r.alloc(kernels.I32, 5, kernels.StatCols), dst, 96, true) })
	require.EqualValues(t, 5, c.LogitRows)

	m := r.machine(2, 3, 3, 0, r.hybrid()...)
	m.ensure(0, 80)
	m.ensure(1, 80)
	c = delta(func() {
		m.plain(piece{slot: 0, rows: m.sequence(70), kept: 70})
		m.step([]piece{{slot: 0, start: 70, rows: m.sequence(2), kept: 1}, {slot: 1, rows: m.sequence(3), kept: 3}}, 4, 9, true)
	})
	require.EqualValues(t, 70+2+3, c.AttendRows, "idle rows don't count")
	require.EqualValues(t, 70+2+3, c.DeltaRows)
	require.EqualValues(t, 70*71/2+71+72+1+2+3, c.KVTokens)
}
