//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// TestLargeTransfers passes buffers larger than the staging areas both ways,
// with tickets that are waited for late and out of order.
func TestLargeTransfers(t *testing.T) {
	be := open(t)
	q := be.Queue()
	rnd := rand.New(rand.NewPCG(1, 2))
	const rows, cols = 3001, 2003 // 24 MB
	b, err := be.Alloc(kernels.Activations, kernels.F32, rows, cols)
	require.NoError(t, err)
	random := func(n int) []byte {
		x := make([]byte, n)
		for i := range x {
			x[i] = byte(rnd.Uint32())
		}
		return x
	}
	whole := random(b.Bytes())
	q.Write(b, whole)
	view := b.Slice(100, 2900).Columns(3, 1900)
	part := random(view.Bytes())
	first, second, third := make([]byte, b.Bytes()), make([]byte, b.Bytes()), make([]byte, view.Bytes())
	early := q.Read(first, b)
	q.Write(view, part)
	q.Read(second, b)
	late := q.Read(third, view)
	var small [100][4]byte // more reads than there are events
	var tickets []kernels.Ticket
	for i := range small {
		tickets = append(tickets, q.Read(small[i][:], b.Slice(i, i+1).Columns(i, i+1)))
	}
	require.NoError(t, late.Wait())
	require.True(t, bytes.Equal(part, third), "the view")
	require.NoError(t, early.Wait())
	require.True(t, bytes.Equal(whole, first), "the whole")
	for i := range 2800 {
		copy(whole[((i+100)*cols+3)*4:], part[i*1897*4:(i+1)*1897*4])
	}
	require.True(t, bytes.Equal(whole, second), "the whole after the view was written")
	require.NoError(t, tickets[0].Wait())
	require.NoError(t, tickets[99].Wait())
	for i := range small {
		require.Equal(t, whole[(i*cols+i)*4:(i*cols+i)*4+4], small[i][:], i)
	}
}

// TestLargeWeights loads a weight larger than the staging area and finds each
// row again.
func TestLargeWeights(t *testing.T) {
	be := open(t)
	q := be.Queue()
	rnd := rand.New(rand.NewPCG(3, 4))
	const rows, cols = 2500, 2001 // 20 MB in the file, 10 MB on the device
	file := make([]byte, 0, rows*cols*4)
	want := make([]byte, 0, rows*cols*2)
	for range rows * cols {
		f := float32(rnd.NormFloat64())
		bits := math.Float32bits(f)
		file = binary.LittleEndian.AppendUint32(file, bits)
		want = binary.LittleEndian.AppendUint16(want, uint16((bits+0x7fff+bits>>16&1)>>16))
	}
	w, err := be.Load(kernels.Tensor{Name: "w", Use: kernels.Matrix, Parts: []kernels.Source{
		{Name: "w", Rows: rows, Cols: cols, DType: kernels.DTypeF32, Data: bytes.NewReader(file)},
	}})
	require.NoError(t, err)
	ids, err := be.Alloc(kernels.Tables, kernels.I32, rows, 1)
	require.NoError(t, err)
	all := make([]int32, rows)
	for i := range all {
		all[i] = int32(i)
	}
	q.Write(ids, packed(all...))
	dst, err := be.Alloc(kernels.Activations, kernels.BF16, rows, cols)
	require.NoError(t, err)
	q.Embed(dst, w, ids)
	got := make([]byte, dst.Bytes())
	require.NoError(t, q.Read(got, dst).Wait())
	require.True(t, bytes.Equal(want, got))
}

