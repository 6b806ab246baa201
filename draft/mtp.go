package draft

import (
	"fmt"
	"slices"
	"unsafe"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

func init() {
	Register(Info{
		Name:    "mtp",
		Summary: "the model's own multi-token-prediction layer, applied to its own hidden state for each further draft (DeepSeek-V3, arXiv:2412.19437; Qwen3.5)",
		New:     func() Strategy { return &MTP{} },
	})
}

// MTP configures the strategy that drafts with the model's multi-token
// prediction module. The number of drafts is the request's.
type MTP struct {
	// Sample draws the drafts of requests with a temperature from the
	// module's own distribution, processed as the request asks, instead of
	// taking its argmax. The rejection and block rules then know the true
	// distribution of each draft; under the coupled rule drafts are drawn
	// with the target's own noise. Requests at temperature 0 don't notice.
	Sample bool `yaml:"sample" json:"sample"`
}

// Validate implements Strategy.
func (*MTP) Validate() error { return nil }

// Provision implements Strategy. The model must have been loaded with its MTP
// module.
func (c *MTP) Provision(env Env) (engine.Drafter, error) {
	if _, ok := env.Model.MTPLayer(); !ok {
		return nil, fmt.Errorf("draft mtp: model %s has no MTP module (mtp.* tensors); use another strategy", env.Model.Name)
	}
	d := &mtp{m: env.Model}
	if c.Sample {
		d.sampler = &mtpSampler{vocab: env.Vocab, purpose: sample.Draft}
	}
	return d, nil
}

// mtp drafts greedily, or with a sampler (mtp_sample.go): slot p of its cache holds the pair (target's hidden state
// at p-1, token p). After each target pass the committed rows are run through
// the module with the tokens after them (Shift), which also overwrites what
// drafting had put there; the last row's h' stays in carry, by cache slot.
// Proposing applies the LM head to carry, takes the argmax, runs it through the
// module one position on, and so forth: ARCHITECTURES of Qwen3.5's MTP, steps
// 2 and 4 of the recursion.
type mtp struct {
	m      *model.Model
	net    *model.MTP
	caches kernels.Caches
	layer  kernels.Layer

	shifted      kernels.Batch // successor view of the target's batch
	chain        kernels.Batch // one row per span: a draft step
	carry        kernels.Buf   // h' by cache slot, BF16 [slots, hidden]
	last         kernels.Buf   // h' by span
	stats        kernels.Buf   // I32 [MaxDraft*spans, StatCols]
	saved        kernels.Buf   // hidden rows of snapshots; one row
	slotTable    kernels.Buf   // slots of the asks, I32 [spans, 1]
	slots        []int32
	ids          []int32
	order        []*engine.Ask
	rowsTable    kernels.Buf
	targetHidden kernels.Buf // target's last committed hidden by slot, for Save
	sampler      *mtpSampler // nil: the argmax
}

var _ engine.DeviceDrafter = (*mtp)(nil)

// Name implements engine.Drafter.
func (d *mtp) Name() string { return "mtp" }

// Layers implements engine.DeviceDrafter.
func (d *mtp) Layers() []kernels.LayerSpec {
	l, _ := d.m.MTPLayer()
	return []kernels.LayerSpec{l}
}

// Attach implements engine.DeviceDrafter.
func (d *mtp) Attach(c kernels.Caches, first, spans, rows int) error {
	be := d.m.Backend()
	spec := c.Spec()
	d.caches, d.layer = c, c.Layer(first)
	var err error
	if d.net, err = d.m.MTP(rows, spans); err != nil {
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
		{&d.carry, kernels.State, kernels.BF16, spec.Slots, d.net.Hidden},
		{&d.targetHidden, kernels.State, kernels.BF16, spec.Slots, d.net.Hidden},
		{&d.last, kernels.Activations, kernels.BF16, spans, d.net.Hidden},
		{&d.saved, kernels.State, kernels.BF16, max(1, spec.Snapshots), d.net.Hidden},
		{&d.stats, kernels.Tables, kernels.I32, max(1, spec.MaxDraft) * spans, kernels.StatCols},
		{&d.slotTable, kernels.Tables, kernels.I32, spans, 1},
		{&d.rowsTable, kernels.Tables, kernels.I32, spans, 1},
	} {
		if *a.dst, err = be.Alloc(a.purpose, a.kind, a.rows, a.cols); err != nil {
			return err
		}
	}
	if d.sampler != nil {
		if d.sampler.chosen, err = be.Alloc(kernels.Tables, kernels.I32, spans, 1); err != nil {
			return err
		}
	}
	d.slots = make([]int32, 0, spans)
	d.ids = make([]int32, max(1, spec.MaxDraft)*spans*kernels.StatCols)
	return nil
}

// Detach implements engine.DeviceDrafter.
func (d *mtp) Detach() {
	be := d.m.Backend()
	if d.net != nil {
		d.net.Close()
	}
	d.shifted.Free(be)
	d.chain.Free(be)
	for _, b := range []kernels.Buf{d.carry, d.targetHidden, d.last, d.saved, d.stats, d.slotTable, d.rowsTable} {
		if !b.None() {
			be.Free(b)
		}
	}
	s := d.sampler
	if s != nil {
		if !s.chosen.None() {
			be.Free(s.chosen)
		}
		s = &mtpSampler{vocab: s.vocab, purpose: s.purpose}
	}
	*d = mtp{m: d.m, sampler: s}
}

// Committed implements engine.Drafter.
func (d *mtp) Committed(s *engine.Step) error {
	d.Level(s)
	return nil
}

// Level records the pass that brings the module's cache level with the target:
// the kept rows of the batch, with their target hidden states and the tokens
// after them. It depends on the tables alone, so it can be captured.
func (d *mtp) Level(s *engine.Step) {
	q, b := s.Queue, s.Batch
	sh := d.shifted.Prefix(b.Spans, b.Rows, b.Spans)
	sh.MaxLen = b.MaxLen
	q.Shift(&sh, &b, s.Kept, s.Next)
	h := d.net.Forward(q, &sh, d.layer, s.Hidden)
	last := d.last.Top(b.Spans)
	q.Gather(last, s.Hidden, sh.Logit)
	q.Scatter(d.targetHidden, last, sh.Seq)
	q.Gather(last, h, sh.Logit)
	q.Scatter(d.carry, last, sh.Seq)
}

// Propose implements engine.Drafter. Asks are sorted by K, deepest first, so
// that each draft step runs the sequences that still want one.
func (d *mtp) Propose(q kernels.Queue, asks []*engine.Ask) error {
	d.order = append(d.order[:0], asks...)
	slices.SortStableFunc(d.order, func(a, b *engine.Ask) int { return b.K - a.K })
	d.slots = d.slots[:0]
	active := 0
	for _, a := range d.order {
		d.slots = append(d.slots, int32(a.Seq.Slot()))
		a.Draft.Tokens = a.Draft.Tokens[:0]
		a.Draft.Probs = nil
		if a.K > 0 {
			active++
		}
	}
	if active == 0 {
		return nil
	}
	q.Write(d.slotTable.Top(len(asks)), bytesOf(d.slots))
	if d.sampler != nil && slices.ContainsFunc(d.order[:active], draws) {
		return d.proposeSampled(q, active)
	}
	k, base := d.order[0].K, 0
	for j := range k {
		for active > 0 && d.order[active-1].K <= j {
			active--
		}
		d.Draft(q, d.stats.Slice(base, base+active), d.slotTable.Top(active), j, j+1 < k)
		base += active
	}
	if err := q.Read(bytesOf(d.ids[:base*kernels.StatCols]), d.stats.Top(base)).Wait(); err != nil {
		return fmt.Errorf("draft mtp: %w", err)
	}
	row := 0
	for j := range k {
		for _, a := range d.order {
			if a.K <= j {
				break
			}
			a.Draft.Tokens = append(a.Draft.Tokens, d.ids[row*kernels.StatCols+kernels.StatTop1])
			row++
		}
	}
	return nil
}

// Draft records draft step j (from 0) for the cache slots in slots: the argmax
// of the LM head over carry goes to column StatTop1 of stats, and, if more
// drafts follow, the module is run one position on. It depends on the tables
// alone, so it can be captured.
func (d *mtp) Draft(q kernels.Queue, stats, slots kernels.Buf, j int, more bool) {
	last := d.last.Top(int(slots.Rows))
	q.Gather(last, d.carry, slots)
	q.Stats(stats, d.net.Logits(q, last), d.net.Vocab, false)
	if more {
		d.extend(q, slots, j, stats.Columns(kernels.StatTop1, kernels.StatTop1+1))
	}
}

// extend records the module's run over draft j, whose tokens are in chosen (I32
// [n, 1]), for the cache slots in slots, behind a Gather of carry into last.
func (d *mtp) extend(q kernels.Queue, slots kernels.Buf, j int, chosen kernels.Buf) {
	n := int(slots.Rows)
	b := d.chain.Prefix(n, n, n)
	b.MaxLen = 1
	q.Copy(b.Seq, slots)
	q.Chain(&b, d.caches, 1+j, chosen, kernels.Buf{})
	h := d.net.Forward(q, &b, d.layer, d.last.Top(n))
	q.Scatter(d.carry, h, slots)
}

// Release implements engine.Drafter: everything is kept by cache slot and
// overwritten from the first committed row on.
func (d *mtp) Release(*engine.Sequence) {}

// Save implements engine.DeviceDrafter: the hidden state of the last committed
// row, which forms the pair of the slot after the border.
func (d *mtp) Save(q kernels.Queue, seq *engine.Sequence, snapshot int) error {
	q.Copy(d.saved.Slice(snapshot, snapshot+1), d.targetHidden.Slice(seq.Slot(), seq.Slot()+1))
	return nil
}

// Restore implements engine.DeviceDrafter: it runs the pair of the border, whose
// token depends on what follows the shared prefix.
func (d *mtp) Restore(q kernels.Queue, seq *engine.Sequence, snapshot int, next int32) error {
	b := d.chain.Prefix(1, 1, 1)
	b.MaxLen = 1
	q.Write(b.Seq, bytesOf([]int32{int32(seq.Slot())}))
	first := d.rowsTable.Top(1)
	q.Write(first, bytesOf([]int32{next}))
	q.Chain(&b, d.caches, 0, first, kernels.Buf{})
	h := d.net.Forward(q, &b, d.layer, d.saved.Slice(snapshot, snapshot+1))
	q.Scatter(d.carry, h, b.Seq)
	return nil
}

func bytesOf(s []int32) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), 4*len(s))
}
