package cpu

import (
	"bytes"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"exacta.dev/exacta/kernels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is a small stack of all kinds of operations, as an engine records it.
type model struct {
	*rig
	b                           kernels.Batch
	c                           kernels.Caches
	embed, in, out, gate, down  kernels.Weight
	dIn, dOut                   kernels.Weight
	norm                        kernels.Norm
	attn                        *kernels.AttnSpec
	delta                       *kernels.DeltaSpec
	x, proj, mixed, mlp, logits kernels.Buf
	stats, first, kept          kernels.Buf
}

const hidden = 64

func newModel(t testing.TB, threads, rows int) *model {
	m := &model{rig: newRig(t, threads, "")}
	m.embed, _ = m.matrix(1, 500, hidden)
	g, _ := m.vector(2, hidden, 0.2)
	m.norm = kernels.Norm{W: g, Eps: 1e-6, Centered: true}
	m.in, _ = m.matrix(3, 4*32*2+2*2*32, hidden)
	m.out, _ = m.matrix(4, hidden, 4*32)
	m.dIn, _ = m.matrix(5, 2*2*32+2*4*32+2*4, hidden)
	m.dOut, _ = m.matrix(6, hidden, 4*32)
	m.gate = m.load(kernels.Matrix, true, part("gate", 96, hidden, random(7, 96*hidden, 0.1)), part("up", 96, hidden, random(8, 96*hidden, 0.1)))
	m.down, _ = m.matrix(9, hidden, 96)
	qn, _ := m.vector(10, 32, 0.2)
	m.attn = &kernels.AttnSpec{
		QHeads: 4, KVHeads: 2, HeadDim: 32, Scale: 0.2, Gated: true, Rotary: 8,
		QNorm: kernels.Norm{W: qn, Eps: 1e-6}, KNorm: kernels.Norm{W: qn, Eps: 1e-6},
		Rope: m.load(kernels.Table, false, part("rope", 512, 8, random(11, 512*8, 0.5))),
	}
	aLog, _ := m.vector(12, 4, 0.5)
	nw, _ := m.vector(13, 32, 1)
	m.delta = &kernels.DeltaSpec{
		KHeads: 2, VHeads: 4, KDim: 32, VDim: 32, Conv: 4, ALog: aLog, DtBias: aLog, Gate: kernels.SiLU,
		Taps: m.load(kernels.Taps, false, part("taps", 256, 4, random(14, 1024, 0.5))), Norm: kernels.Norm{W: nw, Eps: 1e-6},
	}
	var err error
	m.c, err = m.rig.b.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{{Kind: kernels.Attention, KVHeads: 2, HeadDim: 32}, {Kind: kernels.Delta, KHeads: 2, VHeads: 4, KDim: 32, VDim: 32, Conv: 4}},
		Slots:  2, Pages: 16, SlotPages: 8, MaxDraft: 7, Snapshots: 1,
	})
	require.NoError(t, err)
	m.b = m.batch(1, rows, 1)
	m.x, m.proj = m.alloc(kernels.BF16, rows, hidden), m.alloc(kernels.BF16, rows, 512)
	m.mixed, m.mlp = m.alloc(kernels.BF16, rows, 128), m.alloc(kernels.BF16, rows, 96)
	m.logits, m.stats = m.alloc(kernels.F32, 1, 500), m.alloc(kernels.I32, 1, kernels.StatCols)
	m.first, m.kept = m.putI32(7), m.putI32(1)
	for slot := range 2 {
		m.q.SetPages(m.c, slot, 0, []int32{0, 1, 2, 3, 4, 5, 6, 7})
	}
	m.q.Write(m.b.Seq, rawI32([]int32{0}))
	return m
}

