package fakedev

import "exacta.dev/exacta/kernels"

// recorder has the operations of kernels.Queue that may be captured: it
// translates the handles of each and hands the command to add.
type recorder struct {
	be  *Backend
	add func(c command, err error)
}

// record adds an operation whose handles o has translated.
func (r *recorder) record(name string, o *operands, call func(q kernels.Queue)) {
	r.add(command{name: name, used: o.used, run: call}, o.err)
}

// Embed records an embedding.
func (r *recorder) Embed(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	o := &operands{be: r.be}
	d, t, i := o.buf(dst, "dst"), o.weight(table, "table"), o.buf(ids, "ids")
	r.record("embed", o, func(q kernels.Queue) { q.Embed(d, t, i) })
}

// Gather records a gather.
func (r *recorder) Gather(dst, src, rows kernels.Buf) {
	o := &operands{be: r.be}
	d, s, i := o.buf(dst, "dst"), o.buf(src, "src"), o.buf(rows, "rows")
	r.record("gather", o, func(q kernels.Queue) { q.Gather(d, s, i) })
}

// Scatter records a scatter.
func (r *recorder) Scatter(dst, src, rows kernels.Buf) {
	o := &operands{be: r.be}
	d, s, i := o.buf(dst, "dst"), o.buf(src, "src"), o.buf(rows, "rows")
	r.record("scatter", o, func(q kernels.Queue) { q.Scatter(d, s, i) })
}

// Copy records a copy.
func (r *recorder) Copy(dst, src kernels.Buf) {
	o := &operands{be: r.be}
	d, s := o.buf(dst, "dst"), o.buf(src, "src")
	r.record("copy", o, func(q kernels.Queue) { q.Copy(d, s) })
}

// Norm records a norm.
func (r *recorder) Norm(dst, x kernels.Buf, n kernels.Norm) {
	o := &operands{be: r.be}
	d, s := o.buf(dst, "dst"), o.buf(x, "x")
	n = o.norm(n, "norm")
	r.record("norm", o, func(q kernels.Queue) { q.Norm(d, s, n) })
}

// MatMul records a matrix product.
func (r *recorder) MatMul(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear) {
	o := &operands{be: r.be}
	d, m, s := o.buf(dst, "dst"), o.weight(w, "w"), o.buf(x, "x")
	l.In, l.Bias = o.norm(l.In, "input norm"), o.weight(l.Bias, "bias")
	l.Residual = o.optional(l.Residual, "residual")
	r.record("matmul", o, func(q kernels.Queue) { q.MatMul(d, m, s, l) })
}

// Route records the choice of experts.
func (r *recorder) Route(ids, weights, logits kernels.Buf, s *kernels.RouteSpec) {
	o, spec := &operands{be: r.be}, *s
	i, w, l := o.buf(ids, "ids"), o.buf(weights, "weights"), o.buf(logits, "logits")
	spec.Bias = o.weight(s.Bias, "bias")
	r.record("route", o, func(q kernels.Queue) { q.Route(i, w, l, &spec) })
}

// Experts records products with experts.
func (r *recorder) Experts(dst kernels.Buf, w kernels.Weight, x, ids kernels.Buf, act kernels.Act) {
	o := &operands{be: r.be}
	d, m, s, i := o.buf(dst, "dst"), o.weight(w, "w"), o.buf(x, "x"), o.buf(ids, "ids")
	r.record("experts", o, func(q kernels.Queue) { q.Experts(d, m, s, i, act) })
}

// Mix records the sum over experts.
func (r *recorder) Mix(dst kernels.Buf, w kernels.Weight, x, ids, weights, residual kernels.Buf) {
	o := &operands{be: r.be}
	d, m, s := o.buf(dst, "dst"), o.weight(w, "w"), o.buf(x, "x")
	i, a, res := o.buf(ids, "ids"), o.buf(weights, "weights"), o.optional(residual, "residual")
	r.record("mix", o, func(q kernels.Queue) { q.Mix(d, m, s, i, a, res) })
}

// Blocks records a product with a block-diagonal matrix.
func (r *recorder) Blocks(dst kernels.Buf, w kernels.Weight, x kernels.Buf) {
	o := &operands{be: r.be}
	d, m, s := o.buf(dst, "dst"), o.weight(w, "w"), o.buf(x, "x")
	r.record("blocks", o, func(q kernels.Queue) { q.Blocks(d, m, s) })
}

// Attend records an attention layer.
func (r *recorder) Attend(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec) {
	o := &operands{be: r.be}
	d, p, l, t, spec := o.buf(dst, "dst"), o.buf(proj, "proj"), o.layer(c), o.batch(b, "batch"), *s
	spec.QNorm, spec.KNorm = o.norm(s.QNorm, "query norm"), o.norm(s.KNorm, "key norm")
	spec.Rope, spec.Keys = o.weight(s.Rope, "rope"), o.optional(s.Keys, "keys")
	r.record("attend", o, func(q kernels.Queue) { q.Attend(d, p, l, t, &spec) })
}

