package draft

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

func init() {
	Register(Info{
		Name:    "dflash",
		Summary: "a DFlash head: a few layers over the last token and masked places fill in the whole draft in one pass, with the target's hidden states as context",
		New:     func() Strategy { return &DFlash{} },
	})
}

// DFlash configures the strategy that drafts with a block-parallel head whose
// attention is causal inside the block. Drafts are at most as long as the head's
// block without its first place; a shorter draft fills in a shorter block.
type DFlash struct {
	// Head is the directory of the head: config.json and model.safetensors.
	// Empty takes the head that comes with the model (its folder
	// heads/dflash), "model:NAME" another of that folder, "random" makes one of
	// random weights.
	Head string `yaml:"head" json:"head"`
}

// Validate implements Strategy.
func (*DFlash) Validate() error { return nil }

// Provision implements Strategy.
func (c *DFlash) Provision(env Env) (engine.Drafter, error) {
	head, err := env.Model.LoadDFlash(c.Head)
	if err != nil {
		return nil, fmt.Errorf("draft dflash: %w", err)
	}
	return &dflash{stepper: stepper{name: "dflash", ids: head.Tokens()}, blocks: blocks{
		m: env.Model, head: head, longest: head.Most(), lead: 1, open: func(rows, spans int) (filler, error) { return head.New(rows, spans) },
	}}, nil
}

// filler is a network that fills in blocks: model.DFlash, model.DSpark.
type filler interface {
	Close()
	Context(q kernels.Queue, b *kernels.Batch, layer func(i int) kernels.Layer, taps kernels.Buf)
	Forward(q kernels.Queue, b *kernels.Batch, layer func(i int) kernels.Layer) kernels.Buf
	Drafted() int
	Logits(q kernels.Queue, hidden kernels.Buf) kernels.Buf
}

// blocks says what fills in blocks.
type blocks struct {
	m    *model.Model
	head interface {
		Layers() []kernels.LayerSpec
		Taps() []int
		Mask() int32
	}
	longest int  // draft
	lead    int  // rows of a block before the first that drafts
	whole   bool // a short draft takes a whole block too
	open    func(rows, spans int) (filler, error)
}

// dflash keeps its caches level with the target: place p of its layers holds the
// keys and values of the target's features at position p. The block begins at the
// pending token's position; what it leaves in the caches is overwritten when
// these positions are committed.
type dflash struct {
	stepper
	blocks
	net    filler
	caches kernels.Caches
	first  int // index of the head's first layer
	most   int // longest draft of this engine
	wide   int // rows of its block

	shifted, block kernels.Batch
	pending        kernels.Buf // token by cache slot, I32 [slots, 1]
	token          kernels.Buf // the same by span
	masks          kernels.Buf // I32 [spans, wide]
	rows           kernels.Buf // rows of the places, by length of the draft and place
	last           kernels.Buf // hidden states of a place, BF16 [spans, hidden]
	hidden         kernels.Buf // of the block under way
}

var _ engine.LoopDrafter = (*dflash)(nil)

// Layers implements engine.DeviceDrafter.
func (d *dflash) Layers() []kernels.LayerSpec { return d.head.Layers() }

// TapLayers implements engine.DeviceDrafter.
func (d *dflash) TapLayers() []int { return d.head.Taps() }

// Attach implements engine.DeviceDrafter.
func (d *dflash) Attach(c kernels.Caches, first, spans, rows int) (err error) {
	be, spec := d.m.Backend(), c.Spec()
	d.caches, d.first, d.most = c, first, min(d.longest, max(1, spec.MaxDraft))
	if d.wide = d.most + d.lead; d.whole {
		d.wide = min(d.longest+d.lead, spec.MaxDraft+spareRows)
	}
	if d.net, err = d.open(max(rows, spans*d.wide), spans); err != nil {
		d.net = nil
		return err
	}
	if d.shifted, err = kernels.NewBatch(be, spans, rows, spans); err != nil {
		return err
	}
	if d.block, err = kernels.NewBatch(be, spans, spans*d.wide, spans); err != nil {
		return err
	}
	for _, a := range []struct {
		dst        *kernels.Buf
		purpose    kernels.Purpose
		kind       kernels.Kind
		rows, cols int
	}{
		{&d.pending, kernels.State, kernels.I32, spec.Slots, 1},
		{&d.token, kernels.Tables, kernels.I32, spans, 1},
		{&d.masks, kernels.Tables, kernels.I32, spans, d.wide},
		{&d.rows, kernels.Tables, kernels.I32, d.rowsAt(d.most+1, 0, spans), 1},
		{&d.last, kernels.Activations, kernels.BF16, spans, d.m.Config.HiddenSize},
	} {
		if *a.dst, err = be.Alloc(a.purpose, a.kind, a.rows, a.cols); err != nil {
			return err
		}
	}
	q := be.Queue()
	q.Write(d.masks, bytesOf(slices.Repeat([]int32{d.head.Mask()}, spans*d.wide)))
	var places []int32
	for k := 1; k <= d.most; k++ {
		for j := range k {
			for s := range spans {
				places = append(places, int32(s*d.rowsOf(k)+d.lead+j))
			}
		}
	}
	q.Write(d.rows, bytesOf(places))
	return d.attachSteps(be, spans, spec.MaxDraft)
}

