package ref

import (
	"gorgonia.org/tensor"

	"exacta.dev/exacta/kernels"
)

// state is what a Gated DeltaNet layer remembers of a path: the recurrent state
// of every value head and the last inputs of the convolution.
type state struct {
	s    []float64 // of a tensor [VHeads, KDim, VDim]
	conv []float64 // of a tensor [Conv-1, channels], oldest first
	per  int       // elements of s per head
	// behind says that tokens were committed over which the layer did not
	// run: the state is of no use.
	behind bool
}

func newState(l kernels.LayerSpec) *state {
	st := &state{s: floats(newFloats(l.VHeads, l.KDim, l.VDim)), per: l.KDim * l.VDim}
	if l.Conv > 1 {
		st.conv = floats(newFloats(l.Conv-1, channels(l)))
	}
	return st
}

// channels is the number of channels that the convolution sees: q, k and v.
func channels(l kernels.LayerSpec) int { return 2*l.KHeads*l.KDim + l.VHeads*l.VDim }

func floats(t *tensor.Dense) []float64 { return t.Data().([]float64) }

// head returns the state of value head h, [KDim, VDim] row-major, in place.
func (s *state) head(h int) []float64 { return s.s[h*s.per : (h+1)*s.per] }

func (s *state) copyFrom(o *state) {
	copy(s.s, o.s)
	copy(s.conv, o.conv)
	s.behind = o.behind
}

func (s *state) zero() {
	clear(s.s)
	clear(s.conv)
	s.behind = false
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
	return 8 * int64(len(c.s)+len(c.conv))
}

func (d *deltaStore) bytes() int64 {
	n := len(d.snapshots)
	for _, s := range d.slots {
		n += 1 + len(s.after)
	}
	return int64(n) * d.stateBytes()
}
