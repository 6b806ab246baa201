package ranks

import "exacta.dev/exacta/kernels"

// local has the operations that every rank runs whole on its own memory, with
// the handles of replicated parameters translated.
type local struct {
	be     *Backend
	in     kernels.Queue
	main   *queue // nil while a program is captured
	attn   kernels.AttnSpec
	gdn    kernels.DeltaSpec
	rt     kernels.RouteSpec
	idx    kernels.IndexSpec
	bl     kernels.BlendSpec
	blk    kernels.BlockSpec
	pooled pooledSpecs
}

// ready counts an operation that is about to be recorded; it is false once the
// queue has failed.
func (l *local) ready() bool {
	if l.main == nil {
		return true
	}
	if l.main.err != nil {
		return false
	}
	l.main.ops++
	return true
}

// Gather copies rows by index.
func (l *local) Gather(dst, src, rows kernels.Buf) {
	if l.ready() {
		l.in.Gather(dst, src, rows)
	}
}

// Scatter copies rows to an index.
func (l *local) Scatter(dst, src, rows kernels.Buf) {
	if l.ready() {
		l.in.Scatter(dst, src, rows)
	}
}

// Copy copies a view.
func (l *local) Copy(dst, src kernels.Buf) {
	if l.ready() {
		l.in.Copy(dst, src)
	}
}

// Norm normalises rows.
func (l *local) Norm(dst, x kernels.Buf, n kernels.Norm) {
	if l.ready() {
		l.in.Norm(dst, x, l.be.norm(n))
	}
}

// Route chooses experts; every rank has all logits.
func (l *local) Route(ids, weights, logits kernels.Buf, s *kernels.RouteSpec) {
	if !l.ready() {
		return
	}
	l.rt = *s
	l.rt.Bias = l.be.replica(s.Bias)
	l.in.Route(ids, weights, logits, &l.rt)
}

// Attend runs an attention layer, all heads on every rank.
func (l *local) Attend(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec) {
	if !l.ready() {
		return
	}
	l.attn = *s
	l.attn.QNorm, l.attn.KNorm = l.be.norm(s.QNorm), l.be.norm(s.KNorm)
	l.attn.Rope = l.be.replica(s.Rope)
	l.in.Attend(dst, proj, c, b, &l.attn)
}

// Select chooses keys, all heads on every rank.
func (l *local) Select(dst, proj, weights kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.IndexSpec) {
	if !l.ready() {
		return
	}
	l.idx = *s
	l.idx.Rope = l.be.replica(s.Rope)
	l.in.Select(dst, proj, weights, c, b, &l.idx)
}

// Delta runs a Gated DeltaNet layer, all heads on every rank.
func (l *local) Delta(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
	if !l.ready() {
		return
	}
	l.gdn = *s
	l.gdn.Taps, l.gdn.ALog, l.gdn.DtBias = l.be.replica(s.Taps), l.be.replica(s.ALog), l.be.replica(s.DtBias)
	l.gdn.Norm = l.be.norm(s.Norm)
	l.in.Delta(dst, proj, c, b, &l.gdn)
}

// Stats reduces gathered logits.
func (l *local) Stats(dst, logits kernels.Buf, vocab int, hash bool) {
	if l.ready() {
		l.in.Stats(dst, logits, vocab, hash)
	}
}

// Chain lays out a chain per span.
func (l *local) Chain(b *kernels.Batch, c kernels.Caches, ahead int, first, rest kernels.Buf) {
	if l.ready() {
		l.in.Chain(b, c, ahead, first, rest)
	}
}

// Shift lays out the successor view of a batch.
func (l *local) Shift(dst, src *kernels.Batch, kept, next kernels.Buf) {
	if l.ready() {
		l.in.Shift(dst, src, kept, next)
	}
}

// Accept applies an acceptance rule.
func (l *local) Accept(kept, next kernels.Buf, r kernels.RuleID, b *kernels.Batch, target kernels.Buf) {
	if l.ready() {
		l.in.Accept(kept, next, r, b, target)
	}
}

// Commit commits what was kept.
func (l *local) Commit(c kernels.Caches, b *kernels.Batch, kept, path kernels.Buf) {
	if l.ready() {
		l.in.Commit(c, b, kept, path)
	}
}

// Reset empties a slot.
func (l *local) Reset(c kernels.Caches, slot int) {
	if l.ready() {
		l.in.Reset(c, slot)
	}
}

// SetPages changes a page table.
func (l *local) SetPages(c kernels.Caches, slot, first int, pages []int32) {
	if l.ready() {
		l.in.SetPages(c, slot, first, pages)
	}
}

// Save copies a slot's states to a snapshot.
func (l *local) Save(c kernels.Caches, slot, snapshot int) {
	if l.ready() {
		l.in.Save(c, slot, snapshot)
	}
}

// Restore copies a snapshot to a slot.
func (l *local) Restore(c kernels.Caches, slot, snapshot, length int) {
	if l.ready() {
		l.in.Restore(c, slot, snapshot, length)
	}
}
