package kerneltest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// statsRow is what Stats says of one row.
type statsRow struct {
	top1, top2     int32
	logit1, logit2 float32
	hash           uint64
	nans           int32
}

func readStats(x []int32) statsRow {
	return statsRow{
		top1: x[kernels.StatTop1], top2: x[kernels.StatTop2],
		logit1: math.Float32frombits(uint32(x[kernels.StatLogit1])),
		logit2: math.Float32frombits(uint32(x[kernels.StatLogit2])),
		hash:   uint64(uint32(x[kernels.StatHashLo])) | uint64(uint32(x[kernels.StatHashHi]))<<32,
		nans:   x[kernels.StatNaNs],
	}
}

// stats runs Stats over rows of v columns.
func (r *rig) stats(v, vocab int, hash bool, rows ...[]float32) []statsRow {
	r.t.Helper()
	logits := r.alloc(kernels.F32, len(rows), v)
	for i, x := range rows {
		r.q.Write(logits.Slice(i, i+1), pack(kernels.F32, x))
	}
	// The destination is not zero before.
	fill := make([]int32, len(rows)*kernels.StatCols)
	for i := range fill {
		fill[i] = 77
	}
	dst := r.putInts(len(rows), kernels.StatCols, fill...)
	r.q.Stats(dst, logits, vocab, hash)
	var out []statsRow
	for _, b := range r.rows(dst) {
		out = append(out, readStats(unpackInts(b)))
	}
	return out
}

func testStats(t *testing.T, s suite) {
	t.Run("Top", func(t *testing.T) { testTop(t, s) })
	t.Run("Large", func(t *testing.T) { testLarge(t, s) })
	t.Run("Hash", func(t *testing.T) { testHash(t, s) })
	t.Run("ViewsOfRows", func(t *testing.T) { testStatsRows(t, s) })
}

// testTop checks the order of logits.
func testTop(t *testing.T, s suite) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	negZero := float32(math.Copysign(0, -1))
	for _, c := range []struct {
		name string
		x    []float32
		want statsRow
	}{
		{"plain", []float32{1, 5, 3, 4}, statsRow{top1: 1, top2: 3, logit1: 5, logit2: 4}},
		{"first", []float32{9, 5, 3, 4}, statsRow{top1: 0, top2: 1, logit1: 9, logit2: 5}},
		{"tie for the top", []float32{1, 5, 5, 5}, statsRow{top1: 1, top2: 2, logit1: 5, logit2: 5}},
		{"tie for the second", []float32{4, 9, 4, 4}, statsRow{top1: 1, top2: 0, logit1: 9, logit2: 4}},
		{"all equal", []float32{2, 2, 2, 2}, statsRow{top1: 0, top2: 1, logit1: 2, logit2: 2}},
		{"zeros of both signs tie", []float32{-1, negZero, 0, -1}, statsRow{top1: 1, top2: 2, logit1: negZero, logit2: 0}},
		{"negative", []float32{-3, -1, -2, -4}, statsRow{top1: 1, top2: 2, logit1: -1, logit2: -2}},
		{"infinite", []float32{-inf, 1, inf, -inf}, statsRow{top1: 2, top2: 1, logit1: inf, logit2: 1}},
		{"all but one at minus infinity", []float32{-inf, -inf, 3, -inf}, statsRow{top1: 2, top2: 0, logit1: 3, logit2: -inf}},
		{"NaN never wins", []float32{nan, 1, nan, 2}, statsRow{top1: 3, top2: 1, logit1: 2, logit2: 1, nans: 2}},
		{"minus infinity is above NaN", []float32{nan, nan, 1, -inf}, statsRow{top1: 2, top2: 3, logit1: 1, logit2: -inf, nans: 2}},
	} {
		// The same again behind a tail beyond the vocabulary that must
		// not win.
		got := s.rig(t, 20).stats(6, 4, false, append(append([]float32(nil), c.x...), 100, 100))[0]
		require.Equal(t, c.want, got, c.name)
	}
}

// testLarge reduces rows of several segments with ties across them.
func testLarge(t *testing.T, s suite) {
	nan := float32(math.NaN())
	const v, vocab = 5000, 4991
	r := s.rig(t, 21)
	var rows [][]float32
	for i := range 9 {
		x := r.uniform(v, -4, 4)
		// Many ties at the top, far apart.
		for _, at := range []int{4990, 1023 + i, 1024 + i, 2600} {
			x[at] = 8
		}
		rows = append(rows, x)
	}
	rows[3][17], rows[3][4999] = nan, nan
	for i, got := range r.stats(v, vocab, true, rows...) {
		want := statsRow{top1: int32(1023 + i), top2: int32(1024 + i), logit1: 8, logit2: 8, hash: kernels.HashRow(rows[i])}
		if i == 3 {
			want.nans = 2
		}
		require.Equal(t, want, got, "row %d", i)
	}
}

func testHash(t *testing.T, s suite) {
	for _, v := range []int{5, 1023, 1024, 1025, 2048, 3001} {
		r := s.rig(t, 22)
		x := r.uniform(v, -1, 1)
		y := append([]float32(nil), x...)
		y[v-1] = math.Nextafter32(y[v-1], 2)
		odd := append([]float32(nil), x...)
		odd[1] = math.Float32frombits(0xffc12345) // another NaN
		got := r.stats(v, v, true, x, y, odd)
		for i, row := range [][]float32{x, y, odd} {
			require.Equal(t, kernels.HashRow(row), got[i].hash, "%d columns, row %d", v, i)
		}
		require.NotEqual(t, got[0].hash, got[1].hash)
	}
}

func testStatsRows(t *testing.T, s suite) {
	r := s.rig(t, 23)
	x := r.put(kernels.F32, 5, 300, r.uniform(5*300, -1, 1))
	dst := r.putInts(5, kernels.StatCols, make([]int32, 5*kernels.StatCols)...)
	r.q.Stats(dst, x, 300, true)
	all := r.rows(dst)
	one := r.alloc(kernels.I32, 1, kernels.StatCols)
	for i := range 5 {
		r.q.Stats(one, x.Slice(i, i+1), 300, true)
		require.Equal(t, all[i], r.bytes(one), "row %d alone", i)
	}
}
