package draft

import (
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

// network is a head of one attention layer that turns a hidden state and the
// token after it into the hidden state that predicts one token further, and so
// feeds on its own output: model.MTP, model.Eagle3.
type network interface {
	// Close frees the network's activations.
	Close()
	// Width is the width of its hidden states, Drafted that of its logits.
	Width() int
	Drafted() int
	// Features records what makes hidden states for Forward of the target's
	// final ones and its taps.
	Features(q kernels.Queue, hidden, taps kernels.Buf) kernels.Buf
	// Forward records the layer over the rows of b, whose tokens are those
	// after the rows of hidden.
	Forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, hidden kernels.Buf) kernels.Buf
	// Logits records the LM head over rows of hidden.
	Logits(q kernels.Queue, hidden kernels.Buf) kernels.Buf
}

// sharing is a network whose choice of keys for the first draft serves the drafts behind
// it (model.MTP).
type sharing interface {
	// Choices is the width of a row's choice; 0: each row chooses.
	Choices() int
	// Chosen returns the choices of the first rows of the last Forward.
	Chosen(rows int) kernels.Buf
	// Reuse has the next Forward take choices.
	Reuse(choices kernels.Buf)
}

// shared keeps the choices of such a network.
type shared struct {
	net    sharing     // nil: nothing is shared
	bySlot kernels.Buf // I32 [slots, Choices]
	byRow  kernels.Buf // I32 [rows, Choices]
}

// attach allocates for a network that shares, for at most rows rows of a step.
func (s *shared) attach(be kernels.Backend, net network, slots, rows int) (err error) {
	n, ok := net.(sharing)
	if !ok || n.Choices() == 0 {
		return nil
	}
	s.net = n
	if s.bySlot, err = be.Alloc(kernels.State, kernels.I32, slots, n.Choices()); err == nil {
		s.byRow, err = be.Alloc(kernels.Tables, kernels.I32, rows, n.Choices())
	}
	return err
}

// keep records that the choices of rows (I32 [n, 1]) of a pass over all rows are those of
// slots.
func (s *shared) keep(q kernels.Queue, all int, rows, slots kernels.Buf) {
	if s.net == nil {
		return
	}
	byRow := s.byRow.Top(int(rows.Rows))
	q.Gather(byRow, s.net.Chosen(all), rows)
	q.Scatter(s.bySlot, byRow, slots)
}

// reuse has the next pass, whose rows are of slots, take what was kept.
func (s *shared) reuse(q kernels.Queue, slots kernels.Buf) {
	if s.net == nil {
		return
	}
	byRow := s.byRow.Top(int(slots.Rows))
	q.Gather(byRow, s.bySlot, slots)
	s.net.Reuse(byRow)
}

// chained is what a chain is made of.
type chained struct {
	m     *model.Model
	layer kernels.LayerSpec
	taps  []int // places in the target that the network reads
	open  func(rows, spans int) (network, error)
}

// chainOptions say how a chain chooses its tokens.
type chainOptions struct {
	sampled bool    // requests with a temperature draw their drafts
	least   float64 // confidence below which a draft ends (chain_sure.go); 0 never
}

// newChain makes a chain drafter under a name; ids are the tokens of the logits'
// columns (nil: column i is token i).
func newChain(name string, ids []int32, c chained, env Env, o chainOptions) *chain {
	d := &chain{chained: c, stepper: stepper{name: name, ids: ids}, least: o.least}
	if o.sampled {
		d.sampler = &chainSampler{vocab: env.Vocab, ids: ids, purpose: sample.Draft}
	}
	return d
}

