package faults

import (
	"exacta.dev/exacta/internal/faults/trial"
)

// Fault is one way to be wrong.
type Fault struct {
	// ID is the class: B1 to B27 of the catalogue, E1 and on for cases beside
	// it, 8a to 8c for the three forms of a speed that is 8 % too high.
	ID string
	// Name tells the variants of a class apart.
	Name string
	// Report is where it was seen in public.
	Report string
	// Setup is the run that provokes it.
	Setup trial.Setup
	// Expect are the audits that have to find it, for classes that the
	// catalogue does not have.
	Expect []string
	// Outside says what an endpoint shows of it to one who has no records;
	// only the 8 % cases say so.
	Outside string

	arm func(a *arming) trial.Wiring
}

// arming is what a fault may know of the run that it goes into.
type arming struct {
	seed    uint64
	setup   trial.Setup
	plain   map[string][]int32 // plain continuations by request
	machine *trial.Machine
}

// Names of the audits.
const (
	tokens = "tokens"
	counts = "counts"
	work   = "work"
)

// All lists the faults: the catalogue's in its order, then the others.
func All() []Fault {
	var out []Fault
	for _, list := range [][]Fault{simulationFaults(), countFaults(), cacheFaults(), ruleFaults(), rowFaults(), rankFaults(), draftFaults(), vendorFaults(), loopFaults(), eightPercent()} {
		out = append(out, list...)
	}
	sortByClass(out)
	return out
}
