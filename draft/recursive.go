package draft

import (
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

// trunk says which layers of which model draft.
type trunk struct {
	m      *model.Model
	layers int
	// own says that the layers have caches of their own, which follow the
	// target's; else they are the target's first layers and draft in its
	// caches, behind what is committed. The rows of a draft stand there until
	// the target's pass over the draft overwrites them.
	own bool
	// inputs is the model's token of each of the target's tokens, outputs the
	// target's token of each column of the model's logits; nil: the same.
	inputs, outputs []int32
}

// newRecursive makes a drafter that drafts with a trunk; sampled says that requests
// with a temperature draw their drafts.
func newRecursive(name string, t trunk, env Env, sampled bool) *recursive {
	d := &recursive{trunk: t, stepper: stepper{name: name, ids: t.outputs}, columns: env.Vocab}
	if t.outputs != nil {
		d.columns = len(t.outputs)
	}
	if sampled {
		d.sampler = &chainSampler{vocab: env.Vocab, ids: t.outputs, purpose: sample.Draft}
	}
	return d
}

// recursive drafts with a language model, token after token. Place p of its layers
// holds token p.
//
// A layer with a recurrent state is run from the committed prefix on, so a trunk with
// such layers runs the whole draft again for each further token; a trunk of attention
// alone runs the last token.
type recursive struct {
	trunk
	stepper
	net       *model.Trunk
	caches    kernels.Caches
	first     int // index of the trunk's first layer
	recurrent bool
	columns   int // of the logits, that may be drafted

	shifted, batch kernels.Batch
	pending        kernels.Buf // token by cache slot, I32 [slots, 1]
	token          kernels.Buf // the same by span
	drafts         kernels.Buf // those of the draft under way, I32 [spans, MaxDraft]
	translation    kernels.Buf // inputs
	sampler        *chainSampler
}

var _ engine.LoopDrafter = (*recursive)(nil)

// Layers implements engine.DeviceDrafter.
func (d *recursive) Layers() []kernels.LayerSpec {
	if !d.own {
		return nil
	}
	return d.m.Layers()[:d.layers]
}

// TapLayers implements engine.DeviceDrafter: none.
func (d *recursive) TapLayers() []int { return nil }

// Attach implements engine.DeviceDrafter.
func (d *recursive) Attach(c kernels.Caches, first, spans, rows int) (err error) {
	be, spec := d.m.Backend(), c.Spec()
	if d.caches, d.first = c, first; !d.own {
		d.first = 0
	}
	most := max(1, spec.MaxDraft)
	for i := range d.layers {
		d.recurrent = d.recurrent || spec.Layers[d.first+i].Kind == kernels.Delta
	}
	if d.net, err = d.m.Trunk(d.layers, max(rows, spans*most), spans); err != nil {
		return err
	}
	if d.shifted, err = kernels.NewBatch(be, spans, rows, spans); err != nil {
		return err
	}
	if d.batch, err = kernels.NewBatch(be, spans, spans*most, spans); err != nil {
		return err
	}
	for _, a := range []struct {
		dst        *kernels.Buf
		purpose    kernels.Purpose
		rows, cols int
	}{
		{&d.pending, kernels.State, spec.Slots, 1},
		{&d.token, kernels.Tables, spans, 1},
		{&d.drafts, kernels.Tables, spans, most},
		{&d.translation, kernels.Tables, len(d.inputs), 1},
	} {
		if a.rows == 0 {
			continue
		}
		if *a.dst, err = be.Alloc(a.purpose, kernels.I32, a.rows, a.cols); err != nil {
			return err
		}
	}
	if len(d.inputs) > 0 {
		be.Queue().Write(d.translation, bytesOf(d.inputs))
	}
	if err := d.sampler.attach(be, spans); err != nil {
		return err
	}
	return d.attachSteps(be, spans, spec.MaxDraft)
}

// Detach implements engine.DeviceDrafter.
func (d *recursive) Detach() {
	be := d.m.Backend()
	if d.net != nil {
		d.net.Close()
	}
	d.shifted.Free(be)
	d.batch.Free(be)
	free(be, d.pending, d.token, d.drafts, d.translation)
	d.detachSteps(be)
	*d = recursive{trunk: d.trunk, stepper: stepper{name: d.name, ids: d.ids}, columns: d.columns, sampler: d.sampler.detach(be)}
}

// layer returns the cache of the trunk's layer i.
func (d *recursive) layer(i int) kernels.Layer { return d.caches.Layer(d.first + i) }

// Follow implements engine.DeviceDrafter: it runs the rows that the target has run.
func (d *recursive) Follow(q kernels.Queue, b *kernels.Batch) bool {
	if d.own {
		d.net.Run(q, b, d.layer, d.translation)
	}
	return d.own
}

// Committed implements engine.Drafter.
func (d *recursive) Committed(s *engine.Step) error {
	d.Level(s)
	return nil
}

// Level implements engine.LoopDrafter.
func (d *recursive) Level(s *engine.Step) {
	sh := successors(d.shifted, s)
	s.Queue.Scatter(d.pending, s.Next, sh.Seq)
}

// Propose implements engine.Drafter.
func (d *recursive) Propose(q kernels.Queue, asks []*engine.Ask) error {
	active := d.begin(q, asks)
	if d.sampler != nil && slices.ContainsFunc(d.order[:active], draws) {
		return d.sampler.propose(&d.stepper, q, active, d.columns, d.logits, d.keep)
	}
	return d.steps(q, 0, active, kernels.WindowTokens, func(stats, slots kernels.Buf, j, k int) {
		d.Draft(q, stats, slots, j, k)
	})
}

// Loops implements engine.LoopDrafter: drawn drafts are the host's.
func (d *recursive) Loops(p sample.Params, k int) (int, bool) {
	return k, d.sampler == nil || p.Greedy()
}

// Draft implements engine.LoopDrafter.
func (d *recursive) Draft(q kernels.Queue, stats, slots kernels.Buf, j, k int) {
	q.Stats(stats, d.logits(q, slots, j), d.columns, false)
	chosen := stats.Columns(kernels.StatTop1, kernels.StatTop1+1)
	d.translate(q, chosen)
	if j+1 < k {
		d.keep(q, slots, j, chosen)
	}
}

// keep records that draft j of each slot is chosen.
func (d *recursive) keep(q kernels.Queue, slots kernels.Buf, j int, chosen kernels.Buf) {
	q.Copy(d.drafts.Top(int(slots.Rows)).Columns(j, j+1), chosen)
}

// logits records the trunk's run for draft j of each slot, behind those before it.
func (d *recursive) logits(q kernels.Queue, slots kernels.Buf, j int) kernels.Buf {
	n := int(slots.Rows)
	token, drafts := d.token.Top(n), d.drafts.Top(n)
	if j == 0 {
		q.Gather(token, d.pending, slots)
	}
	rows, ahead, rest := 1, j, kernels.Buf{}
	switch {
	case j > 0 && d.recurrent:
		rows, ahead, rest = j+1, 0, drafts.Columns(0, j)
	case j > 0:
		token = drafts.Columns(j-1, j)
	}
	b := d.batch.Prefix(n, n*rows, n)
	b.MaxLen = rows
	q.Copy(b.Seq, slots)
	q.Chain(&b, d.caches, ahead, token, rest)
	d.net.Run(q, &b, d.layer, d.translation)
	return d.net.Logits(q, b.Logit)
}

// Release implements engine.Drafter: everything is kept by cache slot and
// overwritten from the first committed row on.
func (d *recursive) Release(*engine.Sequence) {}

// Save implements engine.DeviceDrafter: what is kept beside the caches, the pending
// token, follows from the rows behind every border.
func (d *recursive) Save(kernels.Queue, *engine.Sequence, int) error { return nil }

// Restore implements engine.DeviceDrafter.
func (d *recursive) Restore(kernels.Queue, *engine.Sequence, int, int32) error { return nil }