// chain drafts with a network, greedily or with a sampler (chain_sample.go): slot
// p of its cache holds the pair (target's features at p-1, token p). After each
// target pass the committed rows are run through the network with the tokens after
// them (Shift), which also overwrites what drafting had put there; the last row's
// h' stays in carry, by cache slot.
// Proposing applies the LM head to carry, takes the argmax, runs it through the
// network one position on, and so forth. The recursion is that of EAGLE
// (arXiv:2401.15077) and of the MTP modules of DeepSeek-V3 and Qwen3.5.
type chain struct {
	chained
	stepper
	net    network
	caches kernels.Caches
	cache  kernels.Layer

	shifted   kernels.Batch // successor view of the target's batch
	chain     kernels.Batch // one row per span: a draft step
	carry     kernels.Buf   // h' by cache slot, BF16 [slots, hidden]
	last      kernels.Buf   // h' by span
	shared    shared        // choices of keys
	saved     kernels.Buf   // features of snapshots
	rowsTable kernels.Buf
	features  kernels.Buf   // of the last committed row, by slot, for Save
	sampler   *chainSampler // nil: the argmax
	least     float64       // chainOptions.least
	going     going         // scratch of proposeSure
}

var _ engine.LoopDrafter = (*chain)(nil)

// Layers implements engine.DeviceDrafter.
func (d *chain) Layers() []kernels.LayerSpec {
	return []kernels.LayerSpec{d.chained.layer}
}

// TapLayers implements engine.DeviceDrafter.
func (d *chain) TapLayers() []int { return d.taps }

// Attach implements engine.DeviceDrafter.
func (d *chain) Attach(c kernels.Caches, first, spans, rows int) error {
	be := d.m.Backend()
	spec := c.Spec()
	d.caches, d.cache = c, c.Layer(first)
	var err error
	if d.net, err = d.open(rows, spans); err != nil {
		return err
	}
	if d.shifted, err = kernels.NewBatch(be, spans, rows, spans); err != nil {
		return err
	}
	if d.chain, err = kernels.NewBatch(be, spans, spans, spans); err != nil {
		return err
	}
	for _, a := range []struct {
		dst        *kernels.Buf
		purpose    kernels.Purpose
		kind       kernels.Kind
		rows, cols int
	}{
		{&d.carry, kernels.State, kernels.BF16, spec.Slots, d.net.Width()},
		{&d.features, kernels.State, kernels.BF16, spec.Slots, d.net.Width()},
		{&d.last, kernels.Activations, kernels.BF16, spans, d.net.Width()},
		{&d.saved, kernels.State, kernels.BF16, max(1, spec.Snapshots), d.net.Width()},
		{&d.rowsTable, kernels.Tables, kernels.I32, spans, 1},
	} {
		if *a.dst, err = be.Alloc(a.purpose, a.kind, a.rows, a.cols); err != nil {
			return err
		}
	}
	if err := d.sampler.attach(be, spans); err != nil {
		return err
	}
	if err := d.shared.attach(be, d.net, spec.Slots, max(rows, spans)); err != nil {
		return err
	}
	return d.attachSteps(be, spans, spec.MaxDraft)
}

// Detach implements engine.DeviceDrafter.
func (d *chain) Detach() {
	be := d.m.Backend()
	if d.net != nil {
		d.net.Close()
	}
	d.shifted.Free(be)
	d.chain.Free(be)
	free(be, d.carry, d.features, d.last, d.saved, d.rowsTable, d.shared.bySlot, d.shared.byRow)
	d.detachSteps(be)
	*d = chain{chained: d.chained, stepper: stepper{name: d.name, ids: d.ids}, sampler: d.sampler.detach(be), least: d.least}
}

// Committed implements engine.Drafter.
func (d *chain) Committed(s *engine.Step) error {
	d.Level(s)
	return nil
}

// Level records the pass that brings the network's cache level with the target:
// the kept rows of the batch, with their target hidden states and the tokens
// after them. It depends on the tables alone, so it can be captured.
func (d *chain) Level(s *engine.Step) {
	q := s.Queue
	sh := successors(d.shifted, s)
	features := d.net.Features(q, s.Hidden, s.Taps)
	h := d.net.Forward(q, &sh, d.cache, features)
	last := d.last.Top(s.Batch.Spans)
	q.Gather(last, features, sh.Logit)
	q.Scatter(d.features, last, sh.Seq)
	q.Gather(last, h, sh.Logit)
	q.Scatter(d.carry, last, sh.Seq)
	d.shared.keep(q, sh.Rows, sh.Logit, sh.Seq)
}

