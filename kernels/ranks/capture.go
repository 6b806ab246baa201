package ranks

import (
	"slices"

	"exacta.dev/exacta/kernels"
)

// command is a captured operation: one that needs no other rank, or one at which
// the ranks meet.
type command struct {
	local func(l *local)
	meet  func(q *queue)
}

// program is a captured list.
type program []part

// part is a run of local operations as a program of the inner backend, or one
// meeting.
type part struct {
	inner kernels.Program
	ops   uint64
	meet  func(q *queue)
}

// capture is the queue that the body of Queue.Capture records on.
type capture struct {
	kernels.Capturing
	be       *Backend
	commands []command
}

var _ kernels.Queue = (*capture)(nil)

func (c *capture) add(run func(l *local)) { c.commands = append(c.commands, command{local: run}) }

// meeting adds an operation of all ranks, if it fits.
func (c *capture) meeting(err error, run func(q *queue)) {
	if err != nil {
		c.Fail(err)
		return
	}
	c.commands = append(c.commands, command{meet: run})
}

// MatMul captures a product.
func (c *capture) MatMul(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear) {
	_, err := c.be.matmul(dst, w, x, &l)
	c.meeting(err, func(q *queue) { q.MatMul(dst, w, x, l) })
}

// Embed captures a lookup.
func (c *capture) Embed(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	_, err := c.be.embed(dst, table, ids)
	c.meeting(err, func(q *queue) { q.Embed(dst, table, ids) })
}

// Experts captures products with experts.
func (c *capture) Experts(dst kernels.Buf, w kernels.Weight, x, ids kernels.Buf, act kernels.Act) {
	_, err := c.be.experts(dst, w, x, ids, act)
	c.meeting(err, func(q *queue) { q.Experts(dst, w, x, ids, act) })
}

// Mix captures the sum over experts.
func (c *capture) Mix(dst kernels.Buf, w kernels.Weight, x, ids, weights, residual kernels.Buf) {
	_, err := c.be.mix(dst, w, x, ids, weights, residual)
	c.meeting(err, func(q *queue) { q.Mix(dst, w, x, ids, weights, residual) })
}

// Blocks captures a product with a block-diagonal matrix.
func (c *capture) Blocks(dst kernels.Buf, w kernels.Weight, x kernels.Buf) {
	_, err := c.be.diagonal(dst, w, x)
	c.meeting(err, func(q *queue) { q.Blocks(dst, w, x) })
}

// Route captures the choice of experts.
func (c *capture) Route(ids, weights, logits kernels.Buf, s *kernels.RouteSpec) {
	spec := *s
	c.add(func(l *local) { l.Route(ids, weights, logits, &spec) })
}

// Gather captures a gather.
func (c *capture) Gather(dst, src, rows kernels.Buf) {
	c.add(func(l *local) { l.Gather(dst, src, rows) })
}

// Scatter captures a scatter.
func (c *capture) Scatter(dst, src, rows kernels.Buf) {
	c.add(func(l *local) { l.Scatter(dst, src, rows) })
}

// Copy captures a copy.
func (c *capture) Copy(dst, src kernels.Buf) { c.add(func(l *local) { l.Copy(dst, src) }) }

// Norm captures a norm.
func (c *capture) Norm(dst, x kernels.Buf, n kernels.Norm) {
	c.add(func(l *local) { l.Norm(dst, x, n) })
}

// Attend captures an attention layer.
func (c *capture) Attend(dst, proj kernels.Buf, layer kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec) {
	t, spec := *b, *s
	c.add(func(l *local) { l.Attend(dst, proj, layer, &t, &spec) })
}

// Select captures the choice of keys.
func (c *capture) Select(dst, proj, weights kernels.Buf, layer kernels.Layer, b *kernels.Batch, s *kernels.IndexSpec) {
	t, spec := *b, *s
	c.add(func(l *local) { l.Select(dst, proj, weights, layer, &t, &spec) })
}

// Delta captures a Gated DeltaNet layer.
func (c *capture) Delta(dst, proj kernels.Buf, layer kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
	t, spec := *b, *s
	c.add(func(l *local) { l.Delta(dst, proj, layer, &t, &spec) })
}

// Stats captures a reduction of logits.
func (c *capture) Stats(dst, logits kernels.Buf, vocab int, hash bool) {
	c.add(func(l *local) { l.Stats(dst, logits, vocab, hash) })
}

// Chain captures the layout of a chain per span.
func (c *capture) Chain(b *kernels.Batch, cs kernels.Caches, ahead int, first, rest kernels.Buf) {
	t := *b
	c.add(func(l *local) { l.Chain(&t, cs, ahead, first, rest) })
}

// Shift captures the successor view of a batch.
func (c *capture) Shift(dst, src *kernels.Batch, kept, next kernels.Buf) {
	d, s := *dst, *src
	c.add(func(l *local) { l.Shift(&d, &s, kept, next) })
}

// Accept captures an acceptance rule.
func (c *capture) Accept(kept, next kernels.Buf, r kernels.RuleID, b *kernels.Batch, target kernels.Buf) {
	t := *b
	c.add(func(l *local) { l.Accept(kept, next, r, &t, target) })
}

// Commit captures a commit.
func (c *capture) Commit(cs kernels.Caches, b *kernels.Batch, kept, path kernels.Buf) {
	t := *b
	c.add(func(l *local) { l.Commit(cs, &t, kept, path) })
}

// Reset captures the emptying of a slot.
func (c *capture) Reset(cs kernels.Caches, slot int) {
	c.add(func(l *local) { l.Reset(cs, slot) })
}

// SetPages captures a change of a page table.
func (c *capture) SetPages(cs kernels.Caches, slot, first int, pages []int32) {
	held := slices.Clone(pages)
	c.add(func(l *local) { l.SetPages(cs, slot, first, held) })
}

// Save captures the copy of a slot's states to a snapshot.
func (c *capture) Save(cs kernels.Caches, slot, snapshot int) {
	c.add(func(l *local) { l.Save(cs, slot, snapshot) })
}

// Restore captures the copy of a snapshot to a slot.
func (c *capture) Restore(cs kernels.Caches, slot, snapshot, length int) {
	c.add(func(l *local) { l.Restore(cs, slot, snapshot, length) })
}