// TestFaultsBecomeErrors puts entries into device tables that only a kernel can
// find wrong, and expects the queue's error to name operation and entry.
func TestFaultsBecomeErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		run  func(f *faulty)
	}{
		{"embed: row 1: index 9 of 8 rows", func(f *faulty) {
			f.q.Write(f.b.Token, packed(0, 9, 0, 0))
			f.q.Embed(f.x, f.table, f.b.Token)
		}},
		{"gather: row 0: index 4 of 4 rows", func(f *faulty) {
			f.q.Write(f.b.Token, packed(4, 0, 0, 0))
			f.q.Gather(f.x, f.y, f.b.Token)
		}},
		{"scatter: row 2: index 5 of 4 rows", func(f *faulty) {
			f.q.Write(f.b.Token, packed(0, 1, 5, 2))
			f.q.Scatter(f.x, f.y, f.b.Token)
		}},
		{"has no page in a table of 2", func(f *faulty) { f.attend() }},
		{"attend: span 0: slot 7 of 2", func(f *faulty) {
			f.q.Write(f.b.Seq, packed(7))
			f.attend()
		}},
		{"attend: span 0: rows 2+4 do not fit", func(f *faulty) {
			f.q.Write(f.b.RowOff, packed(2))
			f.attend()
		}},
		{"attend: row 3: parent 3;", func(f *faulty) {
			f.q.SetPages(f.cs, 0, 0, []int32{1})
			f.q.Write(f.b.Parent, packed(-1, 0, 1, 3))
			f.attend()
		}},
		{"attend: row 3: position 5;", func(f *faulty) {
			f.q.SetPages(f.cs, 0, 0, []int32{1})
			f.q.Write(f.b.Pos, packed(0, 1, 2, 5))
			f.attend()
		}},
		{"commit: span 0: 5 rows kept of 4", func(f *faulty) { f.commit(5) }},
		{"commit: span 0: 1 rows kept of 4; a span of more than MaxDraft+1", func(f *faulty) { f.commit(1) }},
		{"commit: span 0: the 4 rows kept of 4 do not follow each other", func(f *faulty) {
			f.q.Write(f.b.Parent, packed(-1, 0, 0, 1))
			f.commit(4)
		}},
		{"accept: span 0: row 1 is not wanted", func(f *faulty) {
			f.q.Write(f.b.Logit, packed(0, 2, 1, 3))
			f.q.Accept(f.kept, f.next, kernels.RuleGreedy, &f.b, f.b.Token)
		}},
		{"save: slot 0 has length 4; it must be a multiple of 64", func(f *faulty) {
			f.commit(4)
			f.q.Save(f.cs, 0, 0)
		}},
		{"restore: slot 1: the snapshot was saved at length 0, not 64", func(f *faulty) {
			f.q.Save(f.cs, 0, 0)
			f.q.Restore(f.cs, 1, 0, 64)
		}},
	} {
		t.Run(c.text, func(t *testing.T) {
			f := newFaulty(t, open(t))
			require.NoError(t, f.q.Err())
			c.run(f)
			require.ErrorContains(t, f.q.Err(), c.text)
			require.ErrorContains(t, f.q.Read(make([]byte, f.x.Bytes()), f.x).Wait(), c.text, "it sticks")
		})
	}
}

// faulty is a span of four rows in slot 0, and what operations need.
type faulty struct {
	q                kernels.Queue
	cs               kernels.Caches
	b                kernels.Batch
	x, y, kept, next kernels.Buf
	proj, out        kernels.Buf
	table            kernels.Weight
}

func newFaulty(t *testing.T, be kernels.Backend) *faulty {
	f := &faulty{q: be.Queue()}
	var err error
	f.cs, err = be.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{
			{Kind: kernels.Attention, KVHeads: 1, HeadDim: 32},
			{Kind: kernels.Delta, KHeads: 1, VHeads: 1, KDim: 32, VDim: 32, Conv: 4},
		},
		Slots: 2, Pages: 2, SlotPages: 2, MaxDraft: 2, Snapshots: 1,
	})
	require.NoError(t, err)
	f.b, err = kernels.NewBatch(be, 1, 4, 4)
	require.NoError(t, err)
	f.q.Write(f.b.Len, packed(4))
	f.q.Write(f.b.Pos, packed(0, 1, 2, 3))
	f.q.Write(f.b.Parent, packed(-1, 0, 1, 2))
	f.q.Write(f.b.Logit, packed(0, 1, 2, 3))
	alloc := func(k kernels.Kind, rows, cols int) kernels.Buf {
		b, err := be.Alloc(kernels.Activations, k, rows, cols)
		require.NoError(t, err)
		return b
	}
	f.x, f.y, f.out = alloc(kernels.BF16, 4, 16), alloc(kernels.BF16, 4, 16), alloc(kernels.BF16, 4, 32)
	f.proj = alloc(kernels.BF16, 4, 96)
	f.kept, f.next = alloc(kernels.I32, 1, 1), alloc(kernels.I32, 1, 1)
	f.table, err = be.Load(kernels.Tensor{Name: "table", Use: kernels.Matrix, Parts: []kernels.Source{
		{Name: "table", Rows: 8, Cols: 16, DType: kernels.DTypeBF16, Data: bytes.NewReader(make([]byte, 256))},
	}})
	require.NoError(t, err)
	return f
}

func (f *faulty) attend() {
	f.q.Attend(f.out, f.proj, f.cs.Layer(0), &f.b, &kernels.AttnSpec{QHeads: 1, KVHeads: 1, HeadDim: 32, Scale: 1})
}

func (f *faulty) commit(n int32) {
	f.q.Write(f.kept, packed(n))
	f.q.Commit(f.cs, &f.b, f.kept, kernels.Buf{})
}
