package model

import (
	"exacta.dev/exacta/kernels"
)

// hyper is a site of n streams whose coefficients a row has of its own
// (manifold-constrained hyper-connections, kernels.HyperSpec):
//
//	in = sum over h of pre_h * x_h;  x_k = post_k * y + sum over j of comb_jk * x_j
//
// where the mixer behind the last layer has no second half.
type hyper struct {
	spec   kernels.HyperSpec
	hidden int
}

// loadHyper loads a site: prefix is followed by fn, base and scale. Without iterations
// it only brings streams together.
func (l *loader) loadHyper(prefix string, iters int) site {
	c := l.src.Config()
	s := kernels.HyperSpec{Streams: c.Streams.Count, NormEps: float32(c.RMSEps), Eps: float32(c.Streams.Eps), Iters: iters}
	s.Fn = l.load(kernels.Table, false, s.Streams*c.HiddenSize, part{prefix + "fn", s.Cols()})
	s.Base, s.Scale = l.vector(prefix+"base", s.Cols()), l.vector(prefix+"scale", s.Scales())
	return &hyper{s, c.HiddenSize}
}

func (h *hyper) widths() siteWidths { return siteWidths{count: h.spec.Streams, low: h.spec.Cols()} }

// params is 0: what makes coefficients is not counted among the matrix products.
func (h *hyper) params() int64 { return 0 }

func (h *hyper) collapse(q kernels.Queue, dst, x kernels.Buf, s *streamScratch) {
	weights := h.weights(x, s)
	q.Hyper(weights, x, &h.spec)
	q.Collapse(dst, x, weights.Columns(0, h.spec.Streams), 1)
}

func (h *hyper) spread(q kernels.Queue, x, y kernels.Buf, s *streamScratch) {
	weights, n := h.weights(x, s), h.spec.Streams
	q.Spread(x, y, weights.Columns(n, 2*n), weights.Columns(2*n, h.spec.Cols()))
}

// weights are the coefficients, which stay from collapse to spread.
func (h *hyper) weights(x kernels.Buf, s *streamScratch) kernels.Buf {
	return s.low.Top(int(x.Rows)).Columns(0, h.spec.Cols())
}
