package model

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// taps are the places where Forward copies the residual stream out, for heads
// that draft from more than the final hidden state (EAGLE-3, DFlash).
type taps struct {
	layers [][]int // by tap, numbers of layers run
	bufs   []kernels.Buf
	views  []kernels.Buf // of a pass
}

// reserve allocates the taps' buffers. The error names a layer that the model
// does not have.
func (t *taps) reserve(m *Model, rows int, layers [][]int) error {
	h := m.Config.HiddenSize
	for i, tap := range layers {
		for _, n := range tap {
			if n < 0 || n > len(m.blocks) {
				return fmt.Errorf("%s: tap %d is after layer %d; the model has %d layers", m.Name, i, n, len(m.blocks))
			}
		}
		b, err := m.be.Alloc(kernels.Activations, kernels.BF16, rows, h*len(tap))
		if err != nil {
			return err
		}
		t.bufs = append(t.bufs, b)
	}
	t.layers, t.views = layers, make([]kernels.Buf, len(layers))
	return nil
}

func (t *taps) free(be kernels.Backend) {
	for _, b := range t.bufs {
		be.Free(b)
	}
	*t = taps{}
}

// record copies x, the residual stream after n layers, to the taps that want it.
func (t *taps) record(q kernels.Queue, x kernels.Buf, n int) {
	h := int(x.Cols)
	for i, tap := range t.layers {
		for j, layer := range tap {
			if layer == n {
				q.Copy(t.bufs[i].Top(int(x.Rows)).Columns(j*h, (j+1)*h), x)
			}
		}
	}
}

// top returns the taps' first rows.
func (t *taps) top(rows int) []kernels.Buf {
	for i, b := range t.bufs {
		t.views[i] = b.Top(rows)
	}
	return t.views
}
