package draft

import (
	"fmt"

	"exacta.dev/exacta/engine"
)

// Length configures how many drafts a sequence gets in a step. At most one of its
// fields is set; with none it is the k asked for, always.
type Length struct {
	// Auto chooses k step by step, from measured costs and the acceptance of
	// the sequence so far; see NewAuto. The k asked for is the most.
	Auto bool `yaml:"auto,omitempty" json:"auto,omitempty"`
	// ByBatch gives k by the number of sequences that decode: pairs
	// [from, k], from rising; below the first from it is the k asked for.
	ByBatch [][]int `yaml:"by_batch,omitempty" json:"by_batch,omitempty"`
}

// Validate names the setting that is wrong.
func (l *Length) Validate() error {
	if l.Auto && len(l.ByBatch) > 0 {
		return fmt.Errorf("auto and by_batch are both set; choose one")
	}
	for i, p := range l.ByBatch {
		switch {
		case len(p) != 2:
			return fmt.Errorf("by_batch[%d] has %d numbers; it is [sequences, k]", i, len(p))
		case p[0] < 1 || i > 0 && p[0] <= l.ByBatch[i-1][0]:
			return fmt.Errorf("by_batch[%d] is from %d sequences on; the numbers rise from 1", i, p[0])
		case p[1] < 0:
			return fmt.Errorf("by_batch[%d] has k %d; it must be at least 0", i, p[1])
		}
	}
	return nil
}

// New returns the policy, nil for a fixed length.
func (l *Length) New() engine.Lengths {
	switch {
	case l.Auto:
		return NewAuto()
	case len(l.ByBatch) > 0:
		return byBatch(l.ByBatch)
	}
	return nil
}

// String names the policy, "" for a fixed length.
func (l *Length) String() string {
	switch {
	case l.Auto:
		return "auto"
	case len(l.ByBatch) > 0:
		return "by_batch"
	}
	return ""
}

// byBatch is a table by number of sequences.
type byBatch [][]int

// Choose implements engine.Lengths.
func (b byBatch) Choose(asks []engine.LengthAsk) {
	k := -1
	for _, p := range b {
		if len(asks) >= p[0] {
			k = p[1]
		}
	}
	for i := range asks {
		asks[i].K = asks[i].Most
		if k >= 0 {
			asks[i].K = min(k, asks[i].Most)
		}
	}
}

// Observe implements engine.Lengths.
func (byBatch) Observe(*engine.StepOutcome) {}

// Release implements engine.Lengths.
func (byBatch) Release(*engine.Sequence) {}
