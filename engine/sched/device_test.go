package sched

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// device is a model of the backend's caches that notices when the scheduler
// mixes them up. A position of a page holds the hash of the sequence's tokens
// up to there, as keys and values would; a slot's recurrent state is the hash
// at its length. A row reads every position before it, and the state.
type device struct {
	cfg   Config
	pages [][kernels.PageTokens]uint64
	slots []slotState
	snaps []snapState
	junk  uint64
}

type slotState struct {
	table  []int32
	length int
	state  uint64
}

type snapState struct {
	length int
	state  uint64
}

func newDevice(cfg Config) *device {
	d := &device{
		cfg: cfg, pages: make([][kernels.PageTokens]uint64, cfg.Pages),
		slots: make([]slotState, cfg.Slots), snaps: make([]snapState, cfg.Snapshots),
	}
	for i := range d.slots {
		d.slots[i] = slotState{table: make([]int32, cfg.SlotPages), length: -1}
	}
	return d
}

// chain is the hash of a prefix and one token more.
func chain(h uint64, token int32) uint64 {
	h ^= uint64(uint32(token)) + 0x9e3779b97f4a7c15
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>29
}

func chainAll(tokens []int32) uint64 {
	var h uint64
	for _, t := range tokens {
		h = chain(h, t)
	}
	return h
}

func (d *device) apply(op Op) error {
	s := &d.slots[op.Slot]
	switch op.Kind {
	case Reset:
		*s = slotState{table: make([]int32, d.cfg.SlotPages)}
		for i := range s.table {
			s.table[i] = -1
		}
	case SetPages:
		if op.First+len(op.Pages) > len(s.table) || len(op.Pages) == 0 {
			return fmt.Errorf("%v: does not fit a table of %d", op, len(s.table))
		}
		copy(s.table[op.First:], op.Pages)
	case Restore:
		s.length = op.Length
		if op.Length%kernels.WindowTokens != 0 {
			return fmt.Errorf("%v: not at a border", op)
		}
		if d.cfg.Recurrent {
			if d.snaps[op.Snapshot].length != op.Length {
				return fmt.Errorf("%v: the snapshot is of length %d", op, d.snaps[op.Snapshot].length)
			}
			s.state = d.snaps[op.Snapshot].state
		} else if op.Snapshot != -1 {
			return fmt.Errorf("%v: a snapshot of nothing", op)
		}
	case Save:
		if s.length != op.Length || op.Length%kernels.WindowTokens != 0 {
			return fmt.Errorf("%v: the slot's length is %d", op, s.length)
		}
		d.snaps[op.Snapshot] = snapState{s.length, s.state}
	}
	return nil
}

func (d *device) at(slot, pos int) (*uint64, error) {
	page := d.slots[slot].table[pos/kernels.PageTokens]
	if page < 0 {
		return nil, fmt.Errorf("slot %d has no page at position %d", slot, pos)
	}
	return &d.pages[page][pos%kernels.PageTokens], nil
}

// run computes a span of tokens and returns the hash at each of its rows, which
// is that of the tokens before it in the caches: not of what they should be.
// prefix is what they should be.
func (d *device) run(it Item, prefix, tokens []int32) ([]uint64, error) {
	s := &d.slots[it.Slot]
	if s.length != it.Start || len(prefix) != it.Start {
		return nil, fmt.Errorf("%v: the slot's length is %d", it, s.length)
	}
	var h uint64
	for pos, t := range prefix {
		h = chain(h, t)
		got, err := d.at(it.Slot, pos)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", it, err)
		}
		if *got != h {
			return nil, fmt.Errorf("%v: position %d holds something else", it, pos)
		}
	}
	if d.cfg.Recurrent && s.state != h {
		return nil, fmt.Errorf("%v: the recurrent state is of something else", it)
	}
	out := make([]uint64, len(tokens))
	for i := range len(tokens) + d.cfg.Lookahead {
		p, err := d.at(it.Slot, it.Start+i)
		if err != nil {
			return nil, fmt.Errorf("%v: row %d: %w", it, i, err)
		}
		if i < len(tokens) {
			h = chain(h, tokens[i])
			*p, out[i] = h, h
		} else {
			d.junk++
			*p = d.junk
		}
	}
	return out, nil
}

// commit keeps rows of the span that run computed.
func (d *device) commit(it Item, hashes []uint64, kept int) {
	if kept > 0 {
		d.slots[it.Slot].length += kept
		d.slots[it.Slot].state = hashes[kept-1]
	}
}