// record records a decode step that feeds its choice back.
func (m *model) record(q kernels.Queue) {
	q.Chain(&m.b, m.c, 0, m.first, kernels.Buf{})
	q.Embed(m.x, m.embed, m.b.Token)
	proj := m.proj.Columns(0, 384)
	q.MatMul(proj, m.in, m.x, kernels.Linear{In: m.norm})
	q.Attend(m.mixed, proj, m.c.Layer(0), &m.b, m.attn)
	q.MatMul(m.x, m.out, m.mixed, kernels.Linear{Residual: m.x})
	proj = m.proj.Columns(0, 392)
	q.MatMul(proj, m.dIn, m.x, kernels.Linear{In: m.norm})
	q.Delta(m.mixed, proj, m.c.Layer(1), &m.b, m.delta)
	q.MatMul(m.x, m.dOut, m.mixed, kernels.Linear{Residual: m.x})
	q.MatMul(m.mlp, m.gate, m.x, kernels.Linear{In: m.norm, Act: kernels.SwiGLU})
	q.MatMul(m.x, m.down, m.mlp, kernels.Linear{Residual: m.x})
	q.MatMul(m.logits, m.embed, m.x, kernels.Linear{In: m.norm})
	q.Stats(m.stats, m.logits, 500, true)
	q.Copy(m.first, m.stats.Columns(kernels.StatTop1, kernels.StatTop1+1))
	q.Commit(m.c, &m.b, m.kept, kernels.Buf{})
}

func (m *model) restart() {
	m.q.Reset(m.c, 0)
	m.q.Write(m.first, rawI32([]int32{7}))
}

func TestStepAllocatesNothing(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	m := newModel(t, 2, 1)
	out, src := make([]byte, 4), rawI32([]int32{0})
	step := func() {
		m.q.Write(m.b.Seq, src)
		m.record(m.q)
		require.NoError(t, m.q.Read(out, m.first).Wait())
	}
	for range 5 {
		step()
	}
	require.Zero(t, testing.AllocsPerRun(50, step))
}

func TestCaptureEqualsRecording(t *testing.T) {
	var want []int32
	for _, threads := range []int{1, 2, 3} {
		m := newModel(t, threads, 1)
		p, err := m.q.Capture(kernels.GraphKey{Name: "step"}, m.record)
		require.NoError(t, err)
		for _, captured := range []bool{false, true} {
			m.restart()
			var got []int32
			for range 150 {
				if captured {
					m.q.Run(p)
				} else {
					m.record(m.q)
				}
				got = append(got, m.getI32(m.stats)...)
			}
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "%d threads, captured %v", threads, captured)
		}
	}
}

// A whole program runs while memory is shut for the host.
func TestProtect(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory can be protected on linux only")
	}
	m := newModel(t, 2, 1)
	require.NoError(t, m.rig.b.Protect(true))
	for range 3 {
		m.record(m.q)
	}
	id := m.getI32(m.first)[0]
	require.GreaterOrEqual(t, id, int32(0))
	x := m.alloc(kernels.F32, 4, 100)
	m.rig.b.Free(x)
	w, _ := m.matrix(50, 64, 64)
	require.False(t, w.None())
	view := m.rig.b.queue.view("test", "x", m.x)
	require.Panics(t, func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		view.u16(0)[0]++
	})
	require.NoError(t, m.rig.b.Protect(false))
	view.u16(0)[0]++
}

