package experiments

import _ "embed"

//go:embed quickstart.yaml
var quickstart []byte

// QuickstartText is the file of the experiment that exacta run starts without one.
func QuickstartText() []byte { return quickstart }
