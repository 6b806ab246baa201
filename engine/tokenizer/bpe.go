package tokenizer

import (
	"math/bits"
	"math/rand/v2"
)

// bpe holds the merges: a pair of neighbouring ids, left<<32|right, gives its
// rank (the lowest is merged first) and the id that replaces it, rank<<32|id.
// It is an open hash table with linear probing, at most half full; its
// multiplier is random, so that no file can be made to fill one run of slots.
// Slots are small and point at the merges, which lie in the order of the file, the
// frequent ones together, so that most of what a text asks for stays in the caches.
// Most pairs of a text have no merge: a bit for each of many hashes tells so for
// most of them.
type bpe struct {
	slots  []uint32 // number of the merge from 1 on, and a tag above it; 0 is empty
	merges []mergeEntry
	shift  uint
	mult   uint64
	maybe  []uint64 // bits by a hash of the pair
	wide   uint     // the shift that leaves a hash of the pair
	// bytes is the merge of every two bytes, with which each word of a byte-level
	// vocabulary begins; nil for others.
	bytes *[256][256]uint64
}

// mergeEntry is one pair and what it becomes.
type mergeEntry struct{ pair, merge uint64 }

// noMerge is the entry of a pair that does not merge; it is above all ranks.
const noMerge = ^uint64(0)

// numberBits is the part of a slot that is a merge's number; the rest is a tag of
// the pair's hash.
const numberBits = 22

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// newBPE makes an empty table for n merges, at most maxMerges.
func newBPE(n int) bpe {
	bits := bits.Len(uint(2*n + 1))
	m := bpe{slots: make([]uint32, 1<<bits), merges: make([]mergeEntry, 0, n), shift: uint(64 - bits), mult: rand.Uint64() | 1}
	wide := max(bits+2, 6) // 8 to 16 bits for each merge
	m.maybe, m.wide = make([]uint64, 1<<(wide-6)), uint(64-wide)
	return m
}

// addBytes fills the table of two bytes, when all merges are there.
func (m *bpe) addBytes(s *byteSymbols) {
	m.bytes = new([256][256]uint64)
	for a, left := range s {
		for b, right := range s {
			m.bytes[a][b] = m.lookup(left, right)
		}
	}
}

// tagOf is the tag of a pair's hash, in its place in a slot.
func tagOf(product uint64) uint32 { return uint32(product>>16) &^ (1<<numberBits - 1) }

// add enters a merge; a pair that is there already takes the new one, as in
// the reference.
func (m *bpe) add(pair, merge uint64) {
	product := pair * m.mult
	at := int(product >> m.shift)
	for ; m.slots[at] != 0; at = (at + 1) & (len(m.slots) - 1) {
		if e := &m.merges[m.slots[at]&(1<<numberBits-1)-1]; e.pair == pair {
			e.merge = merge
			return
		}
	}
	m.merges = append(m.merges, mergeEntry{pair, merge})
	m.slots[at] = uint32(len(m.merges)) | tagOf(product)
	h := product >> m.wide
	m.maybe[h>>6] |= 1 << (h & 63)
}

func (m *bpe) lookup(a, b int32) uint64 {
	pair := pairKey(a, b)
	product := pair * m.mult
	if h := product >> m.wide; m.maybe[h>>6]>>(h&63)&1 == 0 {
		return noMerge
	}
	mask, tag := uint64(len(m.slots)-1), tagOf(product)
	for at := product >> m.shift; ; at++ {
		s := m.slots[at&mask]
		if s == 0 {
			return noMerge
		}
		if s&^(1<<numberBits-1) == tag {
			if e := &m.merges[s&(1<<numberBits-1)-1]; e.pair == pair {
				return e.merge
			}
		}
	}
}

// shortWord is the number of symbols up to which scanning for the best pair is
// faster than a heap.
const shortWord = 48

// merge merges the symbols of one word in place and returns what is left:
// always the pair of lowest rank, the leftmost of equals.
func (m *bpe) merge(word string, ids []int32, buf *mergeBuffer) []int32 {
	if len(ids) <= shortWord {
		return m.mergeShort(word, ids)
	}
	return m.mergeLong(ids, buf)
}

