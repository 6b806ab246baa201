// Package lint holds the rules of the tree that a test can check: the direction
// of imports, who may import what, and package comments. It has no code of its
// own; run it with go test.
package lint
