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
			layers, stream := tapOf(n)
			if n < 0 || layers > len(m.blocks) {
				return fmt.Errorf("%s: tap %d is after layer %d; the model has %d layers", m.Name, i, layers, len(m.blocks))
			}
			if stream >= m.s.streams.count {
				return fmt.Errorf("%s: tap %d is of residual stream %d; the model has %d", m.Name, i, stream, m.s.streams.count)
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

// record copies the residual stream of rows rows after n layers to the taps that want
// it: of several streams their mean, or the one that is asked for.
func (t *taps) record(q kernels.Queue, s *scratch, rows, n int) {
	x, h := s.x.Top(rows), int(s.x.Cols)
	for i, tap := range t.layers {
		for j, at := range tap {
			layer, stream := tapOf(at)
			dst := t.bufs[i].Top(rows).Columns(j*h, (j+1)*h)
			switch {
			case layer != n:
			case s.streams.count == 0:
				q.Copy(dst, x)
			case stream < 0:
				q.Collapse(dst, s.streams.x.Top(rows), kernels.Buf{}, 1/float32(s.streams.count))
			default:
				q.Copy(dst, s.streams.x.Top(rows).Columns(stream*h, (stream+1)*h))
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
