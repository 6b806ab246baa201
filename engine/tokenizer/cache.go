package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// The bounds of the word cache: its slots, and the longest word kept. Together
// they keep it below about 8 MB.
const (
	cacheSlots   = 1 << 14
	cacheMaxWord = 64
)

// wordCache remembers the ids of words that come again. It is a direct-mapped
// table: a word that falls on a taken slot replaces what is there, entries never
// change once they are published, and so readers need no lock. A word is kept
// when it comes a second time, which the tag of its slot tells: most words that
// are rare are not copied.
type wordCache struct {
	seed  maphash.Seed
	tags  []atomic.Uint32 // of the word that came last
	slots []atomic.Pointer[cacheEntry]
}

type cacheEntry struct {
	word string
	ids  []int32
}

func newWordCache() *wordCache {
	return &wordCache{maphash.MakeSeed(), make([]atomic.Uint32, cacheSlots), make([]atomic.Pointer[cacheEntry], cacheSlots)}
}

// get returns the ids of a word, and where it is to be put if it is to be: a
// slot, or nil.
func (c *wordCache) get(word string) (ids []int32, slot *atomic.Pointer[cacheEntry]) {
	h := maphash.String(c.seed, word)
	at, tag := h%cacheSlots, uint32(h>>32)
	if c.tags[at].Load() != tag {
		c.tags[at].Store(tag)
		return nil, nil
	}
	slot = &c.slots[at]
	if e := slot.Load(); e != nil && e.word == word {
		return e.ids, slot
	}
	return nil, slot
}

// put stores a copy of a word and its ids.
func (c *wordCache) put(slot *atomic.Pointer[cacheEntry], word string, ids []int32) {
	slot.Store(&cacheEntry{strings.Clone(word), append([]int32(nil), ids...)})
}
