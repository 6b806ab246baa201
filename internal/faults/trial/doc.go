// Package trial makes small runs of a model in memory: a setup and a seed give
// requests, the requests run through an engine of their own, and what was asked,
// recorded and received is kept for the audits.
//
// A run may be wired: an interposer, another rule, another drafter or another
// way of reporting stand in the places where an engine goes wrong. The run and
// its result do not say so; whoever judges the result has the records alone.
package trial
