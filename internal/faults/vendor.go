package faults

import (
	"math"
	"unsafe"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/kernels"
)

// vendorFaults are E4 to E9: what would make an engine look faster than it is.
func vendorFaults() []Fault {
	mtp := trial.Setup{Drafter: "mtp", K: 4, MaxNew: 24, Requests: 3, Concurrency: 1}
	repeated := trial.Setup{Drafter: "mtp", K: 3, MaxNew: 16, Requests: 3, Concurrency: 1, Shared: 70, Repeat: true}
	return []Fault{
		{
			ID: "E4", Name: "logits of the pass before, once in eight", Report: "an output buffer that is read too early",
			Setup: mtp, Expect: []string{tokens},
			arm: func(*arming) trial.Wiring {
				var last []float32
				n := 0
				return onLogits(func(_ *tap, _ int, logits []float32) {
					now := append([]float32(nil), logits...)
					if n++; n%8 == 0 {
						copy(logits, last)
					}
					last = now
				})
			},
		},
		{
			ID: "E5", Name: "rows behind the second draft at lower precision", Report: "a cheaper kernel for what is rarely accepted",
			Setup: mtp, Expect: []string{work},
			arm: func(*arming) trial.Wiring {
				return onLogits(func(t *tap, rows int, logits []float32) {
					if t.decode != rows || rows < 4 {
						return
					}
					for i := 3 * len(logits) / rows; i < len(logits); i++ {
						b := math.Float32bits(logits[i])
						logits[i] = math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
					}
				})
			},
		},
		{
			ID: "E6", Name: "prefix cache that nobody asked for", Report: "a warm cache in a comparison with a cold one",
			Setup: repeated, Expect: []string{counts},
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Engine: func(c *engine.Config) { c.PrefixCache = true }}
			},
		},
		{
			ID: "E7", Name: "cached prompt counted as read", Report: "a warm cache that the figures hide",
			Setup: repeated, Expect: []string{work},
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{
					Engine: func(c *engine.Config) { c.PrefixCache = true },
					Interposer: &hooks{count: func(_ *engine.Sequence, r *engine.Record) {
						if n := r.Cached; r.Phase == engine.Prefill && n > 0 {
							r.Cached, r.Position = 0, 0
							r.Rows, r.BatchRows, r.PrefillTokens = r.Rows+n, r.BatchRows+n, r.PrefillTokens+n
						}
					}},
				}
			},
		},
		{
			ID: "E8", Name: "fewer drafts than asked for", Report: "a short draft under the name of a long one",
			Setup: mtp, Expect: []string{counts},
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Submit: func(r *engine.Request) { r.K -= 2 }}
			},
		},
		{
			ID: "E9", Name: "drafting is not timed", Report: "a clock that starts behind the draft",
			Setup: mtp, Expect: []string{work},
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Interposer: &hooks{count: func(_ *engine.Sequence, r *engine.Record) {
					if r.DraftNs > 1 {
						r.DraftNs, r.TotalNs = 1, r.TotalNs-r.DraftNs+1
					}
				}}}
			},
		},
	}
}

// onLogits lets change see and change the target's logits before they are used.
func onLogits(change func(t *tap, rows int, logits []float32)) trial.Wiring {
	return onQueue(func(t *tap) {
		t.matMul = func(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear) {
			t.Queue.MatMul(dst, w, x, l)
			if dst.Kind != kernels.F32 || dst.Rows == 0 {
				return
			}
			logits := make([]float32, int(dst.Rows)*int(dst.Cols))
			raw := unsafe.Slice((*byte)(unsafe.Pointer(&logits[0])), 4*len(logits))
			if t.Queue.Read(raw, dst).Wait() != nil {
				return // the queue's error ends the run
			}
			change(t, int(dst.Rows), logits)
			t.Queue.Write(dst, raw)
		}
	}, nil)
}
