package experiments

import _ "embed"

//go:embed quickstart.yaml
var quickstart []byte

// Quickstart returns the experiment that exacta run starts without a file.
func Quickstart() (Config, error) { return ParseConfig("quickstart.yaml", quickstart) }
