package faults

import (
	"math"
	"unsafe"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/kernels"
)

// rowFaults are B18, B21, B25 and skipped rows: what a row of the target's pass
// is computed from.
func rowFaults() []Fault {
	staggered := trial.Setup{Drafter: "mtp", K: 3, MaxNew: 20, Requests: 5, Concurrency: 3, Chunk: 16, BatchTokens: 48}
	return []Fault{
		{
			ID: "B18", Name: "numerics depend on the number of rows", Report: "transformers #39421; llama.cpp #25618; sglang #34734",
			Setup: rejecting(),
			arm: func(*arming) trial.Wiring {
				return onQueue(func(t *tap) { t.matMul = t.wideHead }, nil)
			},
		},
		{
			ID: "B21", Name: "bonus gathered from an uninitialised row", Report: "sglang #37472 (open); NaN kin: TensorRT-LLM #5146",
			Setup: rejecting(),
			arm:   func(*arming) trial.Wiring { return emptyBonus() },
		},
		{
			ID: "B25", Name: "logits rows swapped in mixed steps", Report: "vllm #36917 and its reclassified decodes",
			Setup: staggered,
			arm: func(*arming) trial.Wiring {
				return onQueue(func(t *tap) {
					t.gather = func(dst, src, rows kernels.Buf) {
						if v := t.table(rows); t.mixed() && len(v) > 4 {
							v[0], v[4] = v[4], v[0]
							t.put(rows, v)
						}
						t.Queue.Gather(dst, src, rows)
					}
				}, nil)
			},
		},
		{
			ID: "B25", Name: "gates of another row in mixed steps", Report: "vllm #51812 (fixed in v0.28.0)",
			Setup: staggered,
			arm: func(*arming) trial.Wiring {
				return onQueue(func(t *tap) {
					t.delta = func(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
						if t.mixed() {
							at := 2*s.KHeads*s.KDim + 2*s.VHeads*s.VDim
							gates := proj.Columns(at, at+2*s.VHeads)
							last := int(gates.Rows) - 1 // of the prefill chunk
							t.Queue.Copy(gates.Slice(0, 1), gates.Slice(last, last+1))
						}
						t.Queue.Delta(dst, proj, c, b, s)
					}
				}, nil)
			},
		},
		{
			ID: "E3", Name: "target rows skipped", Report: "confidence trims what is verified, and the width is reported whole (sglang #38897)",
			Setup: rejecting(), Expect: []string{work},
			arm: func(*arming) trial.Wiring { return skippedRows() },
		},
	}
}

// wideHead is a head that has a kernel of its own for wide batches, whose output
// is rounded to BF16.
func (t *tap) wideHead(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear) {
	t.Queue.MatMul(dst, w, x, l)
	if dst.Kind != kernels.F32 || t.rows <= 4 {
		return
	}
	logits := make([]float32, int(dst.Rows)*int(dst.Cols))
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&logits[0])), 4*len(logits))
	if t.Queue.Read(raw, dst).Wait() != nil {
		return // the queue's error ends the run
	}
	for i, v := range logits {
		b := math.Float32bits(v)
		logits[i] = math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
	}
	t.Queue.Write(dst, raw)
}

// emptyBonus leaves the slot of each bonus row unfilled: the gather finds
// nothing there.
func emptyBonus() trial.Wiring {
	var ends []int // indices of bonus rows among the wanted rows of the step
	wanted := 0
	return onQueue(func(t *tap) {
		t.gather = func(dst, src, rows kernels.Buf) {
			if v := t.table(rows); len(ends) > 0 {
				for _, i := range ends {
					v[i] = -1
				}
				t.put(rows, v)
			}
			ends, wanted = ends[:0], 0
			t.Queue.Gather(dst, src, rows)
		}
	}, &hooks{logitRows: func(_ *engine.Sequence, rows int) int {
		if wanted += rows; rows > 1 {
			ends = append(ends, wanted-1)
		}
		return rows
	}})
}

// skippedRows verifies half of each draft and counts the whole.
func skippedRows() trial.Wiring {
	return trial.Wiring{
		Rule: func(inner engine.Verifier) engine.Verifier {
			return &ruled{Verifier: inner, decide: func(inner engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
				cut := *v
				cut.Draft.Tokens = v.Draft.Tokens[:len(v.Argmax)-1]
				d, err := inner.Verify(&cut)
				if err == nil && len(cut.Draft.Tokens) < len(v.Draft.Tokens) {
					d.Kind = engine.NextCorrection
				}
				return d, err
			}}
		},
		Interposer: &hooks{
			span: func(_ *engine.Sequence, start int, ids []int32) (int, []int32) {
				return start, ids[:(len(ids)+2)/2]
			},
			count: func(_ *engine.Sequence, r *engine.Record) {
				if r.Phase != engine.Decode {
					return
				}
				r.Rows = r.KExecuted + 1
				for len(r.Hashes) < int(r.Rows) { // the report has a place for each planned row
					r.Hashes = append(r.Hashes, 0)
					r.Gaps = append(r.Gaps, 0)
				}
			},
		},
	}
}
