package sched

import (
	"slices"

	"exacta.dev/exacta/engine/cache"
	"exacta.dev/exacta/kernels"
)

// pending reports whether a sequence should wait because one that is in
// prefill now is about to put a longer prefix of it into the cache than there
// is: of a burst of prompts that begin alike, the first computes what they
// share and the others hit. The wait ends with the shared part, or with the
// other sequence. Where a hit needs a snapshot, the other is made to save one
// at the end of what the two share.
func (p *planner) pending(s *sequence, hit cache.Hit) bool {
	if p.prefix == nil || p.cfg.Recurrent && !p.snapshots() {
		return false
	}
	for _, r := range p.running {
		if r.decoding || r.space != s.space {
			continue
		}
		shared := min(sharedPages(r.known, s.known), deepest(s))
		if shared <= hit.Length || shared <= r.length {
			continue
		}
		if p.snapshots() {
			if i, found := slices.BinarySearch(r.borders, shared); !found {
				r.borders = slices.Insert(r.borders, i, shared)
			}
		}
		return true
	}
	return false
}

// snapshots reports whether prefix hits need snapshots, and there are any.
func (p *planner) snapshots() bool {
	return p.prefix != nil && p.cfg.Recurrent && p.cfg.Snapshots > 0
}

// deepest returns the length of the longest prefix hit that the known tokens
// can have: full pages, and one token left to compute.
func deepest(s *sequence) int {
	return (len(s.known) - 1) / kernels.PageTokens * kernels.PageTokens
}

// sharedPages returns the number of tokens in the full pages that a and b
// begin with.
func sharedPages(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n / kernels.PageTokens * kernels.PageTokens
}
