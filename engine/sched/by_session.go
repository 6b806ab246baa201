package sched

// bySession admits in the order in which the sessions of the requests began: the
// next turn of one that has been going on is admitted before the first of a
// newer one, so that sessions end, and their pages with them, before others
// begin. A request without a session is a session of its own.
type bySession struct{}

var _ Policy = bySession{}

func (bySession) Name() string { return "session" }

func (bySession) Before(a, b Candidate) bool { return a.Session < b.Session }

func (bySession) LooksUp() bool { return false }
