// Package sched decides what each step of the engine computes, for which
// sequences, in which memory. It has no clock, goroutine or I/O.
package sched
