package kerneltest

import (
	"fmt"
	"math"
	"testing"

	"exacta.dev/exacta/kernels"
)

// testAttend compares attention with ref, over several splits.
func testAttend(t *testing.T, s suite) {
	for _, a := range attnShapes {
		if a.index > 0 { // rounded scores choose other keys: see Select and Masked
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			s.judge(t, 40, boundLayer, 600, a.name, func(r *rig) kernels.Buf {
				m := r.machine(1, 11, 3, 0, r.attnLayer(a))
				return m.prefill(600, 64, 200, 336)
			})
		})
	}
	// As an MTP drafter runs: its first row is at position 1, and position 0
	// holds no key, not even when a span begins there (row 0 itself then means
	// nothing). Lengths stay at 0: the layer is never committed.
	for _, first := range []int{1, 0} {
		t.Run(fmt.Sprintf("FirstKey/from=%d", first), func(t *testing.T) {
			a := attnShapes[0]
			a.firstKey = 1
			s.judge(t, 41, boundLayer, 39, "first key", func(r *rig) kernels.Buf {
				m := r.machine(1, 2, 3, 0, r.attnLayer(a))
				m.ensure(0, 41)
				rows := m.sequence(40)
				dst := r.alloc(kernels.BF16, 40, m.layers[0].out)
				at := 0
				for _, n := range []int{5, 26, 9} {
					m.plain(piece{start: first + at, rows: rows[at : at+n], kept: -1})
					r.q.Copy(dst.Slice(at, at+n), m.out[0].Top(n))
					at += n
				}
				return dst.Slice(1, 40)
			})
		})
	}
}

// testDelta compares Gated DeltaNet with ref's step recurrence, over several
// windows.
func testDelta(t *testing.T, s suite) {
	for _, d := range deltaShapes {
		t.Run(d.name, func(t *testing.T) {
			s.judge(t, 42, boundLayer, 300, d.name, func(r *rig) kernels.Buf {
				m := r.machine(1, 5, 3, 0, r.deltaLayer(d))
				return m.prefill(300, 1, 2, 61, 70, 166)
			})
		})
	}
}

// prefill runs n rows in the given chunks and returns the first layer's output.
func (m *machine) prefill(n int, chunk ...int) kernels.Buf {
	m.ensure(0, n)
	rows := m.sequence(n)
	dst := m.alloc(kernels.BF16, n, m.layers[0].out)
	at := 0
	for _, c := range chunk {
		m.plain(piece{start: at, rows: rows[at : at+c], kept: c})
		m.q.Copy(dst.Slice(at, at+c), m.out[0].Top(c))
		at += c
	}
	return dst
}

// testNotFinite puts values that are no finite numbers into the last rows of a sequence,
// and into drafts that are rejected: rows in front of them must not notice.
func testNotFinite(t *testing.T, s suite) {
	for _, shape := range []attnShape{attnShapes[0], attnShapes[1], attnShapes[4], attnShapes[6]} {
		t.Run(shape.name, func(t *testing.T) {
			const n, wild = 140, 130
			r := s.rig(t, 47)
			l := r.attnLayer(shape)
			values := l.main - shape.kv*l.attn.Values() // where they begin in a row
			spoil := func(row []float32) []float32 {
				row[values+r.rnd.IntN(l.main-values)] = float32(math.Inf(1 - 2*r.rnd.IntN(2)))
				row[values+r.rnd.IntN(l.main-values)] = float32(math.NaN())
				return row
			}
			base := r.machine(1, n/kernels.PageTokens+2, 0, 0, l)
			rows := base.sequence(n)
			for _, row := range rows[wild:] {
				spoil(row)
			}
			want := base.baseline(rows)
			for _, c := range []int{n, 67, 9} {
				m := r.machine(1, n/kernels.PageTokens+2, 0, 0, l)
				m.play(false, chunks(c), &track{name: fmt.Sprintf("chunks of %d", c), rows: rows, want: want, end: n})
				m.close()
			}
			const drafts = 7
			m := r.machine(1, n/kernels.PageTokens+2, drafts, 0, l)
			m.ensure(0, n+drafts)
			tr := &track{name: "drafts", rows: rows, want: want, end: n}
			for tr.at < n {
				good := min(1+r.rnd.IntN(drafts), n-tr.at)
				p := piece{start: tr.at, rows: append([][]float32(nil), rows[tr.at:tr.at+good]...), kept: good}
				for range drafts + 1 - good {
					p.rows = append(p.rows, spoil(m.sequence(1)[0]))
				}
				m.check(tr, m.plain(p)[0], good, p)
			}
			m.close()
			base.close()
		})
	}
}

// narrow is a cheap attention layer for long sequences.
var narrow = attnShape{name: "narrow", q: 2, kv: 1, dim: 32, gated: true, norm: true, rotary: 8}

