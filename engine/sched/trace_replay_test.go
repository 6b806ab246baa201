package sched

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/datadriven"
)

// replay runs the trace that was written so far through a new core:
//
//	replay
func (h *harness) replay(*datadriven.TestData) string {
	plans, err := Replay(bytes.NewReader(h.trace.Bytes()))
	if err != nil {
		return text(err)
	}
	return fmt.Sprintf("%d plans are equal\n", plans)
}