// spareRows is how many more rows than drafts a sequence has room for at its end.
const spareRows = 3

// rowsOf returns the rows of a block for drafts of k.
func (d *dflash) rowsOf(k int) int {
	if d.whole {
		return d.wide
	}
	return min(k, d.most) + d.lead
}

// rowsAt is where the rows of place j of drafts of length k begin in d.rows: a
// list for each place of drafts of 1, 2, ... tokens.
func (d *dflash) rowsAt(k, j, spans int) int { return (k*(k-1)/2 + j) * spans }

// Detach implements engine.DeviceDrafter.
func (d *dflash) Detach() {
	be := d.m.Backend()
	if d.net != nil {
		d.net.Close()
	}
	d.shifted.Free(be)
	d.block.Free(be)
	free(be, d.pending, d.token, d.masks, d.rows, d.last)
	d.detachSteps(be)
	*d = dflash{stepper: stepper{name: d.name, ids: d.ids}, blocks: d.blocks}
}

// layer returns the cache of the head's layer i.
func (d *dflash) layer(i int) kernels.Layer { return d.caches.Layer(d.first + i) }

// Committed implements engine.Drafter.
func (d *dflash) Committed(s *engine.Step) error {
	d.Level(s)
	return nil
}

// Level implements engine.LoopDrafter: the features of the batch's rows go to the
// caches; those of rows that were not kept stand behind the sequence's end.
func (d *dflash) Level(s *engine.Step) {
	b := s.Batch
	d.net.Context(s.Queue, &b, d.layer, s.Taps)
	sh := successors(d.shifted, s)
	s.Queue.Scatter(d.pending, s.Next, sh.Seq)
}

// Propose implements engine.Drafter. Asks of one length share a pass: a longer
// block would reach behind the pages that a sequence has for its own.
func (d *dflash) Propose(q kernels.Queue, asks []*engine.Ask) error {
	active := d.begin(q, asks)
	for from, to := 0, 0; from < active; from = to {
		for to < active && d.order[to].K == d.order[from].K {
			to++
		}
		err := d.steps(q, from, to, d.most, func(stats, slots kernels.Buf, j, k int) { d.Draft(q, stats, slots, j, k) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Loops implements engine.LoopDrafter.
func (d *dflash) Loops(_ sample.Params, k int) (int, bool) { return min(k, d.most), true }

// Draft implements engine.LoopDrafter: what stands at place j of a draft of k
// goes to stats; at place 0 it records the pass over the blocks first.
func (d *dflash) Draft(q kernels.Queue, stats, slots kernels.Buf, j, k int) {
	if j == 0 {
		d.run(q, slots, k)
	}
	q.Stats(stats, d.net.Logits(q, d.place(q, slots, j, k)), d.net.Drafted(), false)
	d.translate(q, stats.Columns(kernels.StatTop1, kernels.StatTop1+1))
}

// run records the pass over the blocks of drafts of k.
func (d *dflash) run(q kernels.Queue, slots kernels.Buf, k int) {
	n, masked := int(slots.Rows), d.rowsOf(k)-1
	b := d.block.Prefix(n, n*(1+masked), n)
	b.MaxLen = 1 + masked
	token, masks := d.token.Top(n), kernels.Buf{}
	if masked > 0 {
		masks = d.masks.Top(n).Columns(0, masked)
	}
	q.Gather(token, d.pending, slots)
	q.Copy(b.Seq, slots)
	q.Chain(&b, d.caches, 0, token, masks)
	d.hidden = d.net.Forward(q, &b, d.layer)
}

// place records the choice of the hidden states of place j of drafts of k. Behind the
// longest block's end, its last place is asked again.
func (d *dflash) place(q kernels.Queue, slots kernels.Buf, j, k int) kernels.Buf {
	n := int(slots.Rows)
	k = min(k, d.most)
	at := d.rowsAt(k, min(j, k-1), int(d.token.Rows))
	last := d.last.Top(n)
	q.Gather(last, d.hidden, d.rows.Slice(at, at+n))
	return last
}

// Release implements engine.Drafter: everything is kept by cache slot and
// overwritten from the first committed row on.
func (d *dflash) Release(*engine.Sequence) {}

// Save implements engine.DeviceDrafter: what is kept beside the caches, the
// pending token, follows from the rows behind every border.
func (d *dflash) Save(kernels.Queue, *engine.Sequence, int) error { return nil }

// Restore implements engine.DeviceDrafter.
func (d *dflash) Restore(kernels.Queue, *engine.Sequence, int, int32) error { return nil }
