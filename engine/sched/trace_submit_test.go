package sched

import (
	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// submit adds a request. A prompt is a list as in traces: 64*1,5..9 is 64 ones
// and the numbers from 5 to 9.
//
//	submit ID prompt=LIST max=N [k=N] [space=NAME] [session=NAME] [priority=N] [fixed]
func (h *harness) submit(d *datadriven.TestData) string {
	args, rest := h.args(d)
	r := Request{ID: int64(h.number(rest[0])), Space: args["space"], Session: args["session"], MaxLen: h.number(args["max"])}
	if k := args["k"]; k != "" {
		r.K = h.number(k)
	}
	if p := args["priority"]; p != "" {
		r.Priority = h.number(p)
	}
	r.Fixed = contains(rest, "fixed")
	var err error
	r.Prompt, err = parseTokens(args["prompt"])
	require.NoError(h.t, err)
	return text(h.world.submit(r))
}