// testSpans runs one sequence in every way in which an engine may cut and batch
// it and requires equal bits.
func testSpans(t *testing.T, s suite) {
	kinds := []struct {
		name string
		make func(r *rig) []*layer
		n    int
	}{
		{"Attend", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[0])} }, 200},
		{"Attend/grouped", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[1])} }, 140},
		{"Attend/latent", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[4])} }, 140},
		{"Attend/chosen", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[5])} }, 140},
		{"Attend/few", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[8])} }, 640},
		{"Attend/blocks", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[6])} }, 140},
		{"Blend", func(r *rig) []*layer { return []*layer{r.blendLayer()} }, 140},
		{"Grams", func(r *rig) []*layer { return []*layer{r.gramLayer()} }, 140},
		{"Attend/splits", func(r *rig) []*layer { return []*layer{r.attnLayer(narrow)} }, 1060},
		{"Delta", func(r *rig) []*layer { return []*layer{r.deltaLayer(deltaShapes[0])} }, 330},
		{"Delta/long", func(r *rig) []*layer { return []*layer{r.deltaLayer(deltaShapes[2])} }, 200},
		{"Pooled/window", func(r *rig) []*layer { return []*layer{r.pooledLayer(pooledShapes[0])} }, 200},
		{"Pooled/overlap", func(r *rig) []*layer { return []*layer{r.pooledLayer(pooledShapes[1])} }, 140},
		{"Pooled/long", func(r *rig) []*layer { return []*layer{r.pooledLayer(pooledShapes[3]), r.pooledLayer(pooledShapes[2])} }, 160},
		{"Pooled/chosen", func(r *rig) []*layer { return []*layer{r.pooledLayer(pooledShapes[5])} }, 140},
		{"Pooled/candidates", func(r *rig) []*layer { return []*layer{r.pooledLayer(pooledShapes[6])} }, 140},
		{"Pooled/splits", func(r *rig) []*layer {
			return []*layer{r.pooledLayer(pooledShape{heads: 2, dim: 16, rotary: 4, window: 100, ratio: 1, sink: true})}
		}, 640},
		{"Both", func(r *rig) []*layer {
			return []*layer{r.deltaLayer(deltaShapes[1]), r.attnLayer(attnShapes[2]), r.deltaLayer(deltaShapes[3])}
		}, 200},
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := s.rig(t, 43)
			layers := k.make(r)
			slotPages := k.n/kernels.PageTokens + 2
			base := r.machine(1, slotPages, 0, 0, layers...)
			rows := base.sequence(k.n)
			want := base.baseline(rows)
			sizes, drafts := []int{2, 3, 7, 16, 63, 64, 65, 128, 512, 600}, []int{1, 3, 8, 63}
			if k.n > 600 { // small chunks of long sequences are slow
				sizes, drafts = []int{7, 64, 65, 512, 600}, []int{3, 63}
			}
			for _, c := range sizes {
				m := r.machine(1, slotPages, 0, 0, layers...)
				m.play(false, chunks(c), &track{name: fmt.Sprintf("chunks of %d", c), rows: rows, want: want, end: k.n})
				m.close()
			}
			for _, d := range drafts {
				m := r.machine(1, slotPages+1, d, 0, layers...)
				m.play(false, verify(d), &track{name: fmt.Sprintf("%d drafts", d), rows: rows, want: want, end: k.n})
				m.close()
			}
			testLengths(r, layers, rows, want)
			testBatches(r, layers, rows, want)
		})
	}
}

// testLengths enters the neighbourhood of each border by a chunk and goes on by
// verifications.
func testLengths(r *rig, layers []*layer, rows [][]float32, want [][]byte) {
	r.t.Helper()
	const k = 7
	for _, border := range []int{64, 128, 512, 1024} {
		for n := border - 3; n <= border+2; n++ {
			end := border + 12
			if end > len(rows) {
				continue
			}
			m := r.machine(1, end/kernels.PageTokens+2, k, 0, layers...)
			tr := &track{name: fmt.Sprintf("prompt of %d", n), rows: rows, want: want, end: n}
			m.play(false, chunks(n), tr)
			tr.end = end
			// One span that crosses the border and loses its tail before,
			// at and behind it.
			m.play(false, func(_ *machine, tr *track) (int, int) {
				good := 1 + (n+tr.at)%4
				return good, k + 1 - good
			}, tr)
			m.close()
		}
	}
}

// testBatches runs several sequences together in shuffled batches.
func testBatches(r *rig, layers []*layer, rows [][]float32, want [][]byte) {
	r.t.Helper()
	n := min(len(rows), 600)
	slotPages := n/kernels.PageTokens + 3
	// Another sequence, with its own baseline.
	base := r.machine(1, slotPages, 0, 0, layers...)
	other := base.sequence(140)
	wantOther := base.baseline(other)
	for i, p := range []plan{chunks(1), chunks(65), verify(5), mixed(8)} {
		m := r.machine(4, slotPages, 8, 0, layers...)
		if i == 0 {
			n = min(n, 80) // one row at a time is slow, and the baseline has it
		} else {
			n = min(len(rows), 600)
		}
		m.play(true, p,
			&track{name: "first", rows: rows, want: want, slot: 2, end: n},
			&track{name: "second", rows: other, want: wantOther, slot: 0, end: min(n, 140)},
			&track{name: "third", rows: rows, want: want, slot: 3, end: min(n, 129)},
			&track{name: "fourth", rows: other, want: wantOther, slot: 1, end: 63},
		)
		m.close()
	}
}
