// Package experiments runs speculative-decoding experiments from configuration
// files and reports them.
//
// A configuration (Config; strict YAML, see ParseConfig) names a model, prompts,
// draft strategies with their k, and concurrencies. Run measures every point
// (strategy x k x concurrency) in interleaved rounds, so that what the machine
// does beside it falls on all points alike, and a ratio to plain decoding is
// taken between neighbours of one round. Every step goes to the records
// (package acceptance); the acceptance figures of the report are computed from
// them and from nothing else. Outputs and the hashes of logits rows are compared
// with the plain run of one sequence: the column "exact" says yes only if every
// token and every committed row agrees bit for bit.
//
// A strategy with simulate (Simulate) has its accept lengths drawn instead of
// decided. Only speeds can be read from a run with such a strategy, so nothing in
// it is called exact: not the simulated points, and not those beside them, since
// one table with both would be read as one claim. A difference that is found at
// a point that is not simulated is told all the same, and fails the run.
//
// A run directory holds the configuration as it was run, provenance, records,
// outputs and summary.json, and can be audited and analysed later.
package experiments
