package acceptance

import "exacta.dev/exacta/engine"

// Sum is a sum of counts of one kind. Sums of different kinds are different
// types, as the counts are, so that accepted drafts can't be added to emitted
// tokens.
type Sum[T engine.Proposed | engine.Accepted | engine.AcceptLength | engine.Emitted] int64

// Add adds one count.
func (s *Sum[T]) Add(n T) { *s += Sum[T](n) }

// Per returns the mean over n, or 0 if n is 0.
func (s Sum[T]) Per(n int64) float64 { return ratio(int64(s), n) }

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
