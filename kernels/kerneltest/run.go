package kerneltest

import (
	"testing"

	"exacta.dev/exacta/kernels"
)

// Options says what a backend promises beyond the common contract.
type Options struct {
	// Float64 says that the backend rounds nothing: where other backends
	// must give equal bits, it may differ by one unit in the last place of
	// the kind that is read.
	Float64 bool
	// Trees says that spans may be trees and not only chains.
	Trees bool
}

// Run runs the suite. open returns a fresh backend; the suite closes it. Each
// subtest opens its own.
func Run(t *testing.T, open func(t *testing.T) kernels.Backend, o Options) {
	s := suite{open: open, o: o}
	for _, g := range []struct {
		name string
		run  func(*testing.T, suite)
	}{
		{"Queue", testQueue},
		{"Errors", testErrors},
		{"Load", testLoad},
		{"Memory", testMemory},
		{"Counters", testCounters},
		{"Moves", testMoves},
		{"Norm", testNorm},
		{"MatMul", testMatMul},
		{"DenseRows", testDenseRows},
		{"Int4", testInt4},
		{"Route", testRoute},
		{"Experts", testExperts},
		{"Stats", testStats},
		{"Tables", testTables},
		{"Attend", testAttend},
		{"NotFinite", testNotFinite},
		{"Select", testSelect},
		{"Masked", testMasked},
		{"SelectBlocks", testSelectBlocks},
		{"Streams", testStreams},
		{"Grams", testGrams},
		{"Delta", testDelta},
		{"Pooled", testPooled},
		{"Spans", testSpans},
		{"Slots", testSlots},
		{"Trees", testTrees},
		{"Capture", testCapture},
		{"Loop", testLoop},
		{"LoopOps", testLoopOps},
	} {
		t.Run(g.name, func(t *testing.T) { g.run(t, s) })
	}
}

// suite is what the tests share.
type suite struct {
	open func(t *testing.T) kernels.Backend
	o    Options
}
