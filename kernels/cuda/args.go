//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// Argument structs of the kernels, as in src. Every kernel takes one, by value.

// env is Env: where faults and counters go.
type env struct {
	fault, work driver.Ptr
	op, _       int32
}

// view is View and Table.
type view struct {
	p        driver.Ptr
	ld, rows int32
}

// batchArgs is Batch.
type batchArgs struct {
	seq, start, length, off      view
	token, pos, parent, span     view
	logit                        view
	spans, rows, logits, maxRows int32
}

type embedArgs struct {
	env
	dst, ids        view
	table           driver.Ptr
	cols, tableRows int32
}

type moveArgs struct {
	env
	dst, src, index view
	cols, mode      int32
}

type normArgs struct {
	env
	dst, x                      view
	w, bias                     driver.Ptr
	eps                         float32
	cols, group, centered, wide int32
	each                        int32 // a weight for every column, not one group's
}

// product is Product: a matrix product as all its forms see it.
type product struct {
	dst, res             view
	bias                 driver.Ptr
	order, chunks, count driver.Ptr
	rows, n, k           int32
	act, dstF32, resF32  int32
	paired, blocks       int32
	each, spread         int32
	fours, _             int32
}

type matMulArgs struct {
	env
	product
	x         view
	w, meta   driver.Ptr
	scaled, _ int32 // columns that share a scale; 0: BF16
}

type hopperArgs struct {
	env
	_              [5]uint64
	wMap, xMap     driver.TensorMap
	p              product
	partial, flags driver.Ptr
	mtile, stages  int32
	split, _       int32
	ids            view
	each, experts  int32
	_              [6]int32
}

type attendArgs struct {
	env
	dst, proj                   view
	b                           batchArgs
	keys, values, table         driver.Ptr
	qn, kn, rope                driver.Ptr
	scale, qEps, kEps           float32
	slots, slotPages, pages     int32
	qHeads, kvHeads, dim, gated int32
	qCentered, kCentered        int32
	rotary, ropeRows, first     int32
	vdim, _                     int32
	chosen                      view
	parts, plan                 driver.Ptr
	partSlots, partFloats       int32
	stages, queries             int32
	tileRows, tileDim           int32
}

type selectArgs struct {
	env
	dst, proj, weights      view
	b                       batchArgs
	keys, table, rope       driver.Ptr
	slots, slotPages, pages int32
	heads, dim, topK        int32
	rotary, ropeRows, first int32
	_                       int32
}

type deltaArgs struct {
	env
	dst, proj                               view
	b                                       batchArgs
	taps, aLog, dtBias, nw                  driver.Ptr
	state                                   driver.Ptr
	slotState, halfState                    uint64
	kRec, uRec, gRec                        driver.Ptr
	slotRec                                 uint64
	conv                                    driver.Ptr
	slotConv                                uint64
	length, work                            driver.Ptr
	eps, qScale                             float32
	kHeads, vHeads, kDim, vDim, tapsN, gate int32
	ring, convRing, slots, chunk            int32
	first, rows                             int32
}

type statsArgs struct {
	env
	dst, x                      view
	parts                       driver.Ptr
	cols, vocab, hash, segments int32
}

type chainArgs struct {
	env
	b                      batchArgs
	length                 driver.Ptr
	first, rest            view
	width, ahead, slots, _ int32
}

type shiftArgs struct {
	env
	dst, src   batchArgs
	kept, next view
}

type acceptArgs struct {
	env
	b                  batchArgs
	kept, next, target view
}

type commitArgs struct {
	env
	b                                       batchArgs
	kept, path                              view
	length, layers, table                   driver.Ptr
	kv, conv                                driver.Ptr
	state, records                          driver.Ptr
	slotState, halfState, slotRec, slotConv uint64
	slots, maxDraft, slotPages, pages       int32
	ring, convRing, heads, _                int32
}

// commitLayer is CommitLayer: where one layer's parts lie.
type commitLayer struct {
	keys, values, index                  uint64
	state, kRec, uRec, gRec              uint64
	conv                                 uint64
	tokens, rows                         uint64
	kvHeads, dim, vdim, indexDim         int32
	kHeads, vHeads, kDim, vDim, channels int32
	rowDim, keeps, _                     int32
}

// maxEntries is the number of page table entries that one launch sets.
const maxEntries = 512

type pagesArgs struct {
	env
	dst   driver.Ptr
	n, _  int32
	pages [maxEntries]int32
}

// deltaLayer is DeltaLayer: where one layer's parts lie within a slot's.
type deltaLayer struct {
	state, floats   uint64
	conv, tail      uint64
	channels, tapsN int32
}

type slotArgs struct {
	env
	length, saved               driver.Ptr
	state, snap                 driver.Ptr
	conv, tails                 driver.Ptr
	layers                      driver.Ptr
	halfState                   uint64
	convRing, to, restore, slot int32
}

type postArgs struct {
	env
	mem, posted    driver.Ptr
	views          [postViews]view
	cols           [postViews]int32
	entries, words int32
}

