// Package grammar says which tokens may come next so that an output matches a
// regular expression. A pattern (syntax of Go's regexp, which is RE2's) must
// match the whole output; a token may come next if some continuation of the
// output with it matches, and a token that ends the text if the output matches
// as it is.
//
// # From a pattern to tokens
//
// The pattern becomes an automaton over bytes: the program of regexp/syntax
// with each set of runes written as sequences of byte ranges of UTF-8, as RE2
// does it (Cox 2010, "Regular expression matching in the wild"). A token is the
// bytes that it stands for, so a rune may be spread over tokens and a token may
// hold the end of one word and the beginning of another. The automaton is made
// deterministic as far as it is visited, and dead ends are cut off beforehand:
// a state that is left can always reach a match. This is the construction of
// Willard and Louf 2023 (arXiv:2307.09702), done lazily.
//
// The tokens of a [Vocabulary] are kept sorted by their bytes, so that the mask
// of a state walks each common prefix once. Masks are kept by state; both caches
// are bounded, and dropped when they are full, which costs time and changes
// nothing.
//
// # A state is a value
//
// A [State] is a string that names the positions in the pattern that the output
// may be at. It belongs to no cache and to no grammar object, so that a sampler
// can copy it, look ahead along a draft, and take it up again after a
// preemption. All that this package computes is a function of pattern, tokens
// and state.
//
// Text that is not valid UTF-8 matches nothing. The assertions ^, $, \A and \z
// are taken as the ends of the text; \b, \B and line ends in the middle are
// refused.
package grammar
