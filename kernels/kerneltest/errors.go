package kerneltest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// misuse is an operation whose shapes don't fit.
type misuse struct {
	op     string // named by the error
	record func(r *rig, m *machine)
}

var misuses = []misuse{
	{"embed", func(r *rig, _ *machine) {
		r.q.Embed(r.alloc(kernels.BF16, 2, 65), r.matrix(8, 64), r.alloc(kernels.I32, 2, 1))
	}},
	{"embed", func(r *rig, _ *machine) {
		r.q.Embed(r.alloc(kernels.BF16, 2, 64), r.matrix(8, 64), r.alloc(kernels.I32, 1, 1))
	}},
	{"gather", func(r *rig, _ *machine) {
		r.q.Gather(r.alloc(kernels.BF16, 2, 64), r.alloc(kernels.F32, 2, 64), r.alloc(kernels.I32, 2, 1))
	}},
	{"scatter", func(r *rig, _ *machine) {
		r.q.Scatter(r.alloc(kernels.F32, 2, 64), r.alloc(kernels.F32, 2, 32), r.alloc(kernels.I32, 2, 1))
	}},
	{"copy", func(r *rig, _ *machine) { r.q.Copy(r.alloc(kernels.F32, 2, 64), r.alloc(kernels.F32, 3, 64)) }},
	{"norm", func(r *rig, _ *machine) {
		r.q.Norm(r.alloc(kernels.BF16, 2, 64), r.alloc(kernels.BF16, 2, 64), r.norm(32, true))
	}},
	{"matmul", func(r *rig, _ *machine) {
		r.q.MatMul(r.alloc(kernels.BF16, 2, 64), r.matrix(64, 96), r.alloc(kernels.BF16, 2, 64), kernels.Linear{})
	}},
	{"matmul", func(r *rig, _ *machine) {
		r.q.MatMul(r.alloc(kernels.BF16, 2, 32), r.matrix(64, 96), r.alloc(kernels.BF16, 2, 96), kernels.Linear{})
	}},
	{"matmul", func(r *rig, _ *machine) {
		r.q.MatMul(r.alloc(kernels.BF16, 2, 64), kernels.Weight{}, r.alloc(kernels.BF16, 2, 64), kernels.Linear{})
	}},
	{"matmul", func(r *rig, _ *machine) {
		r.q.MatMul(r.alloc(kernels.BF16, 2, 64), r.matrix(64, 96), r.alloc(kernels.BF16, 2, 96), kernels.Linear{Residual: r.alloc(kernels.BF16, 2, 32)})
	}},
	{"matmul", func(r *rig, _ *machine) { // a bias too short
		r.q.MatMul(r.alloc(kernels.BF16, 2, 64), r.matrix(64, 96), r.alloc(kernels.BF16, 2, 96), kernels.Linear{Bias: r.vector(64, 0, 1), BiasFrom: 1})
	}},
	{"blocks", func(r *rig, _ *machine) {
		r.q.Blocks(r.alloc(kernels.BF16, 2, 80), r.diagonal(2, 40, 64), r.alloc(kernels.BF16, 2, 64))
	}},
	{"route", func(r *rig, _ *machine) { // seven of six
		r.q.Route(r.alloc(kernels.I32, 2, 7), r.alloc(kernels.F32, 2, 7), r.alloc(kernels.F32, 2, 6), &kernels.RouteSpec{K: 7})
	}},
	{"route", func(r *rig, _ *machine) {
		r.q.Route(r.alloc(kernels.I32, 2, 2), r.alloc(kernels.F32, 2, 3), r.alloc(kernels.F32, 2, 6), &kernels.RouteSpec{K: 2})
	}},
	{"route", func(r *rig, _ *machine) { // groups of one
		r.q.Route(r.alloc(kernels.I32, 2, 1), r.alloc(kernels.F32, 2, 1), r.alloc(kernels.F32, 2, 6), &kernels.RouteSpec{K: 1, Groups: 6, Kept: 2})
	}},
	{"experts", func(r *rig, _ *machine) {
		r.q.Experts(r.alloc(kernels.BF16, 3, 40), r.bank(3, 40, 64, false), r.alloc(kernels.BF16, 2, 64), r.alloc(kernels.I32, 2, 2), kernels.Identity)
	}},
	{"experts", func(r *rig, _ *machine) {
		r.q.Experts(r.alloc(kernels.BF16, 4, 40), r.bank(3, 40, 64, true), r.alloc(kernels.BF16, 2, 64), r.alloc(kernels.I32, 2, 2), kernels.SiLU)
	}},
	{"experts", func(r *rig, _ *machine) { // there is no expert 3
		r.q.Experts(r.alloc(kernels.BF16, 2, 40), r.bank(3, 40, 64, false), r.alloc(kernels.BF16, 2, 64), r.putInts(2, 1, 0, 3), kernels.Identity)
	}},
	{"mix", func(r *rig, _ *machine) {
		r.q.Mix(r.alloc(kernels.BF16, 2, 40), r.bank(3, 40, 64, false), r.alloc(kernels.BF16, 3, 64), r.alloc(kernels.I32, 2, 2), r.alloc(kernels.F32, 2, 2), kernels.Buf{})
	}},
	{"mix", func(r *rig, _ *machine) { // a matrix is no bank
		r.q.Mix(r.alloc(kernels.BF16, 2, 40), r.matrix(40, 64), r.alloc(kernels.BF16, 4, 64), r.alloc(kernels.I32, 2, 2), r.alloc(kernels.F32, 2, 2), kernels.Buf{})
	}},
	{"mix", func(r *rig, _ *machine) { // there is no expert -1
		r.q.Mix(r.alloc(kernels.BF16, 1, 40), r.bank(3, 40, 64, false), r.alloc(kernels.BF16, 1, 64), r.putInts(1, 1, -1), r.alloc(kernels.F32, 1, 1), kernels.Buf{})
	}},
	{"attend", func(r *rig, m *machine) {
		b := m.batch.Prefix(1, 1, 0)
		r.q.Attend(m.out[1].Top(1), m.proj[0].Top(1), m.cs.Layer(1), &b, m.layers[1].attn)
	}},
	{"attend", func(r *rig, m *machine) { // a recurrent layer's handle
		b := m.batch.Prefix(1, 1, 0)
		r.q.Attend(m.out[1].Top(1), m.proj[1].Top(1), m.cs.Layer(0), &b, m.layers[1].attn)
	}},
	{"delta", func(r *rig, m *machine) {
		b := m.batch.Prefix(1, 1, 0)
		r.q.Delta(m.out[0].Top(1), m.proj[1].Top(1), m.cs.Layer(0), &b, m.layers[0].delta)
	}},
	{"stats", func(r *rig, _ *machine) {
		r.q.Stats(r.alloc(kernels.I32, 2, kernels.StatCols), r.alloc(kernels.F32, 2, 64), 65, false)
	}},
	{"chain", func(r *rig, m *machine) { // three rows a span don't fit two
		b := m.batch.Prefix(2, 4, 0)
		r.q.Chain(&b, m.cs, 0, r.alloc(kernels.I32, 2, 1), r.alloc(kernels.I32, 2, 2))
	}},
	{"shift", func(r *rig, m *machine) {
		dst, src := r.batch(2, 4, 2), r.batch(2, 5, 5)
		r.q.Shift(&dst, &src, r.alloc(kernels.I32, 2, 1), r.alloc(kernels.I32, 2, 1))
	}},
	{"accept", func(r *rig, m *machine) {
		b := r.batch(2, 4, 4)
		r.q.Accept(r.alloc(kernels.I32, 2, 1), r.alloc(kernels.I32, 2, 1), kernels.RuleID(200), &b, r.alloc(kernels.I32, 4, 1))
	}},
	{"commit", func(r *rig, m *machine) {
		b := r.batch(2, 4, 4)
		r.q.Commit(m.cs, &b, r.alloc(kernels.I32, 1, 1), kernels.Buf{})
	}},
	{"reset", func(r *rig, m *machine) { r.q.Reset(m.cs, 7) }},
	{"setpages", func(r *rig, m *machine) { r.q.SetPages(m.cs, 0, 1, []int32{0, 1}) }},
	{"save", func(r *rig, m *machine) { r.q.Save(m.cs, 0, 9) }},
	{"restore", func(r *rig, m *machine) { r.q.Restore(m.cs, 0, 0, 63) }},
	{"write", func(r *rig, _ *machine) { r.q.Write(r.alloc(kernels.I32, 2, 1), make([]byte, 7)) }},
	{"read", func(r *rig, _ *machine) { r.q.Read(make([]byte, 7), r.alloc(kernels.I32, 2, 1)) }},
	{"run", func(r *rig, _ *machine) { r.q.Run(kernels.Program{ID: 1 << 30}) }},
	{"copy", func(r *rig, _ *machine) { // freed memory
		b := r.alloc(kernels.F32, 1, 1)
		r.be.Free(b)
		r.q.Copy(r.alloc(kernels.F32, 1, 1), b)
	}},
}

// testErrors checks that a broken invariant becomes the sticky error that names
// the operation, and that what stood before it has run.
func testErrors(t *testing.T, s suite) {
	for i, c := range misuses {
		r := s.rig(t, 70)
		m := r.machine(1, 2, 2, 1, r.hybrid()...)
		before := r.putInts(1, 1, 5)
		require.NoError(t, r.q.Err())
		early := make([]byte, 4)
		r.q.Write(before, packInts([]int32{6}))
		ticket := r.q.Read(early, before)
		c.record(r, m)
		r.q.Copy(before, before)
		err := r.q.Err()
		require.Error(t, err, "%s, case %d", c.op, i)
		name := strings.NewReplacer(" ", "", "_", "").Replace(strings.ToLower(err.Error()))
		require.Contains(t, name, c.op, "case %d", i)
		require.Equal(t, err.Error(), r.q.Err().Error(), "the error sticks")
		require.Error(t, r.q.Read(make([]byte, 4), before).Wait(), "every later wait returns it")
		require.Error(t, ticket.Wait())
	}
}
