package sched

import "errors"

// Reasons for which Submit refuses a request.
var (
	// ErrEmpty: the prompt has no token.
	ErrEmpty = errors.New("empty prompt")
	// ErrTooLong: the prompt, or the length asked for, does not fit the
	// context, or the prompt leaves no room for output.
	ErrTooLong = errors.New("too long for the context")
	// ErrDuplicate: a request of this id is waiting or running.
	ErrDuplicate = errors.New("duplicate id")
	// ErrDrafts: K is out of range.
	ErrDrafts = errors.New("draft length out of range")
)

// Request asks for the continuation of a prompt.
type Request struct {
	ID int64
	// Prompt is copied.
	Prompt []int32
	// MaxLen is the most tokens that the sequence may have, prompt and
	// output together; more than the prompt, at most Config.Context.
	MaxLen int
	// K is the most drafts wanted in a step, below kernels.WindowTokens.
	K int
	// Fixed says that the output has MaxLen tokens unless it is cancelled:
	// nothing stops it.
	Fixed bool
	// Priority: a request of a higher one is admitted before all of lower
	// ones and is preempted after them. Nothing ages out of its priority.
	Priority int
	// Session names the conversation that the prompt continues, within its
	// Space; empty for none. The pages of a session's last request are kept
	// for its next one while there is room (Config.Sessions), and the policy
	// "session" goes by it.
	Session string
	// Space separates prefix caches: a prompt only hits pages of its own
	// space. Requests whose pages differ in what they hold (another
	// device drafter's keys and values), or may not be seen to hit (another
	// tenant's), have different spaces.
	Space string
}
