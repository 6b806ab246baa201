package ranks

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
)

// lookup is the number of rows that one lookup of an embedding covers.
const lookup = 256

// Backend is one rank: a [kernels.Backend] whose matrix products are shared with
// the other ranks of its group. One goroutine drives it.
type Backend struct {
	g       *Group
	rank    int
	inner   kernels.Backend
	q       *queue
	weights []weight // by handle less one
	closed  bool

	ids kernels.Buf // I32 [lookup, 1]: ids of rows that this rank keeps

	// The host's side of the exchanges; buffers grow to the largest.
	met      int       // exchanges so far
	slab     [2][]byte // what this rank hands over, by parity
	wanted   []int32   // ids of an embedding
	rows     []byte    // its rows
	hashes   [2][]uint64
	gathered [][]uint64

	done              uint64 // operations that have run
	skipped           uint64 // rows of products in which this rank had no part
	macs, weightBytes uint64 // of all ranks, as of the last product
}

var _ kernels.Backend = (*Backend)(nil)

func newBackend(g *Group, rank int, inner kernels.Backend) (*Backend, error) {
	be := &Backend{g: g, rank: rank, inner: inner}
	var err error
	if be.ids, err = inner.Alloc(kernels.Tables, kernels.I32, lookup, 1); err != nil {
		return nil, err
	}
	be.q = newQueue(be)
	return be, nil
}

// Rank returns the rank's number, from 0.
func (be *Backend) Rank() int { return be.rank }

// Size returns the number of ranks in the group.
func (be *Backend) Size() int { return len(be.g.seats) }

// Info describes the inner backend as one of several.
func (be *Backend) Info() kernels.Info {
	info := be.inner.Info()
	info.Name = fmt.Sprintf("ranks(%s, %d of %d)", info.Name, be.rank, be.Size())
	info.Graphs = false // programs stop at every exchange
	return info
}

// Load takes in this rank's part of a Matrix, Bank or Diagonal, and the whole of other parameters.
// The error names the tensor.
func (be *Backend) Load(t kernels.Tensor) (kernels.Weight, error) {
	// A load that fails uses up a handle, so that handles stay equal on all
	// ranks.
	be.weights = append(be.weights, weight{})
	if err := t.Check(); err != nil {
		return kernels.Weight{}, fmt.Errorf("ranks: %w", err)
	}
	w := weight{name: t.Name, use: t.Use, paired: t.Paired, experts: 1}
	w.rows, w.cols = t.Shape()
	if t.Use == kernels.Bank || t.Use == kernels.Diagonal {
		w.experts = len(t.Experts())
	}
	part, have := t, true
	if t.Use == kernels.Matrix || t.Use == kernels.Bank || t.Use == kernels.Diagonal {
		w.split(be.Size())
		from, to := w.share(be.rank)
		if have = from < to; have {
			part = w.cut(t, be.rank)
		}
	}
	if have {
		var err error
		if w.inner, err = be.inner.Load(part); err != nil {
			return kernels.Weight{}, err
		}
	}
	be.weights[len(be.weights)-1] = w
	return kernels.Weight{ID: uint32(len(be.weights))}, nil
}

// weight resolves a handle.
func (be *Backend) weight(op string, h kernels.Weight, use kernels.Use) (*weight, error) {
	if h.ID == 0 || int(h.ID) > len(be.weights) || be.weights[h.ID-1].use == 0 {
		return nil, fmt.Errorf("%s: there is no weight %d", op, h.ID)
	}
	w := &be.weights[h.ID-1]
	if w.use != use {
		return nil, fmt.Errorf("%s: weight %s was loaded for another use", op, w.name)
	}
	return w, nil
}

// replica translates the handle of a replicated parameter. One that is no such
// parameter becomes a handle that the inner backend refuses in its place.
func (be *Backend) replica(h kernels.Weight) kernels.Weight {
	if h.None() {
		return h
	}
	if int(h.ID) > len(be.weights) || be.weights[h.ID-1].borders != nil || be.weights[h.ID-1].inner.None() {
		return kernels.Weight{ID: ^uint32(0)}
	}
	return be.weights[h.ID-1].inner
}

func (be *Backend) norm(n kernels.Norm) kernels.Norm {
	n.W, n.Bias = be.replica(n.W), be.replica(n.Bias)
	return n
}

// Alloc returns a zeroed buffer of the rank.
func (be *Backend) Alloc(p kernels.Purpose, k kernels.Kind, rows, cols int) (kernels.Buf, error) {
	return be.inner.Alloc(p, k, rows, cols)
}

// Free returns a buffer's memory.
func (be *Backend) Free(b kernels.Buf) { be.inner.Free(b) }

// Caches allocates the caches of an engine, whole on every rank.
func (be *Backend) Caches(spec kernels.CacheSpec) (kernels.Caches, error) {
	return be.inner.Caches(spec)
}

// Queue returns the rank's queue. A product or embedding meets the other ranks
// when it is recorded; everything else is deferred as the inner backend defers
// it.
func (be *Backend) Queue() kernels.Queue { return be.q }

// Work returns the counters of executed work as one backend would count them:
// multiply-adds and weight bytes are those of all ranks together, as of the last
// product; the rest, which every rank does whole, is this rank's. See Own.
func (be *Backend) Work() kernels.Counters {
	c := be.inner.Work()
	if be.q.Err() == nil {
		be.done = be.q.ops
	}
	c.Ops = be.done
	c.MatMulRows += be.skipped
	c.MACs, c.WeightBytes = be.macs, be.weightBytes
	return c
}

// Own returns what this rank has executed alone, its exchanges included.
func (be *Backend) Own() kernels.Counters { return be.inner.Work() }

// Memory returns the bytes that this rank holds.
func (be *Backend) Memory() kernels.Memory { return be.inner.Memory() }

// Gather exchanges a list of hashes, which may be of different lengths, and
// returns the lists of all ranks, by rank, valid until this rank's next Gather.
// All ranks must call it; the error is the group's.
func (be *Backend) Gather(hashes []uint64) ([][]uint64, error) {
	if err := be.q.Err(); err != nil {
		return nil, err
	}
	mine := &be.hashes[be.met&1]
	*mine = append((*mine)[:0], hashes...)
	turn, err := be.meet(place{op: "gathering hashes"}, parcel{hashes: *mine})
	if err != nil {
		return nil, err
	}
	if be.gathered == nil {
		be.gathered = make([][]uint64, be.Size())
	}
	for i := range be.gathered {
		be.gathered[i] = append(be.gathered[i][:0], be.g.seats[i].parcels[turn].hashes...)
	}
	return be.gathered, nil
}

// meet is Group.meet for this rank; its error sticks to the queue.
func (be *Backend) meet(at place, p parcel) (turn int, err error) {
	be.met++
	turn, err = be.g.meet(be.rank, at, p)
	if err != nil {
		be.q.err = err
	}
	return turn, err
}

// Fail ends the group with an error of this rank, unless it has failed before:
// the other ranks get it at their next exchange.
func (be *Backend) Fail(err error) {
	if err != nil {
		_ = be.g.fail(be.rank, err) // the first failure, which Err keeps
	}
}

var errClosed = errors.New("ranks: the backend is closed")

// Close frees the rank's memory. A rank that waits for this one, or that comes to
// another exchange, gets an error.
func (be *Backend) Close() error {
	if be.closed {
		return nil
	}
	be.closed = true
	be.g.leave(be.rank, closed)
	if be.q.err == nil {
		be.q.err = errClosed
	}
	return be.inner.Close()
}
