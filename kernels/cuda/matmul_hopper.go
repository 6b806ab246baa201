//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"math"

	"exacta.dev/exacta/kernels/cuda/driver"
)

// The form of the matrix product for compute capability 9.0, see matmul_hopper.cu.
const (
	hopperRows     = 128                  // of a tile of many rows
	hopperFew      = 64                   // most rows of a tile of few
	hopperBarriers = 1 << 10              // bytes, of which barriers take a part
	hopperFinish   = 8 * 16 * 40 * 4      // bytes of outputs on their way out, of many rows
	hopperStages   = 32                   // at most
	hopperPartial  = hopperRows * 256 * 4 // bytes that a block may hand on
	// hopperHalf is shared memory of which a multiprocessor has twice: a block
	// that takes no more can start beside one of the kernel in front.
	hopperHalf = 112 << 10
)

// hopperKernels are the kernels: the rows of weights in a tile, the most rows of x, and
// the boxes of 64 columns in a stage.
var hopperKernels = [...]struct {
	name                 string
	width, rows, columns int
}{
	{"hopper_64", 64, hopperRows, 2}, {"hopper_128", 128, hopperRows, 2}, {"hopper_256", 256, hopperRows, 1},
	{"hopper_16x16", 16, 16, 4},
	{"hopper_32x16", 32, 16, 4}, {"hopper_32x32", 32, 32, 4}, {"hopper_32x64", 32, 64, 4},
	{"hopper_64x16", 64, 16, 2}, {"hopper_64x32", 64, 32, 2}, {"hopper_64x64", 64, 64, 2},
	{"hopper_128x16", 128, 16, 1}, {"hopper_128x32", 128, 32, 1}, {"hopper_128x64", 128, 64, 1},
}

// hopperPlan says how a product is cut.
type hopperPlan struct {
	kernel int // of hopperKernels
	rows   int // of x in a tile
	stages int
	grid   int
	block  int
	shared int
	split  bool
	time   float64 // expected, in seconds
}

// hopperShape is what a plan follows from.
type hopperShape struct {
	rows, n, k     int
	paired         bool
	odd            bool // outputs can't be reached four at a time
	blocks, sms    int
	chunks, chunk  int // of a grouped product: expected, and their most rows; else 0
	sharedPerBlock int
}

// Rates of an H200 that plans go by; others of the generation differ by a factor that
// leaves the order of plans alone.
const (
	rateMemory = 4.3e12 // bytes/s
	rateCache  = 6.5e12 // bytes/s that all multiprocessors get from the L2 cache
	rateEach   = 9e10   // bytes/s that one gets
	rateAlone  = 4.5e10 // bytes/s that one gets from memory
	rateMACs   = 3.3e12 // of one, wgmma
	rateShared = 2.1e11 // bytes/s from shared memory to registers
	timeFew    = 2.3e-8 // of 16 columns, one after another: mma.sync
	timeMany   = 5e-8   // wgmma
	timeTile   = 4e-7   // of a tile's begin and end
)

// plan returns the cut that should take the least time.
func (s hopperShape) plan() hopperPlan {
	best := hopperPlan{time: math.Inf(1)}
	for i := range hopperKernels {
		if p := s.cut(i); p.time <= best.time {
			best = p
		}
	}
	return best
}

// cut plans tiles of a kernel. The time is infinite where it can't be.
func (s hopperShape) cut(kernel int) hopperPlan {
	k := hopperKernels[kernel]
	height, outs, many := s.height(k.rows), k.width, k.rows == hopperRows
	// A kernel of two boxes fills K up to a multiple of 128, which is to be 64.
	if height == 0 || many && (s.odd || k.columns == 2 && s.k%128 != 0) {
		return hopperPlan{time: math.Inf(1)}
	}
	if s.paired {
		outs /= 2
	}
	down := ceil(s.rows, height)
	if s.chunk > 0 {
		down = s.chunks
	}
	across, sms := ceil(s.n, outs)*s.blocks, s.sms
	tiles := across * down
	p := hopperPlan{kernel: kernel, rows: height, grid: sms, block: 2*k.width + 32}
	switch { // tiles that blocks share, and blocks that share them
	case s.chunk > 0:
		p.split = height <= hopperFew
		across *= down
	case down <= 8 && across*down < 8*sms:
		p.split = true
		sms /= down
		p.grid = min(across, sms) * down
	default:
		across *= down
		p.grid = min(across, sms)
	}
	rest, room := hopperBarriers, s.sharedPerBlock
	if many {
		rest += hopperFinish
		p.block = 2*hopperRows + 32
	} else if s.chunk == 0 && height <= 32 {
		room = min(room, hopperHalf)
	}
	stage := (k.width + height) * 128 * k.columns
	p.stages = min((room-rest)/stage, hopperStages)
	p.shared = rest + p.stages*stage

	each := float64(across) / float64(sms) // tiles that a block has
	if !p.split || across < sms {
		each = math.Ceil(each)
	}
	p.time = each*timeTile + max(float64(s.weights()*s.k*2)/rateMemory, float64(tiles)*s.bytes(k.width+height)/rateCache,
		each*max(s.bytes(k.width+height)/rateEach, s.bytes(k.width)/rateAlone, s.steps(kernel, height)))
	return p
}

