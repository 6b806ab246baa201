package sample

import "exacta.dev/exacta/kernels"

// Purpose names what noise is for. Streams of different purposes never share a
// word.
type Purpose uint8

// Purposes of noise.
const (
	// Target is the coupled rule's Gumbel noise, keyed by the position of
	// the token that is chosen, with offset 0; index = token id. Target and
	// drafts share it on purpose.
	Target Purpose = iota
	// Draft is what a drafter samples its tokens with, keyed by the
	// committed length at the step's start, and the offset (the index of
	// the draft, or its tree node).
	Draft
	// Verify holds the uniforms that decide about acceptance, keyed like
	// Draft.
	Verify
	// Recovery picks the token after the accepted drafts, keyed like Draft;
	// offset = the row of the last one: in a chain, the number of accepted
	// drafts.
	Recovery
	// Simulate holds the one uniform of a step that draws how many drafts a
	// simulated verification accepts, keyed by the committed length at the
	// step's start, with offset 0 and index 0.
	Simulate
)

// Stream is noise of one purpose.
type Stream = kernels.Noise

// Stream returns the noise for one purpose at a length (or, for Target, a
// position) and an offset. The Philox key is the seed; the counter is
//
//	word 0: index / 2
//	word 1: length
//	word 2: choice
//	word 3: offset * 256 + purpose
//
// so different arguments give streams without a common word, for lengths below
// 2^32 and offsets below 2^24.
func (p Params) Stream(purpose Purpose, length, offset int) Stream {
	return Stream{
		Key: [2]uint32{uint32(p.Seed), uint32(p.Seed >> 32)},
		Ctr: [4]uint32{0, uint32(length), p.Choice, uint32(offset)<<8 | uint32(purpose)},
	}
}
