//go:build !invariants

package sched

// invariants switches on costly checks.
const invariants = false
