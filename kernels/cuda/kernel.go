//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"embed"
	"fmt"
	"sync"
	"unsafe"

	"exacta.dev/exacta/kernels/cuda/driver"
)

//go:embed src/*.cuh src/*.cu
var sources embed.FS

// sourceFiles are the files of src that are compiled, each behind common.cuh and
// its header.
var sourceFiles = []string{"rows", "matmul", "matmul_hopper", "attend", "attend_tiles", "delta", "stats", "tables", "loop", "commit", "experts", "select", "streams", "grams", "blocks", "hyper", "pooled", "bench"}

// headers are the further headers of sources.
var headers = map[string]string{"matmul": "matmul.cuh", "matmul_hopper": "matmul.cuh", "experts": "matmul.cuh", "attend": "attend.cuh", "attend_tiles": "attend.cuh"}

// only says which sources are for one architecture alone.
var only = map[string]int{"matmul_hopper": hopper}

// hopper is compute capability 9.0, which has instructions that no other has.
const hopper = 90

// sourcesFor are the sources of an architecture.
func sourcesFor(arch int) []string {
	var out []string
	for _, f := range sourceFiles {
		if a := only[f]; a == 0 || a == arch {
			out = append(out, f)
		}
	}
	return out
}

// architectures are the compute capabilities that the sources are compiled for:
// the first of each generation, whose cubins later ones of it run too.
var architectures = []int{80, 90, 100, 120}

// kernelID names a kernel.
type kernelID uint8

const (
	kEmbed kernelID = iota
	kMove
	kNorm
	kMatMul     // of sixteen, see matMulKernel
	kMatMulLast = kMatMul + 15
	kHopper     = kMatMulLast + 1 // and the others of hopperKernels
	kHopperLast = kHopper + kernelID(len(hopperKernels)) - 1
)

const (
	kAttendAppend kernelID = kHopperLast + 1 + iota
	kAttend
	kAttendFold
	kAttendTiles     // of seven, see tilesOf
	kAttendTilesLast = kAttendTiles + 6
)

const (
	kDelta kernelID = kAttendTilesLast + 1 + iota
	kDeltaKeep
	kDeltaPrepare
	kStatsParts
	kStats
	kChain
	kShift
	kAccept
	kCommitFold
	kCommitRows
	kCommit
	kSetPages
	kSlotCopy
	kSetLength
	kPost
	kDrawParts
	kDraw
	kLimit
	kHalt
	kRoute
	kSort
	kSum
	kSelectAppend
	kSelect
	kActivate
	kCollapse
	kSpread
	kGate
	kLookup
	kGrams
	kBlend
	kBlocksAppend
	kSelectBlocks
	kHyper
	kGateUp
	kRotate
	kPool
	kPoolKeep
	kKeep
	kChoose
	kAttendPooled
	kPooledKeep
	kPooledCommit
	kRingCopy
	kBenchRead
	numKernels
)

