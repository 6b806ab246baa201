package faults

import (
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/kernels"
)

// rejecting is a run with a rejection in most steps.
func rejecting() trial.Setup {
	return trial.Setup{Drafter: "mtp", K: 4, MaxNew: 24, Requests: 3}
}

// cacheFaults are B11, B12 and B20: what sequences leave behind.
func cacheFaults() []Fault {
	return []Fault{
		{
			ID: "B11", Name: "rejected keys stay in the cache", Report: "mlx-lm #1109 (trim does nothing); transformers #48280",
			Setup: rejecting(),
			arm:   func(*arming) trial.Wiring { return drifting(func(t *tap, d *drift) { t.attend = d.attend }) },
		},
		{
			ID: "B11", Name: "cache reset to nothing on a rejection", Report: "aprender #2014 (GPU cache to 0, CPU cache rolled back)",
			Setup: trial.Setup{Drafter: "mtp", K: 4, MaxNew: 24, Requests: 2, Concurrency: 1},
			arm:   func(*arming) trial.Wiring { return resetKeys() },
		},
		{
			ID: "B12", Name: "rejected tokens stay in the recurrent state", Report: "vllm #39273, #56531; tpu-inference #3178",
			Setup: rejecting(),
			arm:   func(*arming) trial.Wiring { return drifting(func(t *tap, d *drift) { t.delta = d.delta }) },
		},
		{
			ID: "B12", Name: "a step without drafts reads the state of column 0", Report: "vllm #52942",
			Setup: trial.Setup{Drafter: "ngram", K: 4, MaxNew: 40, Requests: 5, PromptLen: 60},
			arm:   func(*arming) trial.Wiring { return columnZero() },
		},
		{
			ID: "B12", Name: "state zeroed at a prefix hit", Report: "sglang #34043 (convolution state; 55 % to 35 % on SWE-bench)",
			Setup: trial.Setup{Drafter: "mtp", K: 3, MaxNew: 16, PromptLen: 12, Shared: 70, PrefixCache: true, Concurrency: 2},
			arm:   func(*arming) trial.Wiring { return zeroState() },
		},
		{
			ID: "B20", Name: "pages under the wrong key", Report: "vllm #47930, #43559; sglang #8726",
			Setup: trial.Setup{Drafter: "mtp", K: 3, MaxNew: 16, PromptLen: 66, PromptStep: 3, PrefixCache: true, Concurrency: 1},
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Interposer: &hooks{keys: func(seq *engine.Sequence, ids []int32) []int32 {
					if len(seq.Output()) > 0 || len(ids) < kernels.PageTokens {
						return ids
					}
					ids = slices.Clone(ids)
					clear(ids[:kernels.PageTokens]) // the key leaves the first page out
					return ids
				}}}
			},
		},
		{
			ID: "B20", Name: "another prompt's snapshot restored", Report: "sglang #24175; vllm #54360, #18668",
			Setup: trial.Setup{Drafter: "mtp", K: 3, MaxNew: 16, PromptLen: 68, PromptStep: 3, Repeat: true, PrefixCache: true, Concurrency: 1},
			arm:   func(*arming) trial.Wiring { return otherSnapshot() },
		},
	}
}

// drift is how far the entries of each slot have come from where they belong:
// rejected ones were not taken back, and what follows is put behind them.
type drift struct {
	tap   *tap
	slots map[int]int
}

// drifting wires a drift that an operation follows.
func drifting(apply func(t *tap, d *drift)) trial.Wiring {
	d := &drift{slots: map[int]int{}}
	return onQueue(func(t *tap) {
		d.tap = t
		apply(t, d)
		t.reset = func(c kernels.Caches, slot int) {
			delete(d.slots, slot)
			t.Queue.Reset(c, slot)
		}
	}, &hooks{verdict: func(seq *engine.Sequence, v *engine.Verification, out engine.Verdict) engine.Verdict {
		d.slots[seq.Slot()] += len(v.Draft.Tokens) - int(out.Accepted)
		return out
	}})
}

