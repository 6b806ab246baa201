//go:build invariants

package cache

// invariants switches on costly checks.
const invariants = true
