package draft

import (
	"fmt"
	"slices"
	"unsafe"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// stepper is the part of a device drafter that turns asks into draft steps, and
// the steps' statistics into drafts. All asks are drafted for together, a step for
// each place in the draft.
type stepper struct {
	name string
	ids  []int32 // token of each column of the logits; nil: column i is token i

	stats     kernels.Buf // of all steps, I32 [MaxDraft*spans, StatCols]
	slotTable kernels.Buf // slots of the asks, I32 [spans, 1]
	table     kernels.Buf // ids, I32 [len(ids), 1]
	mapped    kernels.Buf // tokens of a step, I32 [spans, 1]
	slots     []int32
	read      []int32 // stats on the host
	order     []*engine.Ask
}

// Name implements engine.Drafter.
func (d *stepper) Name() string { return d.name }

// Chains implements engine.ChainDrafter.
func (d *stepper) Chains() bool { return true }

// Follow implements engine.DeviceDrafter: nothing, for drafters whose layers are
// brought level by what the target gave.
func (d *stepper) Follow(kernels.Queue, *kernels.Batch) bool { return false }

// attachSteps allocates for at most spans asks of at most most drafts.
func (d *stepper) attachSteps(be kernels.Backend, spans, most int) error {
	most = max(1, most)
	for _, a := range []struct {
		dst        *kernels.Buf
		rows, cols int
	}{{&d.stats, most * spans, kernels.StatCols}, {&d.slotTable, spans, 1}, {&d.table, len(d.ids), 1}, {&d.mapped, spans, 1}} {
		if a.rows == 0 {
			continue
		}
		var err error
		if *a.dst, err = be.Alloc(kernels.Tables, kernels.I32, a.rows, a.cols); err != nil {
			return err
		}
	}
	if len(d.ids) > 0 {
		be.Queue().Write(d.table, bytesOf(d.ids))
	}
	d.slots = make([]int32, 0, spans)
	d.read = make([]int32, most*spans*kernels.StatCols)
	return nil
}

func (d *stepper) detachSteps(be kernels.Backend) {
	free(be, d.stats, d.slotTable, d.table, d.mapped)
}

// begin sorts the asks, deepest first, so that each step runs the sequences that
// still want one, empties their drafts, writes the slots, and returns how many
// ask for anything.
func (d *stepper) begin(q kernels.Queue, asks []*engine.Ask) (active int) {
	d.order = append(d.order[:0], asks...)
	slices.SortStableFunc(d.order, func(a, b *engine.Ask) int { return b.K - a.K })
	d.slots = d.slots[:0]
	for _, a := range d.order {
		d.slots = append(d.slots, int32(a.Seq.Slot()))
		a.Draft.Tokens = a.Draft.Tokens[:0]
		a.Draft.Probs = nil
		if a.K > 0 {
			active++
		}
	}
	if active > 0 {
		q.Write(d.slotTable.Top(len(asks)), bytesOf(d.slots))
	}
	return active
}

// steps records the steps of the asks from..to-1 of the order, at most most, reads
// their statistics and fills in the drafts. draft records step j of k for the
// slots; it leaves the tokens in column StatTop1 of stats.
func (d *stepper) steps(q kernels.Queue, from, to, most int, draft func(stats, slots kernels.Buf, j, k int)) error {
	if from == to {
		return nil
	}
	k, base := min(d.order[from].K, most), 0
	for j := range k {
		last := to
		for d.order[last-1].K <= j {
			last--
		}
		n := last - from
		draft(d.stats.Slice(base, base+n), d.slotTable.Slice(from, last), j, k)
		base += n
	}
	if err := q.Read(bytesOf(d.read[:base*kernels.StatCols]), d.stats.Top(base)).Wait(); err != nil {
		return fmt.Errorf("draft %s: %w", d.name, err)
	}
	row := 0
	for j := range k {
		for _, a := range d.order[from:to] {
			if a.K <= j {
				break
			}
			a.Draft.Tokens = append(a.Draft.Tokens, d.read[row*kernels.StatCols+kernels.StatTop1])
			row++
		}
	}
	return nil
}

// translate records that columns of the logits (I32 [n, 1], in place) become
// tokens.
func (d *stepper) translate(q kernels.Queue, chosen kernels.Buf) {
	if d.table.None() {
		return
	}
	mapped := d.mapped.Top(int(chosen.Rows))
	q.Gather(mapped, d.table, chosen)
	q.Copy(chosen, mapped)
}

func free(be kernels.Backend, bufs ...kernels.Buf) {
	for _, b := range bufs {
		if !b.None() {
			be.Free(b)
		}
	}
}

func bytesOf(s []int32) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), 4*len(s))
}
