package sched

import (
	"fmt"
	"strings"
)

// Policy is an order of admission among requests of one priority. It is a
// function of its arguments alone.
type Policy interface {
	// Name is the name by which a configuration asks for the policy.
	Name() string
	// Before reports whether a is to be admitted before b: a strict weak
	// order, in which candidates that tie are taken in order of arrival.
	Before(a, b Candidate) bool
	// LooksUp reports whether Before goes by Candidate.Cached, which takes a
	// look-up in the prefix cache for every waiting sequence; else it is 0.
	LooksUp() bool
}

// Candidate is what a policy knows of a waiting sequence.
type Candidate struct {
	ID          int64
	Arrival     int64 // count of requests submitted before it
	Waited      int64 // steps planned since it was submitted or preempted
	Known       int   // known tokens: the prompt, and after a preemption the output
	Cached      int   // of those, tokens that the prefix cache has now
	MaxLen      int
	Preemptions int
	// Session is the Arrival of the first request of the candidate's session,
	// its own if it has none.
	Session int64
}

// policies is the registry: a new policy is a file and an entry here.
var policies = []Policy{fcfs{}, shortestPrefill{}, bySession{}}

// Policies returns the names of the policies. The first is the default.
func Policies() []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.Name()
	}
	return names
}

func policyByName(name string) (Policy, error) {
	if name == "" {
		return policies[0], nil
	}
	for _, p := range policies {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("unknown policy %q, want one of %s", name, strings.Join(Policies(), ", "))
}
