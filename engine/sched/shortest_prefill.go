package sched

import "exacta.dev/exacta/kernels"

// ageing is the number of tokens by which a waiting sequence counts as shorter
// with each step that it has waited: a page. So a prompt of 8,192 tokens is
// overtaken by newcomers for 128 steps at most.
const ageing = kernels.PageTokens

// shortestPrefill admits the sequence with the fewest tokens to compute before
// its first new one, which makes the mean time to the first token least; with
// ageing, so that a long prompt is not starved by short ones.
type shortestPrefill struct{}

var _ Policy = shortestPrefill{}

func (shortestPrefill) Name() string { return "shortest-prefill" }

func (shortestPrefill) Before(a, b Candidate) bool { return cost(a) < cost(b) }

func (shortestPrefill) LooksUp() bool { return true }

func cost(c Candidate) int64 { return int64(c.Known-c.Cached) - ageing*c.Waited }
