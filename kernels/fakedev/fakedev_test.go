package fakedev_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/fakedev"
	"exacta.dev/exacta/kernels/ref"
)

// guarded is a backend that notes whether its memory is open.
type guarded struct {
	kernels.Backend
	closed bool
	closes int
}

func (g *guarded) Protect(on bool) error {
	g.closed = on
	if on {
		g.closes++
	}
	return nil
}

func (g *guarded) Alloc(p kernels.Purpose, k kernels.Kind, rows, cols int) (kernels.Buf, error) {
	if g.closed {
		panic("alloc in closed memory")
	}
	return g.Backend.Alloc(p, k, rows, cols)
}

func open(t *testing.T) *fakedev.Backend {
	be := fakedev.New(ref.New())
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	return be
}

func alloc(t *testing.T, be kernels.Backend, rows, cols int) kernels.Buf {
	b, err := be.Alloc(kernels.Tables, kernels.I32, rows, cols)
	require.NoError(t, err)
	return b
}

func TestNothingRunsBeforeAWait(t *testing.T) {
	inner := ref.New()
	be := fakedev.New(inner)
	defer be.Close()
	a, b := alloc(t, be, 1, 2), alloc(t, be, 1, 2)
	q := be.Queue()
	src := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	q.Write(a, src)
	clear(src) // the copy was taken at the call
	q.Copy(b, a)
	dst := make([]byte, 8)
	ticket := q.Read(dst, b)
	require.Equal(t, bytes.Repeat([]byte{fakedev.Poison}, 8), dst)
	require.Zero(t, inner.Work().Ops)

	q.Copy(a, b) // behind the ticket: must not run with it
	require.NoError(t, ticket.Wait())
	require.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8}, dst)
	require.EqualValues(t, 1, inner.Work().Ops)
	require.EqualValues(t, 2, be.Work().Ops)
}

func TestReadIsDeliveredByItsWaitOnly(t *testing.T) {
	be := open(t)
	a, q := alloc(t, be, 1, 1), be.Queue()
	first, second := make([]byte, 4), make([]byte, 4)
	early := q.Read(first, a)
	q.Read(second, a)
	be.Work() // runs both, delivers none
	require.Equal(t, bytes.Repeat([]byte{fakedev.Poison}, 4), first)
	require.NoError(t, early.Wait())
	require.Equal(t, make([]byte, 4), first)
	require.Equal(t, bytes.Repeat([]byte{fakedev.Poison}, 4), second)
	require.NoError(t, q.Err())
	require.Equal(t, make([]byte, 4), second)
}

func TestForeignAndDeadHandles(t *testing.T) {
	inner := ref.New()
	raw := alloc(t, inner, 1, 1)
	for name, bad := range map[string]func(be *fakedev.Backend) kernels.Buf{
		"wrapped backend": func(*fakedev.Backend) kernels.Buf { return raw },
		"other device":    func(*fakedev.Backend) kernels.Buf { return alloc(t, open(t), 1, 1) },
		"freed": func(be *fakedev.Backend) kernels.Buf {
			b := alloc(t, be, 1, 1)
			be.Free(b)
			return b
		},
		"out of range": func(be *fakedev.Backend) kernels.Buf {
			b := alloc(t, be, 1, 1)
			b.Row = 1
			return b
		},
	} {
		be := open(t)
		good := alloc(t, be, 1, 1)
		be.Queue().Copy(good, bad(be))
		be.Queue().Copy(good, good)
		err := be.Queue().Err()
		require.ErrorContains(t, err, "copy: src", name)
		require.Equal(t, err, be.Queue().Err(), "sticky")
	}
}

func TestCaptureRefusesTheHost(t *testing.T) {
	for name, body := range map[string]func(be kernels.Backend, q kernels.Queue, b kernels.Buf){
		"write": func(_ kernels.Backend, q kernels.Queue, b kernels.Buf) { q.Write(b, make([]byte, 4)) },
		"read":  func(_ kernels.Backend, q kernels.Queue, b kernels.Buf) { _ = q.Read(make([]byte, 4), b).Wait() },
		"wait":  func(_ kernels.Backend, q kernels.Queue, _ kernels.Buf) { _ = q.Err() },
		"alloc": func(be kernels.Backend, _ kernels.Queue, _ kernels.Buf) {
			_, _ = be.Alloc(kernels.Tables, kernels.I32, 1, 1)
		},
		"load":   func(be kernels.Backend, _ kernels.Queue, _ kernels.Buf) { _, _ = be.Load(kernels.Tensor{}) },
		"free":   func(be kernels.Backend, _ kernels.Queue, b kernels.Buf) { be.Free(b) },
		"caches": func(be kernels.Backend, _ kernels.Queue, _ kernels.Buf) { _, _ = be.Caches(kernels.CacheSpec{}) },
		"copy":   func(be kernels.Backend, _ kernels.Queue, b kernels.Buf) { be.Queue().Copy(b, b) },
	} {
		be := open(t)
		b := alloc(t, be, 1, 1)
		_, err := be.Queue().Capture(kernels.GraphKey{Name: "program"}, func(q kernels.Queue) { body(be, q, b) })
		require.ErrorContains(t, err, name, "capture program")
		require.NoError(t, be.Queue().Err(), "a failed capture leaves the queue alone")
	}
}

func TestProgramWithAFreedBuffer(t *testing.T) {
	be := open(t)
	a, b := alloc(t, be, 1, 1), alloc(t, be, 1, 1)
	p, err := be.Queue().Capture(kernels.GraphKey{Name: "p"}, func(q kernels.Queue) { q.Copy(a, b) })
	require.NoError(t, err)
	be.Queue().Run(p)
	require.NoError(t, be.Queue().Err())
	be.Free(b)
	be.Queue().Run(p)
	require.ErrorContains(t, be.Queue().Err(), "run: copy: handle")
}

func TestMemoryIsClosedBetweenRuns(t *testing.T) {
	g := &guarded{Backend: ref.New()}
	be := fakedev.New(g)
	a := alloc(t, be, 1, 1)
	require.True(t, g.closed)
	before := g.closes
	be.Queue().Copy(a, a)
	require.NoError(t, be.Queue().Err())
	require.True(t, g.closed)
	require.Equal(t, before+1, g.closes)
	require.NoError(t, be.Close())
	require.False(t, g.closed)
}
