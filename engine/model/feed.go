package model

import (
	"fmt"
	"io"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// feed is the second half of a decoder layer: an MLP, or a mixture of experts with
// or without an expert that all rows get.
type feed struct {
	gateUp, down kernels.Weight // the MLP, or the expert of all rows; none without
	width        int            // inside it
	apart        bool           // gate and up of all experts come apart, and are limited
	limit        float32
	moe          *mixture // nil: the MLP alone
}

// mixture are the routed experts of a layer:
//
//	y = sum over the chosen experts e of w_e * down_e(silu(gate_e(x)) * up_e(x))
//
// to which the expert of all rows is added, times sigmoid(gate(x)) if it has a gate.
type mixture struct {
	router        kernels.Weight
	route         kernels.RouteSpec
	experts, size int
	up, down      kernels.Weight // banks
	gate          kernels.Weight // of the expert of all rows, whose down is then a bank of one
	table         kernels.Buf    // the experts of each token, I32 [vocabulary, K]; none: the router chooses
}

// params returns the parameters that a row reads.
func (f *feed) params(hidden int) int64 {
	n := 3 * int64(hidden) * int64(f.width)
	if m := f.moe; m != nil {
		n += int64(hidden) * (int64(m.experts) + 3*int64(m.route.K)*int64(m.size))
		if !m.gate.None() {
			n += int64(hidden)
		}
	}
	return n
}

// loadFeed loads the feed-forward part whose tensors start with prefix: sparse, if it is
// a mixture, given, if a table chooses its experts.
func (l *loader) loadFeed(prefix string, sparse, given bool, t traits) feed {
	c := l.src.Config()
	if !sparse {
		f := feed{width: c.IntermediateSize}
		f.gateUp, f.down = l.mlpOf(prefix, c.IntermediateSize)
		return f
	}
	e := c.MoE
	m := &mixture{
		router: l.matrix(prefix+"gate.weight", e.Experts, c.HiddenSize), experts: e.Experts, size: e.Size,
		route: kernels.RouteSpec{K: e.PerToken, Groups: e.Groups, Kept: e.KeptGroups, Normalize: e.Normalize, Scale: float32(e.Scale)},
	}
	n := t.tensors()
	switch e.Score {
	case checkpoint.SigmoidTopK:
		m.route.Score = kernels.ScoreSigmoid
	case checkpoint.SqrtSoftplus:
		m.route.Score = kernels.ScoreSqrtSoftplus
	}
	if e.Score != checkpoint.Softmax && !given {
		m.route.Bias = l.vector(prefix+n.bias, e.Experts)
	}
	f := feed{width: e.SharedSize, moe: m, apart: c.Pooled.Window > 0, limit: float32(e.Limit)}
	m.route.Given = given
	if m.down = l.bank(prefix+"experts.", n, []string{n.down}, e.Experts, c.HiddenSize, e.Size); f.apart {
		m.up = l.halves(prefix+"experts.", n, e.Experts, e.Size, c.HiddenSize)
	} else {
		m.up = l.bank(prefix+"experts.", n, []string{n.gate, n.up}, e.Experts, e.Size, c.HiddenSize)
	}
	switch {
	case f.apart:
		at := prefix + t.shared + "."
		f.gateUp = l.load(kernels.Matrix, false, c.HiddenSize, part{at + n.gate + ".weight", e.SharedSize}, part{at + n.up + ".weight", e.SharedSize})
		f.down = l.matrix(at+n.down+".weight", c.HiddenSize, e.SharedSize)
	case e.SharedSize == 0:
	case e.SharedGate:
		at := prefix + t.shared
		f.gateUp = l.mlpUp(at+".", e.SharedSize)
		f.down = l.load(kernels.Bank, false, e.SharedSize, part{at + ".down_proj.weight", c.HiddenSize})
		m.gate = l.matrix(at+"_gate.weight", 1, c.HiddenSize)
	default:
		f.gateUp, f.down = l.mlpOf(prefix+t.shared+".", e.SharedSize)
	}
	return f
}

// bank loads the experts' projections of those names, each [rows, cols]: from one
// tensor an expert and projection, or from one stack of all [experts, rows, cols],
// in which the rows of gate and up follow each other within an expert.
func (l *loader) bank(prefix string, n names, which []string, experts, rows, cols int) kernels.Weight {
	if l.err != nil {
		return kernels.Weight{}
	}
	stack := prefix + which[0]
	if len(which) == 2 {
		stack = prefix + "gate_up_proj"
	}
	paired := len(which) == 2
	if !l.src.Has(stack) {
		var parts []part
		for e := range experts {
			for _, w := range which {
				parts = append(parts, part{prefix + fmt.Sprintf(n.expert, e, w), rows})
			}
		}
		return l.load(kernels.Bank, paired, cols, parts...)
	}
	src, err := l.src.Matrix(stack, experts*len(which)*rows, cols)
	if err != nil {
		l.err = err
		return kernels.Weight{}
	}
	t := kernels.Tensor{Name: stack, Use: kernels.Bank, Paired: paired}
	size := int64(rows * cols * src.DType.Size())
	for i := range experts * len(which) {
		p := src
		p.Rows, p.Name = rows, fmt.Sprintf("%s[%d]", stack, i/len(which))
		p.Data = io.NewSectionReader(src.Data, int64(i)*size, size)
		t.Parts = append(t.Parts, p)
	}
	return l.take(t, stack)
}

// halves loads gate and up of each expert as one matrix [2*rows, cols].
func (l *loader) halves(prefix string, n names, experts, rows, cols int) kernels.Weight {
	t := kernels.Tensor{Name: prefix + n.gate + "+...", Use: kernels.Bank}
	var done []string
	for e := range experts {
		gate, up := prefix+fmt.Sprintf(n.expert, e, n.gate), prefix+fmt.Sprintf(n.expert, e, n.up)
		a, b := l.source(gate, rows, cols), l.source(up, rows, cols)
		if l.err == nil && a.DType != b.DType {
			l.err = fmt.Errorf("%s: tensor %s is %s, %s is %s; they must agree", l.src.Name(), gate, a.DType, up, b.DType)
		}
		if l.err != nil {
			return kernels.Weight{}
		}
		a.Data, a.Rows = joined{a.Data, b.Data, int64(rows * cols * a.DType.Size())}, 2*rows
		t.Parts, done = append(t.Parts, a), append(done, gate, up)
	}
	return l.take(t, done...)
}

// joined are two sources of size bytes, one behind the other.
type joined struct {
	a, b io.ReaderAt
	size int64
}

// ReadAt implements io.ReaderAt.
func (j joined) ReadAt(p []byte, off int64) (int, error) {
	if off >= j.size {
		return j.b.ReadAt(p, off-j.size)
	}
	n, err := j.a.ReadAt(p[:min(int64(len(p)), j.size-off)], off)
	if n == len(p) || err != nil && err != io.EOF {
		return n, err
	}
	m, err := j.b.ReadAt(p[n:], 0)
	return n + m, err
}

// feedScratch are the activations of mixtures of experts.
type feedScratch struct {
	normed, up        kernels.Buf // [rows, hidden]; [rows * K, size]
	logits, sum, gate kernels.Buf // F32 [rows, experts]; [rows, hidden]; [rows, 1]
	weights, ids      kernels.Buf // F32 and I32 [rows, K]
	zeros             kernels.Buf // I32 [rows, 1]: the expert of all rows
	halves, shared    kernels.Buf // F32: gate and up apart, [rows * K, 2*size] and [rows, 2*width]
}

// reserve allocates what any of the blocks needs; nothing if none is a mixture.
func (s *feedScratch) reserve(b *buffers, rows, hidden int, blocks []*block) {
	k, up, experts, halves, shared := 0, 0, 0, 0, 0
	for _, bl := range blocks {
		if m := bl.feed.moe; m != nil {
			k, up, experts = max(k, m.route.K), max(up, m.size), max(experts, m.experts)
			if bl.feed.apart {
				halves, shared = max(halves, 2*m.size), max(shared, 2*bl.feed.width)
			}
		}
	}
	if k == 0 {
		return
	}
	s.normed, s.up = b.alloc(kernels.BF16, rows, hidden), b.alloc(kernels.BF16, rows*k, up)
	s.logits, s.sum, s.gate = b.alloc(kernels.F32, rows, experts), b.alloc(kernels.F32, rows, hidden), b.alloc(kernels.F32, rows, 1)
	if halves > 0 {
		s.halves, s.shared = b.alloc(kernels.F32, rows*k, halves), b.alloc(kernels.F32, rows, shared)
	}
	s.weights, s.ids, s.zeros = b.alloc(kernels.F32, rows, k), b.alloc(kernels.I32, rows, k), b.alloc(kernels.I32, rows, 1)
}

// forward records the feed-forward part over the rows of b, from s.x to out, with a
// residual, which may be out, or none.
func (f *feed) forward(q kernels.Queue, b *kernels.Batch, norm kernels.Norm, s *scratch, out, residual kernels.Buf) {
	n := b.Rows
	x := s.x.Top(n)
	var mlp kernels.Buf
	if f.width > 0 {
		mlp = s.mlp.Top(n).Columns(0, f.width)
	}
	m := f.moe
	if m == nil {
		q.MatMul(mlp, f.gateUp, x, kernels.Linear{In: norm, Act: kernels.SwiGLU})
		q.MatMul(out, f.down, mlp, kernels.Linear{Residual: residual})
		return
	}
	k := m.route.K
	normed, logits, up := x, s.feed.logits.Top(n).Columns(0, m.experts), s.feed.up.Top(n*k).Columns(0, m.size)
	ids, weights, sum := s.feed.ids.Top(n).Columns(0, k), s.feed.weights.Top(n).Columns(0, k), s.feed.sum.Top(n)
	if !norm.W.None() {
		normed = s.feed.normed.Top(n)
		q.Norm(normed, x, norm)
	}
	q.MatMul(logits, m.router, normed, kernels.Linear{})
	if !m.table.None() {
		q.Gather(ids, m.table, b.Token)
	}
	q.Route(ids, weights, logits, &m.route)
	if f.apart {
		halves, shared := s.feed.halves.Top(n*k).Columns(0, 2*m.size), s.feed.shared.Top(n).Columns(0, 2*f.width)
		q.Experts(halves, m.up, normed, ids, kernels.Identity)
		q.GateUp(up, halves, f.limit)
		q.Mix(sum, m.down, up, ids, weights, residual)
		q.MatMul(shared, f.gateUp, normed, kernels.Linear{})
		q.GateUp(mlp, shared, f.limit)
		q.MatMul(out, f.down, mlp, kernels.Linear{Residual: sum})
		return
	}
	q.Experts(up, m.up, normed, ids, kernels.SwiGLU)
	if f.width == 0 {
		q.Mix(out, m.down, up, ids, weights, residual)
		return
	}
	q.Mix(sum, m.down, up, ids, weights, residual)
	q.MatMul(mlp, f.gateUp, normed, kernels.Linear{Act: kernels.SwiGLU})
	if m.gate.None() {
		q.MatMul(out, f.down, mlp, kernels.Linear{Residual: sum})
		return
	}
	gate := s.feed.gate.Top(n)
	q.MatMul(gate, m.gate, normed, kernels.Linear{Act: kernels.Sigmoid})
	q.Mix(out, f.down, mlp, s.feed.zeros.Top(n), gate, sum)
}
