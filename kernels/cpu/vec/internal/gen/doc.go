// Command gen writes the assembly of package vec, the stubs that declare it to
// Go and the wrappers around it. Run it with go generate in the folder of
// package vec; with -check it writes nothing and fails if a file is not what it
// would write, which is also what its test does.
//
// The instructions that Go's assembler lacks, VDPBF16PS above all, come from a
// small EVEX encoder (evex.go) as BYTE directives. Elementwise kernels are
// described once (ops.go) and written for both AVX-512, with a masked tail, and
// AVX2, whose tails are left to the Go functions of package vec. Matrix products
// have a generator for each family of instructions (gemmdot.go, gemmfma.go,
// gemmavx2.go), because registers decide their shape.
package main
