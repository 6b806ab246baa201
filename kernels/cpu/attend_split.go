package cpu

import (
	"unsafe"
)

// sharedSplits bounds the shared memory for the partial results of splits.
const sharedSplits = 8 << 20

// planSplits decides whether splits of keys may be units of their own, which
// makes sense where there are fewer pairs of span and KV head than workers keep
// busy, and returns the shared memory that this needs. A unit leaves
// [rows][width + 2] float32: weighted values, maximum and sum of its split.
func (o *attendOp) planSplits(workers int) int {
	pairs := o.b.spans * o.s.KVHeads
	if workers == 1 || pairs >= 4*workers {
		return 0
	}
	rows := min(o.b.maxLen, o.block) * o.group
	partial := rows * (o.l.panels*panelRows + 2)
	splits := (o.c.spec.SlotPages*page + split - 1) / split
	bytes := 4 * partial * pairs * splits
	if bytes > sharedSplits {
		return 0
	}
	o.partial = partial
	return bytes
}

// splitsOf returns the number of splits that a span sees.
func (o *attendOp) splitsOf(s span) int {
	return max(0, (s.top-1)/split-o.s.FirstKey/split+1)
}

// splitsPay reports whether a batch is better shared out by splits: its pairs
// leave workers idle and see several splits each.
func (o *attendOp) splitsPay(l attendLoad, workers int) bool {
	return o.partial > 0 && l.longest <= o.block && l.pairs%workers != 0 && l.splits >= 2*l.pairs
}

// attendSplits appends, computes every split of every pair as a unit, and merges
// the splits of a pair in ascending order.
func (w *worker) attendSplits(o *attendOp) bool {
	w.appendPages(o)
	if !w.sync() {
		return false
	}
	unit, mine := 0, w.claim()
	o.eachSplit(func(s span, head, i int) {
		if unit == mine {
			w.splitUnit(o, s, head, i, unit)
			mine = w.claim()
		}
		unit++
	})
	if !w.sync() {
		return false
	}
	w.mergeUnits(o)
	return true
}

// eachSplit walks the splits of all pairs.
func (o *attendOp) eachSplit(f func(s span, head, i int)) {
	for b := range o.b.spans {
		s := o.b.spanOf(b)
		if s.n == 0 {
			continue
		}
		for head := range o.s.KVHeads {
			for i := range o.splitsOf(s) {
				f(s, head, i)
			}
		}
	}
}

// unitOf points a's partial results at the shared memory of a unit.
func (w *worker) unitOf(a *attention, unit int) {
	all := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(w.shared))), len(w.shared)/4)
	mem := all[unit*a.o.partial:][:a.o.partial]
	values := a.rows * a.width
	a.part, a.topPart, a.sumPart = mem[:values], mem[values:values+a.rows], mem[values+a.rows:values+2*a.rows]
}

// splitUnit computes split i of a pair.
func (w *worker) splitUnit(o *attendOp, s span, head, i, unit int) {
	taken := w.taken
	a := w.newAttention(o, s, head, 0, s.n)
	w.unitOf(&a, unit)
	w.queries(&a, 0)
	k := (o.s.FirstKey/split + i) * split
	w.attendSplit(&a, k, min(s.top-k, split))
	w.taken = taken
}

// mergeUnits merges the splits of this worker's pairs and stores their rows.
func (w *worker) mergeUnits(o *attendOp) {
	unit, mine := 0, w.claim()
	first := 0 // unit of the pair's first split
	for b := range o.b.spans {
		s := o.b.spanOf(b)
		if s.n == 0 {
			continue
		}
		for head := range o.s.KVHeads {
			if unit == mine {
				w.mergePair(o, s, head, first)
				mine = w.claim()
			}
			unit++
			first += o.splitsOf(s)
		}
	}
}

func (w *worker) mergePair(o *attendOp, s span, head, first int) {
	taken := w.taken
	a := w.newAttention(o, s, head, 0, s.n)
	for i := range o.splitsOf(s) {
		w.unitOf(&a, first+i)
		for r := range a.rows {
			w.merge(&a, r)
		}
	}
	for r := range a.rows {
		w.attendStore(&a, r, 0)
	}
	w.taken = taken
}
