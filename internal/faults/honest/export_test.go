package honest_test

import "exacta.dev/exacta/engine"

var discard = engine.RecorderFunc(func(*engine.Record) error { return nil })
