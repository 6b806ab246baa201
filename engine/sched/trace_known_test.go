package sched

import (
	"fmt"
	"slices"

	"github.com/cockroachdb/datadriven"
)

// known compares the tokens of sequences with those that they have when each
// runs alone, and prints how many they have:
//
//	known ID...
func (h *harness) known(d *datadriven.TestData) string {
	_, rest := h.args(d)
	out := ""
	for _, arg := range rest {
		id := int64(h.number(arg))
		got, state := h.world.known[id], "unfinished"
		if end, ok := h.world.done[id]; ok {
			got, state = end, "finished"
		}
		if len(got) == 0 {
			out += fmt.Sprintf("%d: none\n", id)
			continue
		}
		prompt := h.world.prompts[id]
		if want := oracle(prompt, len(got)); !slices.Equal(got, want[:len(got)]) {
			out += fmt.Sprintf("%d: %v, want %v\n", id, got, want)
			continue
		}
		out += fmt.Sprintf("%d: %d tokens, %s\n", id, len(got), state)
	}
	return out
}
