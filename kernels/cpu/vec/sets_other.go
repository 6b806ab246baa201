//go:build !amd64

package vec

// machineSets returns no set: only amd64 has assembly.
func machineSets() []*Set { return nil }

// Pause does nothing here; on amd64 it is the PAUSE instruction of a spin loop.
func Pause() {}
