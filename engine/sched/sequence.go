package sched

import (
	"slices"

	"exacta.dev/exacta/engine/cache"
	"exacta.dev/exacta/kernels"
)

// sequence is a request on its way.
//
// Invariants, between steps:
//
//	waiting:   slot = -1, length = 0, no pages, no path
//	prefill:   length < len(known)
//	decoding:  length = len(known) - 1, the pending token is the last known
//	resident:  length <= len(pages) * PageTokens; the first path.Depth()
//	           pages are the prefix tree's
type sequence struct {
	id, arrival int64
	maxLen      int
	prompt      int // tokens of the prompt
	most, k     int // drafts in a step: asked for, and wanted now
	space       string
	fixed       bool
	priority    int
	session     *session // nil for none

	// known are the prompt and the output so far; it never shrinks.
	known       []int32
	preemptions int
	since       int64 // step from which it has been waiting

	slot     int // -1 while waiting
	length   int // committed tokens
	decoding bool
	pages    []int32
	written  int // entries of the slot's page table that are up to date
	cached   int // tokens of the prefix hit, until told in an item
	restore  int // snapshot of the prefix hit, or -1

	path    cache.Path
	borders []int // ascending lengths at which to save a snapshot
	saving  int   // snapshot that the step in flight saves; -1 is none
	gone    bool  // cancelled while in flight
	planned bool  // in the step in flight
	fresh   bool  // admitted, and its slot not yet reset
	held    bool  // a device loop decodes it
}

// pagesFor returns the number of pages for n positions.
func pagesFor(n int) int { return (n + kernels.PageTokens - 1) / kernels.PageTokens }

// maxPages returns the number of pages that the sequence can ever need: its
// last token is never computed.
func (s *sequence) maxPages(lookahead int) int { return pagesFor(s.maxLen - 1 + lookahead) }

// growth returns 1 if the sequence, with held pages, may come to need one more,
// else 0.
func (s *sequence) growth(held, lookahead int) int {
	if s.maxPages(lookahead) > held {
		return 1
	}
	return 0
}

// setPages returns the operation that brings the slot's page table up to date.
func (s *sequence) setPages() Op {
	op := Op{Kind: SetPages, ID: s.id, Slot: s.slot, First: s.written, Pages: slices.Clone(s.pages[s.written:])}
	s.written = len(s.pages)
	return op
}

// chunk returns the prefill rows that the sequence may have in a step: up to
// the known tokens' end, the chunk size, or the next border.
func (s *sequence) chunk(limit int) int {
	n := min(len(s.known)-s.length, limit)
	if len(s.borders) > 0 {
		n = min(n, s.borders[0]-s.length)
	}
	return n
}

// wants returns the drafts that a decoding sequence can use: the step yields
// one token more than it accepts.
func (s *sequence) wants() int { return max(0, min(s.k, s.maxLen-len(s.known)-1)) }

// forget returns the sequence to its state before admission.
func (s *sequence) forget() {
	s.slot, s.length, s.decoding, s.pages, s.written = -1, 0, false, nil, 0
	s.cached, s.path, s.borders, s.saving, s.fresh = 0, cache.Root(s.space), nil, -1, false
}

func (s *sequence) candidate(step int64) Candidate {
	c := Candidate{
		ID: s.id, Arrival: s.arrival, Waited: step - s.since, Known: len(s.known),
		MaxLen: s.maxLen, Preemptions: s.preemptions, Session: s.arrival,
	}
	if s.session != nil {
		c.Session = s.session.first
	}
	return c
}
