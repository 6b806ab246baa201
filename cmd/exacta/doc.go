// Command exacta runs, measures and audits speculative decoding on its own BF16
// engine.
//
//	exacta run                      the default experiment on the embedded model
//	exacta generate "func main"     stream a continuation, coloured by how tokens came
//	exacta audit runs/NAME          prove the outputs of a run
//
// Results go to stdout, errors and progress to stderr. Exit codes: 0 fine, 1 the
// thing checked is false, 2 wrong use or bad input, 130 interrupted. Every
// command takes --json for programs.
package main
