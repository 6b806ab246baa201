package kernels

import (
	"slices"
	"time"
)

// Entry is what one Post left in a ring.
type Entry struct {
	// At is when the operation ran, on the backend's clock.
	At time.Duration
	// Work is what the backend had executed by then. A backend may leave out what
	// its kernels count themselves in the step that is running.
	Work Counters
	// Data are the rows of the views that were posted, one behind the other.
	Data []int32
}

// Ring brings entries to the host in the order in which they were posted. The host
// looks whether the next one is there and never waits for the queue: a program posts
// what it decided, and the next replay is under way before the host looks. It has room
// for a fixed number of entries; the host takes them before they are overwritten.
type Ring interface {
	// Take fills e with the next entry and reports whether there was one. The
	// error is the queue's. e.Data is reused.
	Take(e *Entry) (bool, error)
	// Close frees the ring. Programs that post to it may not run any more.
	Close() error
}

// Looper is a Backend whose programs can go on without the host: its queue, and the
// queue that a capture records on, are LoopQueues.
type Looper interface {
	Backend
	// Ring makes a ring of entries of at most words values.
	Ring(entries, words int) (Ring, error)
}

// LoopQueue has the operations of a program that goes on without the host.
type LoopQueue interface {
	Queue
	// Post leaves an entry with the rows of I32 views in a ring.
	Post(r Ring, views ...Buf)
	// Draw chooses a token for each wanted row of b: dst[i] (I32 [LogitRows, 1]) is
	// DrawRow of row i of logits (F32 [LogitRows, >= vocab]), cut to vocab columns,
	// for the position behind its row, with the argmax that stats has and the row of
	// how (I32 [Spans, DrawCols]) of its span; -1 for an idle row.
	Draw(dst, stats, logits, how Buf, b *Batch, vocab int)
	// Limit ends drafts early: drafts[s][j] becomes -1 for all j from
	// min(most[s], left[s]-1) on, 0 at least. left are the tokens that a sequence may
	// still emit, most the drafts that it is to have. left, most I32 [spans, 1],
	// drafts I32 [spans, k].
	Limit(drafts, left, most Buf)
	// Halt takes sequences that end out of a loop. Span s has emitted
	// drafts[s][0..kept[s]-2] and next[s]; left[s], the tokens that it may still
	// emit, falls by kept[s]. If none are left, or one of the tokens is in stops[s],
	// slots[s] becomes -1. Spans whose slot is negative are passed over. slots, left,
	// kept, next I32 [spans, 1], drafts I32 [spans, k] (may be none), stops I32
	// [spans, n] filled up with -1.
	Halt(slots, left, kept, next, drafts, stops Buf)
}

// HaltRow is Halt for one span: it returns the new slot and what is left.
func HaltRow(slot, left, kept, next int32, drafts, stops []int32) (int32, int32) {
	if slot < 0 {
		return slot, left
	}
	left -= kept
	ends := left <= 0
	for j := int32(0); j < kept; j++ {
		id := next
		if j < kept-1 {
			id = drafts[j]
		}
		ends = ends || id >= 0 && slices.Contains(stops, id)
	}
	if ends {
		slot = -1
	}
	return slot, left
}

// MemoryRing is a Ring in the host's memory, for backends that compute there. Advance
// lets the backend run up to what the next entry needs.
type MemoryRing struct {
	Advance func() error
	entries []Entry
}

// Put adds an entry; data are copied.
func (r *MemoryRing) Put(at time.Duration, work Counters, data []int32) {
	r.entries = append(r.entries, Entry{At: at, Work: work, Data: slices.Clone(data)})
}

// Take implements Ring.
func (r *MemoryRing) Take(e *Entry) (bool, error) {
	if len(r.entries) == 0 {
		if err := r.Advance(); err != nil {
			return false, err
		}
	}
	if len(r.entries) == 0 {
		return false, nil
	}
	first := r.entries[0]
	e.At, e.Work, e.Data = first.At, first.Work, append(e.Data[:0], first.Data...)
	r.entries = append(r.entries[:0], r.entries[1:]...)
	return true, nil
}

// Close implements Ring.
func (r *MemoryRing) Close() error { return nil }
