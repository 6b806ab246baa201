// Package report writes what runs found for people: one HTML file, and the same
// tables as CSV and Markdown.
//
// Gather reads run directories of any kind, of strategies, of a load experiment, of
// a sweep with the points in it, and result files of vllm bench serve and Spec-Bench,
// into a Report: stamps and audit verdicts, which come
// first, provenance, tables and plots. Acceptance comes from the records, speeds from
// summary.json. HTML, CSV and Markdown print a Report and add nothing.
//
// The HTML file needs nothing beside it: plots are SVG, made here, and the one script,
// which sorts tables, is in the file and the only one that its content security
// policy lets run, by its hash. It works in light and dark and at the width of a
// phone. Names of runs, prompts and servers are text wherever they come out.
package report
