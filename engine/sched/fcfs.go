package sched

// fcfs admits in order of arrival. A preempted sequence keeps its place.
type fcfs struct{}

var _ Policy = fcfs{}

func (fcfs) Name() string { return "fcfs" }

func (fcfs) Before(a, b Candidate) bool { return a.Arrival < b.Arrival }

func (fcfs) LooksUp() bool { return false }
