//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

var (
	_ kernels.Looper    = (*Backend)(nil)
	_ kernels.LoopQueue = (*queue)(nil)
)

// Layout of an entry in pinned memory, in words: its number from 1 on, which is
// written last; the device's clock; three counters; the data.
const (
	ringClock   = 2
	ringWork    = 4
	ringData    = 16
	ringCounter = 8 // bytes of device memory: how many were posted
)

// postViews is POST_VIEWS: the views of one entry.
const postViews = 4

// ring is pinned memory that kernels write and the host polls.
type ring struct {
	q       *queue
	mem     *driver.HostMemory
	posted  block
	entries int
	words   int
	taken   uint32
	misses  int
	work    []kernels.Counters // counted at launch, of the entries to come
	closed  bool
}

// Ring implements kernels.Looper.
func (be *Backend) Ring(entries, words int) (kernels.Ring, error) {
	if err := be.usable("ring"); err != nil {
		return nil, err
	}
	if entries <= 0 || words < 0 || words > 1<<24 {
		return nil, fmt.Errorf("ring: %d entries of %d words", entries, words)
	}
	r := &ring{q: be.q, entries: entries, words: (words + ringData + 31) &^ 31}
	var err error
	if r.posted, err = be.zeroed(kernels.Tables, ringCounter, 0); err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	if err := be.enter(); err != nil {
		return nil, err
	}
	defer be.leave()
	if r.mem, err = be.ctx.AllocHost(int64(4 * entries * r.words)); err != nil {
		return nil, err
	}
	clear(r.mem.Bytes)
	return r, nil
}

// entry returns the words of entry i.
func (r *ring) entry(i uint32) []byte {
	n := 4 * r.words
	return r.mem.Bytes[int(i%uint32(r.entries))*n:][:n]
}

// patience is how many looks in vain come before one at the stream's state.
const patience = 1 << 14

// Take implements kernels.Ring. No call of it waits for the device.
func (r *ring) Take(e *kernels.Entry) (bool, error) {
	q := r.q
	if q.err != nil || q.be.closed || r.closed {
		return false, q.Err()
	}
	b := r.entry(r.taken)
	if atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[0]))) != r.taken+1 {
		q.settle(q.fault())
		if r.misses++; q.err == nil && r.misses%patience == 0 {
			q.settle(r.alive())
		}
		return false, q.err
	}
	r.taken++
	r.misses = 0
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[4*i:]) }
	e.At = time.Duration(word(ringClock))
	e.Work = r.work[0] // before append moves the others
	r.work = append(r.work[:0], r.work[1:]...)
	e.Work.AttendRows, e.Work.KVTokens, e.Work.DeltaRows = word(ringWork), word(ringWork+2), word(ringWork+4)
	n := int(binary.LittleEndian.Uint32(b[4:]))
	e.Data = e.Data[:0]
	for i := range n {
		e.Data = append(e.Data, int32(binary.LittleEndian.Uint32(b[4*(ringData+i):])))
	}
	return true, nil
}

// alive looks, without waiting, whether the stream has failed, or has nothing left to
// do that could bring the entry.
func (r *ring) alive() error {
	if err := r.q.be.enter(); err != nil {
		return err
	}
	defer r.q.be.leave()
	_, err := r.q.stream.Done()
	return err
}

// Close implements kernels.Ring.
func (r *ring) Close() error {
	be := r.q.be
	if r.closed || be.closed {
		return nil
	}
	r.closed = true
	if err := be.release(r.posted); err != nil {
		return err
	}
	if err := be.enter(); err != nil {
		return err
	}
	defer be.leave()
	return be.ctx.FreeHost(r.mem)
}

// posting is an entry that a program leaves: work counted from its start.
type posting struct {
	ring *ring
	work kernels.Counters
}

// Post implements kernels.LoopQueue.
func (q *queue) Post(to kernels.Ring, views ...kernels.Buf) {
	q.do(opPost, func() {
		r, ok := to.(*ring)
		if !ok || r.q != q || r.closed {
			q.fail("the ring is not of this backend, or closed")
			return
		}
		if len(views) > postViews {
			q.fail("%d views; at most %d are posted together", len(views), postViews)
			return
		}
		a := postArgs{env: q.head(), mem: r.mem.Dev, posted: r.posted.ptr, entries: int32(r.entries), words: int32(r.words)}
		n := 0
		for i, b := range views {
			o := q.of(b, "view", kernels.I32, 0, -1)
			a.views[i], a.cols[i] = o.view(), int32(o.cols)
			n += o.rows * o.cols
		}
		if n+ringData > r.words {
			q.fail("%d words in an entry of %d", n, r.words-ringData)
		}
		*args[postArgs](q) = a
		q.launch(kPost, 1, 1, 0)
		if q.bad != nil {
			return
		}
		if q.recording != nil {
			q.recording.posts = append(q.recording.posts, posting{ring: r, work: q.recording.work})
		} else {
			r.work = append(r.work, q.work)
		}
	})
}

// drawChunk is DRAW_CHUNK, drawPart the size of Best.
const (
	drawChunk = 4096
	drawPart  = 16
)

// Draw implements kernels.LoopQueue.
func (q *queue) Draw(dst, stats, logits, how kernels.Buf, b *kernels.Batch, vocab int) {
	q.do(opDraw, func() {
		n := b.LogitRows
		s, x := q.of(stats, "stats", kernels.I32, n, kernels.StatCols), q.of(logits, "logits", kernels.F32, n, -1)
		h := q.of(how, "how", kernels.I32, b.Spans, kernels.DrawCols)
		a := drawArgs{
			env: q.head(), b: q.batch(b), dst: q.table(dst, "dst", n), stats: s.view(), how: h.view(), x: x.view(),
			parts: q.scratch.ptr, vocab: int32(vocab), chunks: int32(ceil(vocab, drawChunk)),
		}
		if vocab < 1 || vocab > x.cols || n*int(a.chunks)*drawPart > int(q.scratch.bytes) {
			q.fail("%d rows of a vocabulary of %d in %d columns", n, vocab, x.cols)
		}
		*args[drawArgs](q) = a
		q.launch(kDrawParts, int(a.chunks), n, 0)
		q.launch(kDraw, ceil(n, threads), 1, 0)
	})
}

// Limit implements kernels.LoopQueue.
func (q *queue) Limit(drafts, left, most kernels.Buf) {
	q.do(opLimit, func() {
		n := int(drafts.Rows)
		d := q.of(drafts, "drafts", kernels.I32, n, -1)
		*args[limitArgs](q) = limitArgs{
			env: q.head(), left: q.table(left, "left", n), most: q.table(most, "most", n), drafts: d.view(), width: int32(d.cols), n: int32(n),
		}
		q.launch(kLimit, ceil(n, threads), 1, 0)
	})
}

// Halt implements kernels.LoopQueue.
func (q *queue) Halt(slots, left, kept, next, drafts, stops kernels.Buf) {
	q.do(opHalt, func() {
		n := int(slots.Rows)
		e := q.of(stops, "stops", kernels.I32, n, -1)
		a := haltArgs{
			env: q.head(), slots: q.table(slots, "slots", n), left: q.table(left, "left", n),
			kept: q.table(kept, "kept", n), next: q.table(next, "next", n), stops: e.view(), each: int32(e.cols), n: int32(n),
		}
		if !drafts.None() {
			d := q.of(drafts, "drafts", kernels.I32, n, -1)
			a.drafts, a.width = d.view(), int32(d.cols)
		}
		*args[haltArgs](q) = a
		q.launch(kHalt, ceil(n, threads), 1, 0)
	})
}
