package kerneltest

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// routers are those of the model families, with odd numbers.
var routers = []struct {
	name    string
	experts int
	bias    bool
	s       kernels.RouteSpec
}{
	{"softmax", 9, false, kernels.RouteSpec{K: 3, Normalize: true, Scale: 1}},
	{"softmax as it is", 60, false, kernels.RouteSpec{K: 4, Scale: 1}},
	{"sigmoid", 21, true, kernels.RouteSpec{K: 5, Score: kernels.ScoreSigmoid, Normalize: true, Scale: 2.5}},
	{"groups", 15, true, kernels.RouteSpec{K: 4, Score: kernels.ScoreSigmoid, Groups: 5, Kept: 2, Normalize: true, Scale: 1.5}},
	{"many", 384, true, kernels.RouteSpec{K: 8, Score: kernels.ScoreSigmoid, Groups: 8, Kept: 4, Scale: 1}},
	{"square roots", 21, true, kernels.RouteSpec{K: 5, Score: kernels.ScoreSqrtSoftplus, Normalize: true, Scale: 1.5}},
	{"all", 4, false, kernels.RouteSpec{K: 4, Normalize: true, Scale: 1}},
}

// route routes rows of logits and returns both results.
func (r *rig) route(rows, experts int, logits []float32, s kernels.RouteSpec) (ids, weights kernels.Buf) {
	ids, weights = r.alloc(kernels.I32, rows, s.K), r.alloc(kernels.F32, rows, s.K)
	r.q.Route(ids, weights, r.put(kernels.F32, rows, experts, logits), &s)
	return ids, weights
}

// testRoute compares choices with ref, which sorts, and rows with rows alone.
func testRoute(t *testing.T, s suite) {
	const rows = 67
	for _, c := range routers {
		t.Run(c.name, func(t *testing.T) {
			run := func(r *rig) (ids, weights kernels.Buf) {
				spec := c.s
				if c.bias {
					spec.Bias = r.vector(c.experts, -0.2, 0.2)
				}
				ids, weights = r.route(rows, c.experts, r.uniform(rows*c.experts, -4, 4), spec)
				return ids, weights
			}
			want, got := refRig(t, 30), s.rig(t, 30)
			wantIDs, wantWeights := run(want)
			ids, weights := run(got)
			require.Equal(t, want.ints(wantIDs), got.ints(ids))
			near(t, boundF32, want.floats(wantWeights), got.floats(weights), rows, "weights")
		})
		t.Run(c.name+"/rows", func(t *testing.T) {
			r := s.rig(t, 31)
			spec := c.s
			logits := r.put(kernels.F32, rows, c.experts, r.uniform(rows*c.experts, -4, 4))
			spare := r.alloc(kernels.I32, rows, spec.K)
			r.rowsAlone(rows, r.alloc(kernels.F32, rows, spec.K), func(dst kernels.Buf, from, to int) {
				r.q.Route(spare.Slice(from, to), dst, logits.Slice(from, to), &spec)
			})
		})
	}
	t.Run("Ties", func(t *testing.T) { testRouteTies(t, s) })
	t.Run("Given", func(t *testing.T) { testRouteGiven(t, s) })
}

// testRouteGiven weighs experts that are given, in any order, and refuses one that is
// none.
func testRouteGiven(t *testing.T, s suite) {
	const rows, experts, k = 5, 7, 3
	spec := kernels.RouteSpec{K: k, Score: kernels.ScoreSqrtSoftplus, Normalize: true, Scale: 2, Given: true}
	var given []int32
	for i := range rows {
		given = append(given, int32(6-i), int32(i), int32((i+3)%experts))
	}
	s.judge(t, 33, boundF32, rows, "weights", func(r *rig) kernels.Buf {
		ids, weights := r.putInts(rows, k, given...), r.alloc(kernels.F32, rows, k)
		r.q.Route(ids, weights, r.put(kernels.F32, rows, experts, r.uniform(rows*experts, -4, 4)), &spec)
		require.Equal(t, given, r.ints(ids))
		return weights
	})
	r := s.rig(t, 34)
	given[4] = experts
	r.q.Route(r.putInts(rows, k, given...), r.alloc(kernels.F32, rows, k), r.put(kernels.F32, rows, experts, r.uniform(rows*experts, -4, 4)), &spec)
	require.Error(t, r.q.Err())
}

// testRouteTies checks that of equals the lower index comes first, also among groups
// and where nothing is a number.
func testRouteTies(t *testing.T, s suite) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name   string
		logits []float32
		s      kernels.RouteSpec
		want   []int32
	}{
		{"equal", []float32{1, 1, 1, 1, 1, 1}, kernels.RouteSpec{K: 3, Scale: 1}, []int32{0, 1, 2}},
		{"pairs", []float32{1, 2, 3, 3, 2, 1}, kernels.RouteSpec{K: 4, Scale: 1}, []int32{2, 3, 1, 4}},
		{"zeros", []float32{-1, 0, float32(math.Copysign(0, -1)), 0, -1, -1}, kernels.RouteSpec{K: 3, Scale: 1}, []int32{1, 2, 3}},
		{"sigmoid at its top", []float32{40, 90, 50, 90, 50, 1}, kernels.RouteSpec{K: 3, Score: kernels.ScoreSigmoid, Scale: 1}, []int32{0, 1, 2}},
		{"groups", []float32{0, 1, 1, 0, 0, 1}, kernels.RouteSpec{K: 3, Groups: 3, Kept: 2, Score: kernels.ScoreSigmoid, Scale: 1}, []int32{1, 2, 0}},
		{"not a number", []float32{nan, 1, nan, 2, nan, nan}, kernels.RouteSpec{K: 4, Scale: 1}, []int32{3, 1, 0, 2}},
		{"no numbers", []float32{nan, nan, nan, nan, nan, nan}, kernels.RouteSpec{K: 2, Scale: 1}, []int32{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.rig(t, 32)
			ids, _ := r.route(1, len(c.logits), c.logits, c.s)
			require.Equal(t, c.want, r.ints(ids))
		})
	}
}