func TestStickyErrors(t *testing.T) {
	x := func(m *model) kernels.Buf { return m.x }
	for name, c := range map[string]struct {
		do   func(m *model)
		want string
	}{
		"matmul shape":  {func(m *model) { m.q.MatMul(m.logits, m.in, m.x, kernels.Linear{}) }, "matmul w: dst is f32 with 500 columns, want bf16 or f32 with 384"},
		"matmul kind":   {func(m *model) { m.q.MatMul(m.logits, m.embed, m.logits, kernels.Linear{}) }, "matmul: x is f32, want bf16"},
		"matmul alias":  {func(m *model) { m.q.MatMul(x(m), m.rigSquare(), x(m), kernels.Linear{}) }, "matmul w: dst and x overlap"},
		"swiglu":        {func(m *model) { m.q.MatMul(m.x, m.down, m.mlp, kernels.Linear{Act: kernels.SwiGLU}) }, "SwiGLU needs a paired weight"},
		"no weight":     {func(m *model) { m.q.MatMul(m.logits, kernels.Weight{ID: 99}, m.x, kernels.Linear{}) }, "there is no weight 99"},
		"wrong use":     {func(m *model) { m.q.Embed(m.x, m.norm.W, m.first) }, "embed: weight v was loaded for another use"},
		"no buffer":     {func(m *model) { m.q.Copy(kernels.Buf{ID: 999, Rows: 1, Cols: 1, Kind: kernels.F32}, m.x) }, "copy: dst is not a buffer"},
		"token":         {func(m *model) { m.q.Write(m.first, rawI32([]int32{500})); m.record(m.q) }, "embed: row 0 has id 500, w has rows 0 to 499"},
		"gather":        {func(m *model) { m.q.Gather(m.x, m.x, m.first) }, "gather: index 7 of row 0 is beyond the 1 rows of src"},
		"page hole":     {func(m *model) { m.q.SetPages(m.c, 0, 0, []int32{-1}); m.record(m.q) }, "attend: span 0: page 0 of slot 0 is -1"},
		"page":          {func(m *model) { m.q.SetPages(m.c, 0, 0, []int32{16}); m.record(m.q) }, "there are 16 pages"},
		"page table":    {func(m *model) { m.q.SetPages(m.c, 0, 7, []int32{1, 2}) }, "set pages: entries 7 to 8"},
		"slot":          {func(m *model) { m.q.Reset(m.c, 2) }, "reset: there is no slot 2"},
		"span slot":     {func(m *model) { m.q.Write(m.b.Seq, rawI32([]int32{5})); m.record(m.q) }, "chain: span 0 is of slot 5"},
		"save":          {func(m *model) { m.record(m.q); m.q.Save(m.c, 0, 0) }, "save: slot 0 has length 1"},
		"restore":       {func(m *model) { m.q.Restore(m.c, 0, 0, 64) }, "restore: snapshot 0 was never saved"},
		"restore at":    {func(m *model) { m.q.Restore(m.c, 0, 0, 65) }, "restore: length 65"},
		"write":         {func(m *model) { m.q.Write(m.first, make([]byte, 5)) }, "write: 5 bytes for a i32 view [1, 1] of 4"},
		"read":          {func(m *model) { m.q.Read(make([]byte, 5), m.first) }, "read: a i32 view"},
		"vocabulary":    {func(m *model) { m.q.Stats(m.stats, m.logits, 501, false) }, "stats: vocabulary of 501; want 2 up to the 500"},
		"program":       {func(m *model) { m.q.Run(kernels.Program{ID: 3}) }, "run: there is no program 3"},
		"freed program": {func(m *model) { m.freed() }, "run: step uses memory that has been freed"},
		"position": {func(m *model) {
			m.q.Write(m.c.Len(), rawI32([]int32{512, 0}))
			m.record(m.q)
		}, "attend: span 0 covers positions 512 to 512; a slot has 512"},
		"tree": {func(m *model) {
			m.q.Chain(&m.b, m.c, 0, m.first, kernels.Buf{})
			m.q.Write(m.b.Parent, rawI32([]int32{3}))
			m.q.Attend(m.mixed, m.proj.Columns(0, 384), m.c.Layer(0), &m.b, m.attn)
		}, "attend: the parent of row 0 of span 0 is 3"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, 2, 1)
			require.NoError(t, m.q.Err())
			c.do(m)
			require.ErrorContains(t, m.q.Err(), c.want)
			err := m.q.Err()
			m.record(m.q)
			require.Equal(t, err, m.q.Read(make([]byte, 4), m.first).Wait(), "the first error stays")
		})
	}
}

func (m *model) rigSquare() kernels.Weight {
	w, _ := m.matrix(60, hidden, hidden)
	return w
}

// freed runs a program one of whose buffers is gone.
func (m *model) freed() {
	x := m.alloc(kernels.BF16, 1, hidden)
	p, err := m.q.Capture(kernels.GraphKey{Name: "step"}, func(q kernels.Queue) { q.Copy(x, m.x) })
	require.NoError(m.t, err)
	m.rig.b.Free(x)
	m.q.Run(p)
}

// An error while running stops at the operation, and what ran before counts.
func TestErrorStopsTheList(t *testing.T) {
	m := newModel(t, 2, 1)
	m.q.Write(m.first, rawI32([]int32{3}))
	m.q.Embed(m.x, m.embed, m.first)
	before, after := make([]byte, 4), make([]byte, 4)
	m.q.Read(before, m.first)
	m.q.Write(m.first, rawI32([]int32{-2}))
	m.q.Embed(m.x, m.embed, m.first)
	m.q.MatMul(m.mlp, m.gate, m.x, kernels.Linear{Act: kernels.SwiGLU})
	require.ErrorContains(t, m.q.Read(after, m.first).Wait(), "id -2")
	require.Equal(t, rawI32([]int32{3}), before)
	require.Equal(t, make([]byte, 4), after)
}