// Select records the choice of keys.
func (r *recorder) Select(dst, proj, weights kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.IndexSpec) {
	o := &operands{be: r.be}
	d, p, w, l, t, spec := o.buf(dst, "dst"), o.buf(proj, "proj"), o.buf(weights, "weights"), o.layer(c), o.batch(b, "batch"), *s
	spec.Rope = o.weight(s.Rope, "rope")
	r.record("select", o, func(q kernels.Queue) { q.Select(d, p, w, l, t, &spec) })
}

// Delta records a Gated DeltaNet layer.
func (r *recorder) Delta(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
	o := &operands{be: r.be}
	d, p, l, t, spec := o.buf(dst, "dst"), o.buf(proj, "proj"), o.layer(c), o.batch(b, "batch"), *s
	spec.Taps = o.weight(s.Taps, "taps")
	spec.ALog, spec.DtBias = o.weight(s.ALog, "a_log"), o.weight(s.DtBias, "dt_bias")
	spec.Norm = o.norm(s.Norm, "norm")
	r.record("delta", o, func(q kernels.Queue) { q.Delta(d, p, l, t, &spec) })
}

// Stats records a reduction of logits.
func (r *recorder) Stats(dst, logits kernels.Buf, vocab int, hash bool) {
	o := &operands{be: r.be}
	d, s := o.buf(dst, "dst"), o.buf(logits, "logits")
	r.record("stats", o, func(q kernels.Queue) { q.Stats(d, s, vocab, hash) })
}

// Chain records the layout of a chain per span.
func (r *recorder) Chain(b *kernels.Batch, c kernels.Caches, ahead int, first, rest kernels.Buf) {
	o := &operands{be: r.be}
	t, cs, f, s := o.batch(b, "batch"), o.find(c.ID()), o.buf(first, "first"), o.optional(rest, "rest")
	r.record("chain", o, func(q kernels.Queue) { q.Chain(t, cs, ahead, f, s) })
}

// Shift records the successor view of a batch.
func (r *recorder) Shift(dst, src *kernels.Batch, kept, next kernels.Buf) {
	o := &operands{be: r.be}
	d, s, k, n := o.batch(dst, "dst"), o.batch(src, "src"), o.buf(kept, "kept"), o.buf(next, "next")
	r.record("shift", o, func(q kernels.Queue) { q.Shift(d, s, k, n) })
}

// Accept records an acceptance rule.
func (r *recorder) Accept(kept, next kernels.Buf, rule kernels.RuleID, b *kernels.Batch, target kernels.Buf) {
	o := &operands{be: r.be}
	k, n, t, c := o.buf(kept, "kept"), o.buf(next, "next"), o.batch(b, "batch"), o.buf(target, "target")
	r.record("accept", o, func(q kernels.Queue) { q.Accept(k, n, rule, t, c) })
}

// Commit records a commit.
func (r *recorder) Commit(c kernels.Caches, b *kernels.Batch, kept, path kernels.Buf) {
	o := &operands{be: r.be}
	cs, t, k, p := o.find(c.ID()), o.batch(b, "batch"), o.buf(kept, "kept"), o.optional(path, "path")
	r.record("commit", o, func(q kernels.Queue) { q.Commit(cs, t, k, p) })
}

// Reset records the emptying of a slot.
func (r *recorder) Reset(c kernels.Caches, slot int) {
	o := &operands{be: r.be}
	cs := o.find(c.ID())
	r.record("reset", o, func(q kernels.Queue) { q.Reset(cs, slot) })
}

// SetPages records a change of a page table; the pages are copied now.
func (r *recorder) SetPages(c kernels.Caches, slot, first int, pages []int32) {
	o := &operands{be: r.be}
	cs, held := o.find(c.ID()), append([]int32(nil), pages...)
	r.record("set pages", o, func(q kernels.Queue) { q.SetPages(cs, slot, first, held) })
}

// Save records the copy of a slot's states to a snapshot.
func (r *recorder) Save(c kernels.Caches, slot, snapshot int) {
	o := &operands{be: r.be}
	cs := o.find(c.ID())
	r.record("save", o, func(q kernels.Queue) { q.Save(cs, slot, snapshot) })
}

// Restore records the copy of a snapshot to a slot.
func (r *recorder) Restore(c kernels.Caches, slot, snapshot, length int) {
	o := &operands{be: r.be}
	cs := o.find(c.ID())
	r.record("restore", o, func(q kernels.Queue) { q.Restore(cs, slot, snapshot, length) })
}