// mixture is a shape of Experts and Mix.
type mixture struct {
	rows, experts, each, n, k int
}

var mixtures = []mixture{{1, 5, 2, 72, 96}, {3, 7, 3, 40, 64}, {67, 5, 2, 200, 96}, {140, 3, 2, 96, 32}, {6, 160, 8, 34, 48}, {2, 1, 1, 130, 64}}

// ids draws experts for rows: half of the rows share a few.
func (m mixture) ids(r *rig) kernels.Buf {
	var ids []int32
	for i := range m.rows {
		from := m.experts
		if i%2 == 0 {
			from = max(1, m.experts/2)
		}
		for range m.each {
			ids = append(ids, int32(r.rnd.IntN(from)))
		}
	}
	return r.putInts(m.rows, m.each, ids...)
}

// testExperts compares the products with ref, and rows with rows alone.
func testExperts(t *testing.T, s suite) {
	for _, m := range mixtures {
		name := fmt.Sprintf("%dx%d of %d/%dx%d", m.rows, m.each, m.experts, m.n, m.k)
		t.Run(name, func(t *testing.T) {
			for _, e := range []epilogue{
				{"logits", boundF32, kernels.F32, false, kernels.Identity, 0},
				{"silu", boundBF16, kernels.BF16, false, kernels.SiLU, 0},
				{"swiglu", boundBF16, kernels.BF16, false, kernels.SwiGLU, 0},
				{"wide swiglu", boundF32, kernels.F32, false, kernels.SwiGLU, 0},
			} {
				s.judge(t, 33, e.bound, m.rows*m.each, e.name, func(r *rig) kernels.Buf {
					dst := r.alloc(e.dst, m.rows*m.each, m.n)
					w := r.bank(m.experts, m.n, m.k, e.act == kernels.SwiGLU)
					r.q.Experts(dst, w, r.put(kernels.BF16, m.rows, m.k, r.normal(m.rows*m.k, 1)), m.ids(r), e.act)
					return dst
				})
			}
			for _, e := range mixEpilogues {
				s.judge(t, 34, e.bound, m.rows, e.name, func(r *rig) kernels.Buf { return m.mix(r, e) })
			}
		})
	}
	t.Run("Rows", func(t *testing.T) { testExpertRows(t, s) })
}

var mixEpilogues = []epilogue{
	{"f32", boundF32, kernels.F32, false, kernels.Identity, 0},
	{"bf16", boundBF16, kernels.BF16, false, kernels.Identity, 0},
	{"residual", boundBF16, kernels.BF16, false, kernels.Identity, kernels.BF16},
	{"f32 residual", boundBF16, kernels.BF16, false, kernels.Identity, kernels.F32},
	{"wide residual", boundF32, kernels.F32, false, kernels.Identity, kernels.BF16},
}

// mix records a sum, on columns of a wider x.
func (m mixture) mix(r *rig, e epilogue) kernels.Buf {
	pairs := m.rows * m.each
	dst, w := r.alloc(e.dst, m.rows, m.n), r.bank(m.experts, m.n, m.k, false)
	x := r.put(kernels.BF16, pairs, m.k+32, r.normal(pairs*(m.k+32), 1)).Columns(32, m.k+32)
	ids, weights, res := m.ids(r), r.put(kernels.F32, m.rows, m.each, r.uniform(pairs, 0, 1)), kernels.Buf{}
	if e.residual != 0 {
		res = r.put(e.residual, m.rows, m.n, r.normal(m.rows*m.n, 1))
	}
	r.q.Mix(dst, w, x, ids, weights, res)
	return dst
}

// testExpertRows requires that a row among others, whichever experts these have, is
// the row alone, and that the residual may be where the sum goes.
func testExpertRows(t *testing.T, s suite) {
	for _, m := range []mixture{{67, 6, 3, 136, 96}, {67, 2, 2, 520, 64}} {
		r := s.rig(t, 35)
		ids := m.ids(r)
		up, down := r.bank(m.experts, m.k, m.n, true), r.bank(m.experts, m.n, m.k, false)
		x, hidden := r.put(kernels.BF16, m.rows, m.n, r.normal(m.rows*m.n, 1)), r.alloc(kernels.BF16, m.rows*m.each, m.k)
		weights, res := r.put(kernels.F32, m.rows, m.each, r.uniform(m.rows*m.each, 0, 1)), r.put(kernels.BF16, m.rows, m.n, r.normal(m.rows*m.n, 1))
		r.rowsAlone(m.rows, r.alloc(kernels.BF16, m.rows, m.n), func(dst kernels.Buf, from, to int) {
			h := hidden.Slice(from*m.each, to*m.each)
			r.q.Experts(h, up, x.Slice(from, to), ids.Slice(from, to), kernels.SwiGLU)
			r.q.Mix(dst, down, h, ids.Slice(from, to), weights.Slice(from, to), res.Slice(from, to))
		})
		dst := r.alloc(kernels.BF16, m.rows, m.n)
		r.q.Mix(dst, down, hidden, ids, weights, res)
		r.q.Mix(res, down, hidden, ids, weights, res)
		r.same(kernels.BF16, r.bytes(dst), r.bytes(res), "residual in place")
	}
}