// kernelTable says where each kernel is and how large its arguments are.
var kernelTable = [numKernels]struct {
	file, name string
	args       uintptr
}{
	kEmbed:           {"rows", "embed", unsafe.Sizeof(embedArgs{})},
	kMove:            {"rows", "move_rows", unsafe.Sizeof(moveArgs{})},
	kNorm:            {"rows", "norm_rows", unsafe.Sizeof(normArgs{})},
	kMatMul:          {"matmul", "matmul_8_narrow", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 1:      {"matmul", "matmul_8_narrow_paired", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 2:      {"matmul", "matmul_8_wide", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 3:      {"matmul", "matmul_8_wide_paired", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 4:      {"matmul", "matmul_32_narrow", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 5:      {"matmul", "matmul_32_narrow_paired", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 6:      {"matmul", "matmul_32_wide", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 7:      {"matmul", "matmul_32_wide_paired", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 8:      {"matmul", "matmul4_8_narrow", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 9:      {"matmul", "matmul4_8_narrow_paired", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 10:     {"matmul", "matmul4_8_wide", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 11:     {"matmul", "matmul4_8_wide_paired", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 12:     {"matmul", "matmul4_32_narrow", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 13:     {"matmul", "matmul4_32_narrow_paired", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 14:     {"matmul", "matmul4_32_wide", unsafe.Sizeof(matMulArgs{})},
	kMatMul + 15:     {"matmul", "matmul4_32_wide_paired", unsafe.Sizeof(matMulArgs{})},
	kAttendAppend:    {"attend", "attend_append", unsafe.Sizeof(attendArgs{})},
	kAttend:          {"attend", "attend", unsafe.Sizeof(attendArgs{})},
	kDelta:           {"delta", "delta", unsafe.Sizeof(deltaArgs{})},
	kDeltaKeep:       {"delta", "delta_keep", unsafe.Sizeof(deltaArgs{})},
	kDeltaPrepare:    {"delta", "delta_prepare", unsafe.Sizeof(deltaArgs{})},
	kStats:           {"stats", "stats", unsafe.Sizeof(statsArgs{})},
	kChain:           {"tables", "chain", unsafe.Sizeof(chainArgs{})},
	kShift:           {"tables", "shift", unsafe.Sizeof(shiftArgs{})},
	kAccept:          {"tables", "accept", unsafe.Sizeof(acceptArgs{})},
	kCommitFold:      {"commit", "commit_fold", unsafe.Sizeof(commitArgs{})},
	kCommitRows:      {"commit", "commit_rows", unsafe.Sizeof(commitArgs{})},
	kCommit:          {"commit", "commit", unsafe.Sizeof(commitArgs{})},
	kSetPages:        {"tables", "set_pages", unsafe.Sizeof(pagesArgs{})},
	kSlotCopy:        {"tables", "slot_copy", unsafe.Sizeof(slotArgs{})},
	kSetLength:       {"tables", "set_length", unsafe.Sizeof(lengthArgs{})},
	kRoute:           {"experts", "route", unsafe.Sizeof(routeArgs{})},
	kSort:            {"experts", "sort_pairs", unsafe.Sizeof(sortArgs{})},
	kSum:             {"experts", "sum_pairs", unsafe.Sizeof(sumArgs{})},
	kSelectAppend:    {"select", "select_append", unsafe.Sizeof(selectArgs{})},
	kSelect:          {"select", "select_keys", unsafe.Sizeof(selectArgs{})},
	kActivate:        {"streams", "activate_rows", unsafe.Sizeof(activateArgs{})},
	kCollapse:        {"streams", "collapse", unsafe.Sizeof(collapseArgs{})},
	kSpread:          {"streams", "spread", unsafe.Sizeof(spreadArgs{})},
	kGate:            {"streams", "gate", unsafe.Sizeof(gateArgs{})},
	kLookup:          {"streams", "lookup", unsafe.Sizeof(lookupArgs{})},
	kGrams:           {"grams", "grams", unsafe.Sizeof(gramsArgs{})},
	kBlend:           {"grams", "blend", unsafe.Sizeof(blendArgs{})},
	kBlocksAppend:    {"blocks", "blocks_append", unsafe.Sizeof(blocksArgs{})},
	kSelectBlocks:    {"blocks", "select_blocks", unsafe.Sizeof(blocksArgs{})},
	kHyper:           {"hyper", "hyper", unsafe.Sizeof(hyperArgs{})},
	kGateUp:          {"hyper", "gate_up", unsafe.Sizeof(gateUpArgs{})},
	kRotate:          {"hyper", "rotate", unsafe.Sizeof(rotateArgs{})},
	kPool:            {"pooled", "pool", unsafe.Sizeof(poolArgs{})},
	kPoolKeep:        {"pooled", "pool_keep", unsafe.Sizeof(poolArgs{})},
	kKeep:            {"pooled", "keep", unsafe.Sizeof(keepArgs{})},
	kChoose:          {"pooled", "choose", unsafe.Sizeof(chooseArgs{})},
	kAttendPooled:    {"pooled", "attend_pooled", unsafe.Sizeof(pooledArgs{})},
	kPooledKeep:      {"pooled", "pooled_keep", unsafe.Sizeof(pooledArgs{})},
	kPooledCommit:    {"pooled", "pooled_commit", unsafe.Sizeof(pooledCommitArgs{})},
	kRingCopy:        {"pooled", "ring_copy", unsafe.Sizeof(ringCopyArgs{})},
	kBenchRead:       {"bench", "bench_read", unsafe.Sizeof(readArgs{})},
	kAttendTiles:     {"attend_tiles", "attend_64_16", unsafe.Sizeof(attendArgs{})},
	kAttendTiles + 1: {"attend_tiles", "attend_64_64", unsafe.Sizeof(attendArgs{})},
	kAttendTiles + 2: {"attend_tiles", "attend_128_16", unsafe.Sizeof(attendArgs{})},
	kAttendTiles + 3: {"attend_tiles", "attend_128_32", unsafe.Sizeof(attendArgs{})},
	kAttendTiles + 4: {"attend_tiles", "attend_128_64", unsafe.Sizeof(attendArgs{})},
	kAttendTiles + 5: {"attend_tiles", "attend_256_16", unsafe.Sizeof(attendArgs{})},
	kAttendTiles + 6: {"attend_tiles", "attend_256_32", unsafe.Sizeof(attendArgs{})},
	kAttendFold:      {"attend_tiles", "attend_fold", unsafe.Sizeof(attendArgs{})},
	kStatsParts:      {"stats", "stats_parts", unsafe.Sizeof(statsArgs{})},
	kPost:            {"loop", "post", unsafe.Sizeof(postArgs{})},
	kDrawParts:       {"loop", "draw_parts", unsafe.Sizeof(drawArgs{})},
	kDraw:            {"loop", "draw", unsafe.Sizeof(drawArgs{})},
	kLimit:           {"loop", "limit", unsafe.Sizeof(limitArgs{})},
	kHalt:            {"loop", "halt", unsafe.Sizeof(haltArgs{})},
}

func init() {
	for i, k := range hopperKernels {
		kernelTable[kHopper+kernelID(i)].file = "matmul_hopper"
		kernelTable[kHopper+kernelID(i)].name = k.name
		kernelTable[kHopper+kernelID(i)].args = unsafe.Sizeof(hopperArgs{})
	}
}

// threads is THREADS: the block size of every kernel.
const threads = 128

// architectureOf returns the architecture whose cubins run on a device.
func architectureOf(dev driver.Device) (int, error) {
	best := 0
	for _, a := range architectures {
		if a/10 == dev.Major && a%10 <= dev.Minor {
			best = a
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("%s has compute capability %d.%d; the kernels are for 8.x, 9.x, 10.x and 12.x", dev.Name, dev.Major, dev.Minor)
	}
	return best, nil
}

// compileOptions are the options of NVRTC for an architecture.
func compileOptions(arch int) []string {
	name := fmt.Sprintf("sm_%d", arch)
	if arch == hopper {
		name += "a"
	}
	o := []string{"--gpu-architecture=" + name, "--std=c++17", "--fmad=false", "--diag-suppress=177"}
	for _, l := range layouts {
		o = append(o, fmt.Sprintf("-DSIZE_%s=%d", l.name, l.size))
	}
	return o
}

// source returns the text of a source file behind the common part and its header.
func source(file string) (string, error) {
	text, err := sources.ReadFile("src/common.cuh")
	if err != nil {
		return "", err
	}
	if h := headers[file]; h != "" {
		part, err := sources.ReadFile("src/" + h)
		if err != nil {
			return "", err
		}
		text = append(text, part...)
	}
	own, err := sources.ReadFile("src/" + file + ".cu")
	if err != nil {
		return "", err
	}
	return string(text) + "#line 1 \"" + file + ".cu\"\n" + string(own), nil
}

// cubins returns the machine code of all sources for an architecture, from the
// cache where it is there, else freshly compiled. NVRTC is opened only if
// something must be compiled.
func cubins(arch int) (map[string][]byte, error) {
	out := make(map[string][]byte)
	missing := make(map[string]string)
	cache := openCache()
	opts := compileOptions(arch)
	for _, f := range sourcesFor(arch) {
		text, err := source(f)
		if err != nil {
			return nil, err
		}
		if bin := cache.get(cacheKey(text, opts)); bin != nil {
			out[f] = bin
		} else {
			missing[f] = text
		}
	}
	if len(missing) == 0 {
		return out, nil
	}
	nvrtc, err := driver.OpenCompiler()
	if err != nil {
		return nil, err
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	for f, text := range missing {
		wg.Go(func() {
			bin, err := nvrtc.Compile(f+".cu", text, opts)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if first == nil {
					first = err
				}
				return
			}
			out[f] = bin
			cache.put(cacheKey(text, opts), bin)
		})
	}
	wg.Wait()
	return out, first
}
