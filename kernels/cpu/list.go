package cpu

import (
	"slices"

	"exacta.dev/exacta/kernels"
)

// opKind says in which slice of a list an operation's arguments stand.
type opKind uint8

const (
	opEmbed opKind = iota
	opGather
	opScatter
	opCopy
	opNorm
	opMatMul
	opRoute
	opMixture
	opBlocks
	opSelect
	opSelectBlocks
	opStreams
	opLookup
	opGrams
	opBlend
	opHyper
	opRotate
	opPool
	opChoose
	opAttendPooled
	opAttend
	opDelta
	opStats
	opTables
	opSlot
	opMove
	opCall
	opRun
)

// ref is one operation of a list.
type ref struct {
	kind opKind
	solo bool // worker 0 alone runs it
	i    int32
}

// list is a recorded sequence of operations. Arguments stand in one slice per
// type; all are reused, so that recording allocates nothing once they have
// grown.
type list struct {
	refs     []ref
	rows     []rowOp
	matmuls  []matmulOp
	routes   []routeOp
	mixtures []mixtureOp
	blocks   []matmulOp
	selects  []selectOp
	choices  []blockOp
	streams  []streamOp
	grams    []gramsOp
	blends   []blendOp
	hypers   []hyperOp
	rotates  []rotateOp
	pools    []poolOp
	chooses  []chooseOp
	pooled   []pooledOp
	attends  []attendOp
	deltas   []deltaOp
	stats    []statsOp
	tables   []tableOp
	slots    []slotOp
	moves    []moveOp
	calls    []func(*worker) // of measurements and loops
	programs []*list
	bytes    []byte  // sources of writes
	ints     []int32 // page numbers
	need     needs

	// Of a program: what its operations point at, and when it was last seen to
	// be there (Backend.freed).
	bufs    []uint32
	caches  []uint32
	checked int
}

func (l *list) reset() {
	clear(l.calls)
	l.calls = l.calls[:0]
	clear(l.moves) // the destinations of reads belong to callers
	l.refs, l.rows, l.matmuls, l.attends = l.refs[:0], l.rows[:0], l.matmuls[:0], l.attends[:0]
	l.deltas, l.stats, l.tables, l.slots = l.deltas[:0], l.stats[:0], l.tables[:0], l.slots[:0]
	l.routes, l.mixtures, l.blocks = l.routes[:0], l.mixtures[:0], l.blocks[:0]
	l.selects, l.choices = l.selects[:0], l.choices[:0]
	l.streams, l.grams, l.blends = l.streams[:0], l.grams[:0], l.blends[:0]
	l.hypers, l.rotates, l.pools = l.hypers[:0], l.rotates[:0], l.pools[:0]
	l.chooses, l.pooled = l.chooses[:0], l.pooled[:0]
	l.moves, l.programs, l.bytes, l.ints = l.moves[:0], l.programs[:0], l.bytes[:0], l.ints[:0]
	l.need = needs{}
}

// walk runs a list as this worker. It returns false when the list was left.
func (w *worker) walk(l *list) bool {
	for i := range l.refs {
		r := l.refs[i]
		w.op++
		if r.kind == opRun {
			if !w.walk(l.programs[r.i]) {
				return false
			}
			continue
		}
		if !r.solo || w.id == 0 {
			w.begin()
			w.solo = r.solo
			if !w.do(l, r) {
				return false
			}
		}
		if w.id == 0 && r.kind != opMove {
			w.work.Ops++
			if !r.solo {
				w.work.Launches++
			}
		}
		if r.solo && i+1 < len(l.refs) && l.refs[i+1].solo {
			continue
		}
		if !w.sync() {
			return false
		}
	}
	return true
}

// do runs this worker's part of one operation.
func (w *worker) do(l *list, r ref) bool {
	switch r.kind {
	case opEmbed:
		w.embed(&l.rows[r.i])
	case opGather:
		w.gather(&l.rows[r.i])
	case opScatter:
		w.scatter(&l.rows[r.i])
	case opCopy:
		w.copyRows(&l.rows[r.i])
	case opNorm:
		w.norm(&l.rows[r.i])
	case opMatMul:
		return w.matmul(l, int(r.i))
	case opRoute:
		w.route(&l.routes[r.i])
	case opMixture:
		return w.mixture(&l.mixtures[r.i])
	case opBlocks:
		w.blocks(&l.blocks[r.i])
	case opSelect:
		return w.selectKeys(&l.selects[r.i])
	case opSelectBlocks:
		return w.selectBlocks(&l.choices[r.i])
	case opStreams:
		w.streams(&l.streams[r.i])
	case opLookup:
		w.lookup(&l.rows[r.i])
	case opGrams:
		w.grams(&l.grams[r.i])
	case opBlend:
		w.blend(&l.blends[r.i])
	case opHyper:
		w.hyper(&l.hypers[r.i])
	case opRotate:
		w.rotate(&l.rotates[r.i])
	case opPool:
		return w.poolRows(&l.pools[r.i])
	case opChoose:
		return w.chooseRows(&l.chooses[r.i])
	case opAttendPooled:
		return w.attendPooled(&l.pooled[r.i])
	case opAttend:
		return w.attend(&l.attends[r.i])
	case opDelta:
		w.delta(&l.deltas[r.i])
	case opStats:
		return w.stats(&l.stats[r.i])
	case opTables:
		w.table(&l.tables[r.i])
	case opSlot:
		w.slot(&l.slots[r.i], l.ints)
	case opMove:
		w.move(&l.moves[r.i], l.bytes)
	case opCall:
		l.calls[r.i](w)
	}
	return true
}

// use notes that a program points at a buffer.
func (l *list) use(ids *[]uint32, id uint32) {
	if !slices.Contains(*ids, id) {
		*ids = append(*ids, id)
	}
}

// whole reports whether everything that a program points at is still there.
func (l *list) whole(b *Backend) bool {
	if l.checked == b.freed {
		return true
	}
	for _, id := range l.bufs {
		if !b.bufs[id-1].live {
			return false
		}
	}
	for _, id := range l.caches {
		if b.caches[id].closed {
			return false
		}
	}
	l.checked = b.freed
	return true
}

// program is a captured list.
type program struct {
	key  kernels.GraphKey
	list list
}
