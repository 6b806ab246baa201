package ref

import (
	"gorgonia.org/tensor"

	"exacta.dev/exacta/kernels"
)

// state is what a Gated DeltaNet layer remembers of a path: the recurrent state
// of every value head and the last inputs of the convolution.
type state struct {
	s    *tensor.Dense // [VHeads, KDim, VDim]
	conv *tensor.Dense // [Conv-1, C], oldest first; [1, C] and unused if Conv is 1
}

func newState(l kernels.LayerSpec) *state {
	return &state{
		s:    tensor.New(tensor.WithShape(l.VHeads, l.KDim, l.VDim), tensor.Of(tensor.Float64)),
		conv: tensor.New(tensor.WithShape(max(1, l.Conv-1), channels(l)), tensor.Of(tensor.Float64)),
	}
}

// channels is the number of channels that the convolution sees: q, k and v.
func channels(l kernels.LayerSpec) int { return 2*l.KHeads*l.KDim + l.VHeads*l.VDim }

func floats(t *tensor.Dense) []float64 { return t.Data().([]float64) }

// head returns the state of value head h, [KDim, VDim] row-major, in place.
func (s *state) head(h int) []float64 {
	d := floats(s.s)
	n := len(d) / s.s.Shape()[0]
	return d[h*n : (h+1)*n]
}

func (s *state) copyFrom(o *state) {
	copy(floats(s.s), floats(o.s))
	copy(floats(s.conv), floats(o.conv))
}

func (s *state) zero() {
	clear(floats(s.s))
	clear(floats(s.conv))
}

// deltaSlot is a slot's memory in one layer: the committed state and the states
// after each row of the last span.
type deltaSlot struct {
	committed *state
	after     []*state // MaxDraft+1
	tentative tentative
}

// tentative describes the span behind deltaSlot.after.
type tentative struct {
	n     int  // rows; 0 is none
	start int  // committed length when it ran
	chain bool // each row follows the row before it
	// whole: the span was longer than after; after[0] is the state behind
	// its last row.
	whole bool
}

// deltaStore is the memory of one layer.
type deltaStore struct {
	slots     []deltaSlot
	snapshots []*state
}

func newDeltaStore(l kernels.LayerSpec, spec kernels.CacheSpec) *deltaStore {
	d := &deltaStore{}
	for range spec.Slots {
		s := deltaSlot{committed: newState(l)}
		for range spec.MaxDraft + 1 {
			s.after = append(s.after, newState(l))
		}
		d.slots = append(d.slots, s)
	}
	for range spec.Snapshots {
		d.snapshots = append(d.snapshots, newState(l))
	}
	return d
}

func (d *deltaStore) stateBytes() int64 {
	c := d.slots[0].committed
	return int64(c.s.MemSize() + c.conv.MemSize())
}

func (d *deltaStore) bytes() int64 {
	n := len(d.snapshots)
	for _, s := range d.slots {
		n += 1 + len(s.after)
	}
	return int64(n) * d.stateBytes()
}
