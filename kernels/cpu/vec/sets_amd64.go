package vec

// machineSets returns the sets of this machine that are not portable.
func machineSets() []*Set { return nil }

// Pause executes a PAUSE instruction: what a spin loop does between two looks at
// its variable.
func Pause()