func TestCaptureErrors(t *testing.T) {
	m := newModel(t, 1, 1)
	_, err := m.q.Capture(kernels.GraphKey{Name: "bad"}, func(q kernels.Queue) { q.Write(m.first, rawI32([]int32{1})) })
	require.ErrorContains(t, err, "capture bad (0 spans, 0 rows): cpu: write: not allowed")
	_, err = m.q.Capture(kernels.GraphKey{Name: "bad"}, func(q kernels.Queue) { q.Read(make([]byte, 4), m.first) })
	require.ErrorContains(t, err, "read: not allowed")
	require.NoError(t, m.q.Err(), "a failed capture leaves the queue alone")
}

func TestLoadErrors(t *testing.T) {
	r := newRig(t, 2, "")
	for name, c := range map[string]struct {
		t    kernels.Tensor
		want string
	}{
		"odd":      {kernels.Tensor{Name: "a", Use: kernels.Matrix, Parts: []kernels.Source{part("p", 2, 3, make([]uint16, 6))}}, "load a: 3 columns"},
		"cut":      {kernels.Tensor{Name: "a", Use: kernels.Matrix, Parts: []kernels.Source{part("p", 100, 2, make([]uint16, 150))}}, "load a: rows 64 to 99 of part p: unexpected EOF"},
		"vec":      {kernels.Tensor{Name: "a", Use: kernels.Vector, Parts: []kernels.Source{part("p", 1, 8, make([]uint16, 7))}}, "load a: rows 0 to 0 of part p: unexpected EOF"},
		"no parts": {kernels.Tensor{Name: "a", Use: kernels.Matrix}, "load a: no parts"},
	} {
		before := r.b.Memory()
		_, err := r.b.Load(c.t)
		require.ErrorContains(t, err, c.want, name)
		require.Equal(t, before, r.b.Memory(), name)
	}
	var _ io.ReaderAt = bytes.NewReader(nil)
}

func TestNewErrors(t *testing.T) {
	_, err := New(Options{Kernels: "sse"})
	require.ErrorContains(t, err, `kernel set "sse"`)
	_, err = New(Options{Threads: -1})
	require.ErrorContains(t, err, "-1 threads")
}

func TestMemoryIsCounted(t *testing.T) {
	r := newRig(t, 1, "")
	r.matrix(1, 130, 10)
	require.Equal(t, int64(3*64*10*2), r.b.Memory()[kernels.Weights], "panels")
	before := r.b.Memory()
	var bufs []kernels.Buf
	for i := range 20 {
		bufs = append(bufs, r.alloc(kernels.F32, 10, 16*(i+1)))
	}
	big := r.alloc(kernels.F32, 2000, 1000)
	r.b.Free(big)
	for i := range bufs {
		r.q.Write(bufs[(i*7)%20], bytes.Repeat([]byte{1}, bufs[(i*7)%20].Bytes()))
		r.b.Free(bufs[(i*7)%20])
	}
	require.Equal(t, before, r.b.Memory())
	x := r.alloc(kernels.F32, 10, 300)
	for _, v := range r.getF32(x) {
		require.Zero(t, math.Float32bits(v), "memory that is used again is zero")
	}
}

func TestDTypes(t *testing.T) {
	r := newRig(t, 1, "")
	src := []float32{1, -2.5, 0.333251953125, 65504, 6.103515625e-05, 5.960464477539063e-08, 0, -0.125}
	half := []byte{0, 0x3c, 0, 0xc1, 0x55, 0x35, 0xff, 0x7b, 0, 4, 1, 0, 0, 0, 0, 0xb0}
	want := make([]uint16, len(src))
	r.b.set.ToBF16(want, src)
	for d, raw := range map[kernels.DType][]byte{kernels.DTypeF32: raw32(src), kernels.DTypeF16: half} {
		w := r.load(kernels.Matrix, false, kernels.Source{Name: "p", Rows: 2, Cols: 4, DType: d, Data: bytes.NewReader(raw)})
		e := r.alloc(kernels.BF16, 2, 4)
		r.q.Embed(e, w, r.putI32(0, 1))
		require.Equal(t, want, r.get16(e), d)
	}
}
