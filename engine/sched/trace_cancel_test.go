package sched

import (
	"fmt"

	"github.com/cockroachdb/datadriven"
)

// cancel ends a sequence between two steps:
//
//	cancel ID
func (h *harness) cancel(d *datadriven.TestData) string {
	_, rest := h.args(d)
	return fmt.Sprintln(h.world.cancel(int64(h.number(rest[0]))))
}