func (m *bpe) mergeShort(word string, ids []int32) []int32 {
	var space [shortWord]uint64
	pairs := space[:max(len(ids)-1, 0)] // pairs[i] is the merge of ids[i] and ids[i+1]
	if m.bytes != nil && len(ids) == len(word) {
		for i := range pairs {
			pairs[i] = m.bytes[word[i]][word[i+1]]
		}
	} else {
		for i := range pairs {
			pairs[i] = m.lookup(ids[i], ids[i+1])
		}
	}
	for len(pairs) > 0 {
		best := 0
		for i, p := range pairs {
			if p>>32 < pairs[best]>>32 {
				best = i
			}
		}
		if pairs[best] == noMerge {
			break
		}
		ids[best] = int32(uint32(pairs[best]))
		ids = append(ids[:best+1], ids[best+2:]...)
		pairs = append(pairs[:best], pairs[best+1:]...)
		if best > 0 {
			pairs[best-1] = m.lookup(ids[best-1], ids[best])
		}
		if best < len(pairs) {
			pairs[best] = m.lookup(ids[best], ids[best+1])
		}
	}
	return ids
}

// mergeBuffer is the working space of mergeLong, kept between words.
type mergeBuffer struct {
	prev, next []int32
	queue      []candidate
}

// candidate is a pair that stood at a place when it was queued.
type candidate struct {
	key             uint64 // rank<<32|place: the order in which pairs are merged
	left, right, id int32
}

// mergeLong keeps the symbols in a linked list and the pairs in a heap. A
// candidate is stale when its place is gone or now holds another pair.
func (m *bpe) mergeLong(ids []int32, buf *mergeBuffer) []int32 {
	n := len(ids)
	buf.prev, buf.next, buf.queue = resize(buf.prev, n), resize(buf.next, n), buf.queue[:0]
	prev, next := buf.prev, buf.next
	for i := range n {
		prev[i], next[i] = int32(i-1), int32(i+1)
		if i+1 < n {
			buf.offer(m, ids[i], ids[i+1], int32(i))
		}
	}
	for len(buf.queue) > 0 {
		c := buf.pop()
		i := int32(uint32(c.key))
		j := next[i]
		if ids[i] != c.left || int(j) >= n || ids[j] != c.right {
			continue
		}
		ids[i] = c.id
		ids[j] = -1
		next[i] = next[j]
		if k := next[i]; int(k) < n {
			prev[k] = i
			buf.offer(m, ids[i], ids[k], i)
		}
		if k := prev[i]; k >= 0 {
			buf.offer(m, ids[k], ids[i], k)
		}
	}
	out := ids[:0]
	for _, id := range ids {
		if id >= 0 {
			out = append(out, id)
		}
	}
	return out
}

func resize(s []int32, n int) []int32 {
	if cap(s) < n {
		return make([]int32, n)
	}
	return s[:n]
}

// offer queues a pair if it merges.
func (b *mergeBuffer) offer(m *bpe, left, right, pos int32) {
	merge := m.lookup(left, right)
	if merge == noMerge {
		return
	}
	b.queue = append(b.queue, candidate{merge>>32<<32 | uint64(uint32(pos)), left, right, int32(uint32(merge))})
	q := b.queue
	i := len(q) - 1
	c := q[i]
	for i > 0 {
		up := (i - 1) / 2
		if c.key > q[up].key {
			break
		}
		q[i] = q[up]
		i = up
	}
	q[i] = c
}

// pop takes the first candidate off the heap.
func (b *mergeBuffer) pop() candidate {
	q := b.queue
	top := q[0]
	last := len(q) - 1
	c := q[last] // goes to where the hole ends up
	q = q[:last]
	b.queue = q
	for i := 0; last > 0; {
		down := 2*i + 1
		if down >= last {
			q[i] = c
			break
		}
		if down+1 < last && q[down+1].key < q[down].key {
			down++
		}
		if c.key < q[down].key {
			q[i] = c
			break
		}
		q[i] = q[down]
		i = down
	}
	return top
}
