// Package workload makes the requests of load experiments: what is asked, of how
// many tokens, when, and after what.
//
// A workload is a list of sessions. A session is a small graph of requests: one
// request for a prompt of a prompt set, a tree of turns, pauses and subagents for
// a recorded agent run. A source (Source; registered by name) makes the sessions,
// an arrival process (Arrival; registered by name) says when they start: at times
// that are computed before the run, or whenever one of N lanes is free.
//
// Everything is a function of settings and seed: Make gives the same plan each
// time, so that every target gets the same requests in the same order. Plan.Hash
// names it.
//
// Prompts are token ids wherever a tokenizer is known, so that every target reads
// the same tokens whatever its own tokenizer or template would do; without one,
// sources of text give text.
package workload
