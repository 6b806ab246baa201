package vec

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"
)

// benchWeights is a buffer far larger than the caches, in huge pages where the
// system has them.
var benchWeights = bigMemory(1 << 30)

// interleave runs the functions in turn, round after round, and returns the best
// time of each in seconds of this thread: ratios of them survive a machine whose
// speed drifts and that does other work.
func interleave(rounds int, fs ...func(round int)) []float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := make([]float64, len(fs))
	for r := range rounds {
		for i, f := range fs {
			start := threadTime()
			f(r)
			if t := (threadTime() - start).Seconds(); r == 0 || t < best[i] {
				best[i] = t
			}
		}
	}
	return best
}

const benchK = 2048

// overPanels multiplies every panel of w by m rows.
func overPanels(s *Set, w []byte, x []uint16, out []float32, m int) {
	const panel = benchK * PanelRows * 2
	vecs, step := 4, s.MaxM4
	if m > s.MaxM4 {
		vecs, step = 2, s.MaxM2
	}
	for p := 0; p+panel <= len(w); p += panel {
		for r := 0; r < m; r += step {
			for v := 0; v < 4; v += vecs {
				s.Gemm(&out[r*PanelRows+16*v], PanelRows, (*uint16)(unsafe.Pointer(&w[p+64*v])), vecs,
					&x[r*benchK], benchK, min(step, m-r), benchK/2, false)
			}
		}
	}
}

// BenchmarkGemm reads weights from memory for 1 to 12 rows, beside the read loop
// of the same set over the same memory.
func BenchmarkGemm(b *testing.B) {
	const part = 16 << 20
	for _, s := range testSets() {
		for _, m := range []int{1, 2, 4, 6, 7, 8, 12} {
			if s == &goSet {
				continue
			}
			b.Run(fmt.Sprintf("%s/m=%d", s.Name, m), func(b *testing.B) {
				x, out := make([]uint16, m*benchK), make([]float32, m*PanelRows)
				at := func(r int) []byte { return benchWeights()[r*part%(1<<30):][:part] }
				benchWeights()
				for b.Loop() {
				}
				t := interleave(48,
					func(r int) { s.ReadAll(at(2 * r)) },
					func(r int) { overPanels(s, at(2*r+1), x, out, m) })
				read, gemm := t[0], t[1]
				b.ReportMetric(part/gemm/1e9, "GB/s")
				b.ReportMetric(part/read/1e9, "read-GB/s")
				b.ReportMetric(read/gemm, "of-read")
				b.ReportMetric(float64(m)*part/2/gemm/1e9, "GMAC/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkPrefill multiplies 512 rows by 512 KiB of weights, beside the arithmetic
// peak of the set and of VDPBF16PS.
func BenchmarkPrefill(b *testing.B) {
	const rows, panels = 512, 2
	for _, s := range testSets() {
		if s == &goSet {
			continue
		}
		for _, vecs := range []int{4, 2} {
			b.Run(fmt.Sprintf("%s/vecs=%d", s.Name, vecs), func(b *testing.B) {
				x, out := make([]uint16, rows*benchK), make([]float32, rows*PanelRows)
				w := benchWeights()[:panels*benchK*PanelRows*2]
				step := s.MaxM4
				if vecs == 2 {
					step = s.MaxM2
				}
				for b.Loop() {
				}
				var macs int64
				t := interleave(10,
					func(int) { macs = s.Peak(50_000) },
					func(int) {
						for p := range panels {
							for v := 0; v < 4; v += vecs {
								for r := 0; r < rows; r += step {
									s.Gemm(&out[r*PanelRows+16*v], PanelRows, (*uint16)(unsafe.Pointer(&w[p*benchK*PanelRows*2+64*v])), vecs,
										&x[r*benchK], benchK, min(step, rows-r), benchK/2, false)
								}
							}
						}
					})
				rate := float64(rows*panels*PanelRows*benchK) / t[1] / 1e9
				peak := float64(macs) / t[0] / 1e9
				b.ReportMetric(rate, "GMAC/s")
				b.ReportMetric(peak, "peak-GMAC/s")
				b.ReportMetric(rate/peak, "of-peak")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkElementwise times the other hot primitives on rows of 4,096 elements
// (states of 128 x 128).
func BenchmarkElementwise(b *testing.B) {
	const n = 4096
	f, g, w, h, k := make([]float32, 4*n), make([]float32, n), make([]float32, n), make([]uint16, n), make([]uint16, n)
	for i := range g {
		f[i], g[i], w[i], h[i] = float32(i%61)/7-4, float32(i%31)/3-5, 1, BF16(float32(i%17)/5-1)
	}
	in := &[4][]uint16{h, h, h, h}
	state := make([]float32, 128*128)
	for _, s := range Sets() {
		for _, p := range []struct {
			name string
			run  func()
			n    int
		}{
			{"ToBF16", func() { s.ToBF16(k, g) }, n},
			{"FromBF16", func() { s.FromBF16(f[:n], h) }, n},
			{"SumSquaresBF16", func() { s.SumSquaresBF16(h) }, n},
			{"ScaleWeightBF16", func() { s.ScaleWeightBF16(k, h, 0.5, w) }, n},
			{"Axpy", func() { s.Axpy(f[:n], g, 0.5) }, n},
			{"Max", func() { s.Max(g) }, n},
			{"ExpSub", func() { s.ExpSub(f[:n], g, 5) }, n},
			{"SiLU", func() { s.SiLU(f[:n], g) }, n},
			{"SwiGLUBF16", func() { s.SwiGLUBF16(k, g, w) }, n},
			{"AddBF16", func() { s.AddBF16(k, h, g) }, n},
			{"MulSigmoidBF16", func() { s.MulSigmoidBF16(k, g, h) }, n},
			{"NormGateBF16", func() { s.NormGateBF16(k, g, 0.5, w, h, true) }, n},
			{"Conv4BF16", func() { s.Conv4BF16(k, f, in) }, n},
			{"MatVec", func() { s.MatVec(f[:128], state, 128, g[:128]) }, 128 * 128},
			{"MatVec2", func() { s.MatVec2(f[:128], f[128:256], state, 128, g[:128], g[:128]) }, 128 * 128},
			{"MatVecAdd2", func() { s.MatVecAdd2(f[:128], f[128:256], state, 128, g[:128], g[:128]) }, 128 * 128},
			{"RotateHalf", func() { s.RotateHalf(f[:2*n], w, g) }, n},
			{"Top2", func() { s.Top2(g) }, n},
			{"HashSegment", func() { s.HashSegment(g[:1024]) }, 1024},
		} {
			b.Run(s.Name+"/"+p.name, func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				start := threadTime()
				for b.Loop() {
					p.run()
				}
				b.ReportMetric(float64((threadTime()-start).Nanoseconds())/float64(b.N)/float64(p.n), "ns/element")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkReadAll reads from memory.
func BenchmarkReadAll(b *testing.B) {
	const part = 32 << 20
	for _, s := range Sets() {
		b.Run(s.Name, func(b *testing.B) {
			w := benchWeights()
			b.SetBytes(part)
			i := 0
			for b.Loop() {
				s.ReadAll(w[i*part%(1<<30):][:part])
				i++
			}
		})
	}
}

// fill sets x to BF16 numbers around one.
func fill(x []byte) []byte {
	for i := 0; i+1 < len(x); i += 2 {
		x[i], x[i+1] = byte(i*7>>3), 0x3f
	}
	return x
}
