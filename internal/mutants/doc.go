// Package mutants changes the verification and commit code in small ways, one at
// a time, and shows that the audits notice.
//
// A Mutant is one change of one file: a comparison, a sign, a condition, a
// constant, a statement, the order of arguments. Each is compiled with go build
// -overlay into the program in runner, which makes a fixed set of small runs on
// the embedded model and writes down what was asked, recorded and received. The
// honest code of this process then audits them. A mutant whose runs are the
// honest ones in all but times has changed no behaviour that these runs reach,
// and is told apart by that; every other one should be caught: by an audit, or
// because it crashed, hung or ended its runs with an error.
package mutants