type drawArgs struct {
	env
	b                  batchArgs
	dst, stats, how, x view
	parts              driver.Ptr
	vocab, chunks      int32
}

type limitArgs struct {
	env
	left, most, drafts view
	width, n           int32
}

type haltArgs struct {
	env
	slots, left, kept, next, drafts, stops view
	width, each, n, _                      int32
}

type lengthArgs struct {
	env
	dst, src driver.Ptr
	value, _ int32
}

type routeArgs struct {
	env
	ids, weights, logits              view
	bias                              driver.Ptr
	scale                             float32
	experts, k, score                 int32
	groups, kept, normalize, given, _ int32
}

type sortArgs struct {
	env
	ids                        view
	order, chunks, count       driver.Ptr
	rows, each, experts, chunk int32
}

type sumArgs struct {
	env
	dst, res, weights       view
	y                       driver.Ptr
	each, n, dstF32, resF32 int32
}

type readArgs struct {
	env
	p    driver.Ptr
	n    uint64
	sink driver.Ptr
}

type activateArgs struct {
	env
	dst, x             view
	in, out            float32
	act, cols, wide, _ int32
}

type collapseArgs struct {
	env
	dst, x, w  view
	scale      float32
	n, h, each int32
}

type spreadArgs struct {
	env
	x, y, inject, mix view
	n, h              int32
}

type gateArgs struct {
	env
	dst, q, k     view
	n, h, wide, _ int32
}

type lookupArgs struct {
	env
	dst, ids           view
	table              driver.Ptr
	cols, tableRows, n int32
	_                  int32
}

type gramsArgs struct {
	env
	dst, ids                view
	b                       batchArgs
	tokens, table           driver.Ptr
	multipliers             [kernels.MaxGram]uint64
	mod, offset             [kernels.MaxGramColumns]uint32
	slots, slotPages, pages int32
	size, heads             int32
	stop, filler, _         int32
}

type blendArgs struct {
	env
	x, src                     view
	b                          batchArgs
	rows, table                driver.Ptr
	taps, nw                   driver.Ptr
	eps                        float32
	n, h, k, dilation          int32
	centered                   int32
	slots, slotPages, pages, _ int32
}

type blocksArgs struct {
	env
	dst, proj               view
	b                       batchArgs
	keys, table             driver.Ptr
	rope, qn, kn            driver.Ptr
	qEps, kEps              float32
	slots, slotPages, pages int32
	heads, dim, topK, ratio int32
	rotary, ropeRows, first int32
	qCentered, kCentered    int32
}

// layout is the size of an argument struct.
type layout struct {
	name string
	size uintptr
}

// layouts gives the sizes that the sources assert, by the name in LAYOUT.
var layouts = append([]layout{
	{"embed", unsafe.Sizeof(embedArgs{})},
	{"move_rows", unsafe.Sizeof(moveArgs{})},
	{"norm_rows", unsafe.Sizeof(normArgs{})},
	{"matmul", unsafe.Sizeof(matMulArgs{})},
	{"attend", unsafe.Sizeof(attendArgs{})},
	{"select", unsafe.Sizeof(selectArgs{})},
	{"delta", unsafe.Sizeof(deltaArgs{})},
	{"stats", unsafe.Sizeof(statsArgs{})},
	{"chain", unsafe.Sizeof(chainArgs{})},
	{"shift", unsafe.Sizeof(shiftArgs{})},
	{"accept", unsafe.Sizeof(acceptArgs{})},
	{"commit", unsafe.Sizeof(commitArgs{})},
	{"set_pages", unsafe.Sizeof(pagesArgs{})},
	{"slot_copy", unsafe.Sizeof(slotArgs{})},
	{"set_length", unsafe.Sizeof(lengthArgs{})},
	{"post", unsafe.Sizeof(postArgs{})},
	{"draw", unsafe.Sizeof(drawArgs{})},
	{"limit", unsafe.Sizeof(limitArgs{})},
	{"halt", unsafe.Sizeof(haltArgs{})},
	{"route", unsafe.Sizeof(routeArgs{})},
	{"activate", unsafe.Sizeof(activateArgs{})},
	{"collapse", unsafe.Sizeof(collapseArgs{})},
	{"spread", unsafe.Sizeof(spreadArgs{})},
	{"gate", unsafe.Sizeof(gateArgs{})},
	{"lookup", unsafe.Sizeof(lookupArgs{})},
	{"grams", unsafe.Sizeof(gramsArgs{})},
	{"blend", unsafe.Sizeof(blendArgs{})},
	{"select_blocks", unsafe.Sizeof(blocksArgs{})},
	{"sort", unsafe.Sizeof(sortArgs{})},
	{"sum", unsafe.Sizeof(sumArgs{})},
	{"bench_read", unsafe.Sizeof(readArgs{})},
	{"matmul_hopper", unsafe.Sizeof(hopperArgs{})},
}, pooledLayouts...)

// args returns the parameter area of the next launch as T.
func args[T any](q *queue) *T { return (*T)(q.stream.Params()) }

func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
