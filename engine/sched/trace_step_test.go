package sched

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/datadriven"
)

// step plans, computes and commits steps, and prints the plans. In each step,
// accept drafts of a sequence are right (0 if not given), the sequences of done
// come to their end, and those of cancel are cancelled in flight. The plans of
// the first skip steps are not printed; n=0 runs to the end of all requests and
// prints only the number of steps.
//
//	step [n=N] [skip=N] [accept=N] [done=ID,...] [cancel=ID,...]
func (h *harness) step(d *datadriven.TestData) string {
	args, _ := h.args(d)
	h.accept, h.done, h.cancelled = 0, nil, nil
	n, skip := 1, 0
	for key, v := range args {
		switch key {
		case "n":
			n = h.number(v)
		case "skip":
			skip = h.number(v)
		case "accept":
			h.accept = h.number(v)
		case "done":
			h.done = h.ids(v)
		case "cancel":
			h.cancelled = h.ids(v)
		default:
			d.Fatalf(h.t, "no option %q", key)
		}
	}
	if n == 0 {
		steps := 0
		for h.core.Len() > 0 {
			if _, err := h.world.step(); err != nil {
				return text(err)
			}
			steps++
		}
		return fmt.Sprintf("%d steps\n", steps)
	}
	var b strings.Builder
	for i := range skip + n {
		p, err := h.world.step()
		if i >= skip {
			b.WriteString(p.String())
		}
		if err != nil {
			b.WriteString(text(err))
			break
		}
	}
	return b.String()
}

func contains[T comparable](list []T, x T) bool { return slices.Contains(list, x) }