// moved runs an operation with the spans of drifted slots moved. A page that
// fills up is trimmed, and with it what was left over.
func (d *drift) moved(b *kernels.Batch, run func()) {
	t := d.tap
	start, pos := t.table(b.Start), t.table(b.Pos)
	seq, length, off := t.table(b.Seq), t.table(b.Len), t.table(b.RowOff)
	newStart, newPos := slices.Clone(start), slices.Clone(pos)
	for i, s := range start {
		by := d.slots[int(seq[i])]
		if by == 0 {
			continue
		}
		last := int(s + length[i] - 1)
		if last/kernels.PageTokens != (last+by)/kernels.PageTokens {
			d.slots[int(seq[i])] = 0
			continue
		}
		newStart[i] += int32(by)
		for r := off[i]; r < off[i]+length[i]; r++ {
			newPos[r] += int32(by)
		}
	}
	t.put(b.Start, newStart)
	t.put(b.Pos, newPos)
	run()
	t.put(b.Start, start)
	t.put(b.Pos, pos)
}

func (d *drift) attend(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec) {
	d.moved(b, func() { d.tap.Queue.Attend(dst, proj, c, b, s) })
}

func (d *drift) delta(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
	d.moved(b, func() { d.tap.Queue.Delta(dst, proj, c, b, s) })
}

// resetKeys forgets all keys before the step that follows a rejection. The one
// sequence that runs makes the position before which no keys exist.
func resetKeys() trial.Wiring {
	first := 0
	return onQueue(func(t *tap) {
		t.attend = func(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec) {
			spec := *s
			spec.FirstKey = first
			t.Queue.Attend(dst, proj, c, b, &spec)
		}
		t.reset = func(c kernels.Caches, slot int) {
			first = 0
			t.Queue.Reset(c, slot)
		}
	}, &hooks{verdict: func(_ *engine.Sequence, v *engine.Verification, d engine.Verdict) engine.Verdict {
		if int(d.Accepted) < len(v.Draft.Tokens) {
			first = v.Position + int(d.Accepted) + 1
		}
		return d
	}})
}

// columnZero keeps the state of each column of a verification, and reads that of
// the first when the next step has no drafts.
func columnZero() trial.Wiring {
	d := &drift{slots: map[int]int{}}
	last := map[int]int{} // accepted drafts of the last step, by slot
	return onQueue(func(t *tap) {
		d.tap = t
		t.delta = func(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
			seq, length, start := t.table(b.Seq), t.table(b.Len), t.table(b.Start)
			for i := range seq {
				slot, by := int(seq[i]), 0
				if n := last[slot]; length[i] == 1 && n > 0 && int(start[i])/kernels.WindowTokens == (int(start[i])-n)/kernels.WindowTokens {
					by = -n
				}
				d.slots[slot] = by
			}
			d.delta(dst, proj, c, b, s)
		}
		t.reset = func(c kernels.Caches, slot int) {
			delete(last, slot)
			t.Queue.Reset(c, slot)
		}
	}, &hooks{verdict: func(seq *engine.Sequence, _ *engine.Verification, out engine.Verdict) engine.Verdict {
		last[seq.Slot()] = int(out.Accepted)
		return out
	}})
}

// zeroState restores a snapshot of nothing in the place of the right one: the
// keys are there, the recurrent state is not.
func zeroState() trial.Wiring {
	taken := false
	return onQueue(func(t *tap) {
		t.reset = func(c kernels.Caches, slot int) {
			t.Queue.Reset(c, slot)
			if !taken {
				taken = true
				t.Queue.Save(c, slot, c.Spec().Snapshots-1)
			}
		}
		t.restore = func(c kernels.Caches, slot, _, length int) {
			t.Queue.Restore(c, slot, c.Spec().Snapshots-1, length)
		}
	}, nil)
}

// otherSnapshot restores the snapshot that was saved after the right one.
func otherSnapshot() trial.Wiring {
	var saved []int
	return onQueue(func(t *tap) {
		t.save = func(c kernels.Caches, slot, snapshot int) {
			saved = append(saved, snapshot)
			t.Queue.Save(c, slot, snapshot)
		}
		t.restore = func(c kernels.Caches, slot, snapshot, length int) {
			if i := slices.Index(saved, snapshot); i >= 0 {
				snapshot = saved[(i+1)%len(saved)]
			}
			t.Queue.Restore(c, slot, snapshot, length)
		}
	}, nil)
}
