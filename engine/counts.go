package engine

// The four counts of speculative decoding are different types, so that one
// can't be read for another. They meet only through the conversions below.
type (
	// Proposed counts draft tokens that a drafter proposed and the target
	// verified.
	Proposed int32
	// Accepted counts draft tokens that the rule accepted.
	Accepted int32
	// AcceptLength is the accepted drafts plus the one token that every
	// verification yields.
	AcceptLength int32
	// Emitted counts tokens that reached the client, after stop and length
	// cuts.
	Emitted int32
)

// Length returns the accept length of a verification that accepted a drafts.
func (a Accepted) Length() AcceptLength { return AcceptLength(a) + 1 }