// successors lays out and returns the successor view of a step's batch in the
// tables of shifted.
func successors(shifted kernels.Batch, s *engine.Step) kernels.Batch {
	b := s.Batch
	sh := shifted.Prefix(b.Spans, b.Rows, b.Spans)
	sh.MaxLen = b.MaxLen
	s.Queue.Shift(&sh, &b, s.Kept, s.Next)
	return sh
}

// Propose implements engine.Drafter.
func (d *chain) Propose(q kernels.Queue, asks []*engine.Ask) error {
	active := d.begin(q, asks)
	if d.sampler != nil && slices.ContainsFunc(d.order[:active], draws) {
		return d.sampler.propose(&d.stepper, q, active, d.net.Drafted(), d.logits, d.extend)
	}
	if d.least > 0 {
		return d.proposeSure(q, active)
	}
	return d.steps(q, 0, active, kernels.WindowTokens, func(stats, slots kernels.Buf, j, k int) {
		d.Draft(q, stats, slots, j, k)
	})
}

// Loops implements engine.LoopDrafter: drafts that end early, and drawn ones, are the
// host's.
func (d *chain) Loops(p sample.Params, k int) (int, bool) {
	return k, d.least == 0 && (d.sampler == nil || p.Greedy())
}

// Draft records draft step j (from 0) of k for the cache slots in slots: the
// argmax of the LM head over carry goes to column StatTop1 of stats, and, if more
// drafts follow, the network is run one position on. It depends on the tables
// alone, so it can be captured; without the host no draft ends early.
func (d *chain) Draft(q kernels.Queue, stats, slots kernels.Buf, j, k int) {
	q.Stats(stats, d.logits(q, slots, j), d.net.Drafted(), false)
	chosen := stats.Columns(kernels.StatTop1, kernels.StatTop1+1)
	d.translate(q, chosen)
	if j+1 < k {
		d.extend(q, slots, j, chosen)
	}
}

// logits records the LM head over carry, for the next draft of each slot.
func (d *chain) logits(q kernels.Queue, slots kernels.Buf, _ int) kernels.Buf {
	last := d.last.Top(int(slots.Rows))
	q.Gather(last, d.carry, slots)
	return d.net.Logits(q, last)
}

// extend records the network's run over draft j, whose tokens are in chosen (I32
// [n, 1]), for the cache slots in slots, behind logits.
func (d *chain) extend(q kernels.Queue, slots kernels.Buf, j int, chosen kernels.Buf) {
	n := int(slots.Rows)
	b := d.chain.Prefix(n, n, n)
	b.MaxLen = 1
	q.Copy(b.Seq, slots)
	q.Chain(&b, d.caches, 1+j, chosen, kernels.Buf{})
	d.shared.reuse(q, slots)
	h := d.net.Forward(q, &b, d.cache, d.last.Top(n))
	q.Scatter(d.carry, h, slots)
}

// Release implements engine.Drafter: everything is kept by cache slot and
// overwritten from the first committed row on.
func (d *chain) Release(*engine.Sequence) {}

// Save implements engine.DeviceDrafter: the hidden state of the last committed
// row, which forms the pair of the slot after the border.
func (d *chain) Save(q kernels.Queue, seq *engine.Sequence, snapshot int) error {
	q.Copy(d.saved.Slice(snapshot, snapshot+1), d.features.Slice(seq.Slot(), seq.Slot()+1))
	return nil
}

// Restore implements engine.DeviceDrafter: it runs the pair of the border, whose
// token depends on what follows the shared prefix.
func (d *chain) Restore(q kernels.Queue, seq *engine.Sequence, snapshot int, next int32) error {
	b := d.chain.Prefix(1, 1, 1)
	b.MaxLen = 1
	q.Write(b.Seq, bytesOf([]int32{int32(seq.Slot())}))
	first := d.rowsTable.Top(1)
	q.Write(first, bytesOf([]int32{next}))
	q.Chain(&b, d.caches, 0, first, kernels.Buf{})
	h := d.net.Forward(q, &b, d.cache, d.saved.Slice(snapshot, snapshot+1))
	q.Scatter(d.carry, h, b.Seq)
	d.shared.keep(q, 1, b.Logit, b.Seq)
	return nil
}
