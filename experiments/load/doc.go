// Package load puts a workload on a server and measures what its clients see.
//
// Run sends the requests of a workload.Plan over streaming connections to one
// address and returns a Row for each. Everything else is pure: Measure turns rows
// into Figures, Pool joins the figures of repeats, Compare counts wins, ties and
// losses, Decompose splits a speed-up into speed of a request and requests at
// work. So a recorded file of rows gives the figures again, to the last digit.
//
// Names and formulas are those of the field's common tools, made unambiguous:
// ttft is the time to the first chunk with content, tpot = (last - first) / (n - 1)
// over n output tokens, icl the gap between chunks, itl a chunk's gap spread over
// its tokens, e2e the time to the last content, all from the sending of the
// request; ttft_sched counts from the time for which sending was planned, so that
// a target that holds the load up does not look better for it. Percentiles are
// linearly interpolated between values, as numpy does.
//
// Acceptance is not measured here: it is in the records of the engine alone.
//
// # Files of a load experiment
//
// A run directory of a load experiment has
//
//	config.yaml                  the configuration as it was run
//	summary.json                 Summary: kind "load", every figure by target and point
//	workloads/POINT.rN.jsonl     the sessions of a point's Nth repeat: ids, lengths, times, no prompts
//	cells/TARGET.POINT.rN/
//	  requests.jsonl             a Row a line, in the order of the workload
//	  cell.json                  Cell; written last, by rename: without it the cell is not finished
//	targets/TARGET/
//	  server.log                 what a server that the run started printed
//	  serve-TIME/                of the engine in this process: records, in the format of exacta serve --records
//
// N counts from 0. Names of targets and points have letters, digits, '-' and '_'.
package load