// height is the rows of a tile of a kernel that has room for so many; 0: another kernel
// is for them.
func (s hopperShape) height(room int) int {
	rows := min((s.rows+7)&^7, hopperFew)
	if s.chunk > 0 {
		rows = s.chunk
	}
	switch {
	case room < rows || room < hopperRows && room/2 >= max(rows, 9):
		return 0
	case room < hopperRows:
		return rows
	case s.chunk == hopperRows || s.chunk == 0 && s.rows > hopperFew:
		return hopperRows
	}
	return 0
}

// bytes are those of rows of K.
func (s hopperShape) bytes(rows int) float64 { return float64(rows) * float64(s.k) * 2 }

// steps is the time of a tile's arithmetic.
func (s hopperShape) steps(kernel, height int) float64 {
	k, n := hopperKernels[kernel], float64(s.k)/16
	if k.rows == hopperRows {
		return n * max(timeMany, float64(16*hopperRows*k.width)/rateMACs)
	}
	warps := k.width / 16
	return n * max(timeFew, float64(warps*ceil(height, 16)*512+k.width*32)/rateShared)
}

// weights are the rows of weights that are read.
func (s hopperShape) weights() int {
	n := s.n * max(1, s.blocks) * max(1, s.chunks)
	if s.paired {
		n *= 2
	}
	return n
}

// hopperFits reports whether the device is of that generation, and the operands are
// where its copy engine reaches them.
func (q *queue) hopperFits(m matMul) bool {
	fits := q.be.arch == hopper && !q.plain && m.w.group == 0 && m.w.cols%8 == 0 && m.x.ld%8 == 0 && m.x.p%16 == 0
	return fits && (m.blocks == 1 || m.w.cols%64 == 0)
}

func (q *queue) multiplyHopper(m matMul) {
	s := hopperShape{
		rows: int(m.product.rows), n: int(m.n), k: int(m.k), paired: m.paired != 0, blocks: int(m.blocks),
		odd: m.fours == 0, sms: q.be.dev.Multiprocessors, sharedPerBlock: q.be.dev.SharedPerBlock,
	}
	if m.pairs > 0 {
		s.chunk = m.chunk
		s.chunks = max(min(m.pairs, m.w.experts), m.pairs/m.chunk)
		if m.chunks == 0 {
			s.chunks = m.pairs
		}
	}
	p := s.plan()
	if q.tune != nil {
		p = q.tune(s, p)
	}
	a := args[hopperArgs](q)
	*a = hopperArgs{
		env: q.head(), p: m.product, partial: q.room.partial, flags: q.room.flags,
		mtile: int32(p.rows), stages: int32(p.stages), split: flag(p.split),
		ids: m.ids, each: m.eachID, experts: int32(m.w.experts),
	}
	outs, boxRows := hopperKernels[p.kernel].width, p.rows
	if s.paired {
		outs /= 2
	}
	if m.pairs > 0 {
		boxRows = 1
	}
	q.failWith(q.stream.MapRows(&a.wMap, m.w.ptr, m.w.rows, m.w.cols, int64(2*m.w.cols), outs))
	q.failWith(q.stream.MapRows(&a.xMap, m.x.p, m.x.rows, m.x.cols, m.x.pitch(), boxRows))
	if q.bad != nil {
		return
	}
	q.launchBlock(kHopper+kernelID(p.kernel), driver.Grid{X: p.grid, Y: 1, Block: p.block, Shared: p.shared})
}
