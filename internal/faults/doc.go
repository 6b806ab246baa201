// Package faults breaks an engine in the ways in which engines were broken, and
// shows which audit notices.
//
// A Fault is one such way: a class of the catalogue (B1 to B27), or one of the
// cases beside it, written as the public engine that its comment names really
// had it. It changes what the engine, its drafter or its rule does while a run
// is made, through engine.Interposer, a wrapped queue, a wrapped drafter or a
// replaced rule; records are never touched after the engine made them, and the
// audits are given nothing but the case: they don't know that there are faults.
// Each fault declares the run that it needs, since a fault that nothing
// provokes is none.
//
// Check makes the runs of every fault and as many healthy runs of every
// strategy, audits all of them alike, and returns the matrix: which audit caught
// what, and what it says. A fault that no audit catches is a bug of the audits,
// and so is a healthy run that one of them flags.
package faults
