package draft

import (
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

func init() {
	Register(Info{
		Name:    "medusa",
		Summary: "Medusa heads: one for each place of the draft, all from the target's last hidden state, without caches (Cai et al. 2024, arXiv:2401.10774), in a tree of likely choices, or with tree: false the chain of their first ones",
		New:     func() Strategy { return &Medusa{Tree: true} },
	})
}

// Medusa configures the strategy that drafts with Medusa heads. Its published form,
// and the default, is a tree of the heads' likely choices. As a chain, draft i is the
// first choice of head i, and drafts are at most as long as there are heads.
type Medusa struct {
	// Head is the directory of the heads: config.json and model.safetensors
	// in vLLM's layout, or medusa_lm_head.safetensors. Empty takes those that
	// come with the model (its folder heads/medusa), "model:NAME" others of that
	// folder, "random" makes some of random weights.
	Head string `yaml:"head" json:"head"`
	// Tree drafts trees of k tokens: the first choice of the first head and
	// other likely ones, what may follow them by the next head, and so forth,
	// of a shape that depends on k alone. It is on unless a configuration says
	// false, which drafts chains; only these are drafted by a loop that stays
	// on a device (engine.LoopDrafter).
	Tree bool `yaml:"tree" json:"tree"`
}

// Validate implements Strategy.
func (*Medusa) Validate() error { return nil }

// Provision implements Strategy.
func (c *Medusa) Provision(env Env) (engine.Drafter, error) {
	heads, err := env.Model.LoadMedusa(c.Head)
	if err != nil {
		return nil, fmt.Errorf("draft medusa: %w", err)
	}
	d := &medusa{stepper: stepper{name: "medusa", ids: heads.Tokens()}, m: env.Model, heads: heads}
	if c.Tree {
		return &medusaBranching{DeviceDrafter: d, heads: d}, nil
	}
	return d, nil
}

// medusa keeps, by cache slot, the target's final hidden state of the last
// committed row: the one that predicted the pending token.
type medusa struct {
	stepper
	m     *model.Model
	heads *model.MedusaHeads
	net   *model.Medusa

	shifted kernels.Batch // successor view of the target's batch
	carry   kernels.Buf   // BF16 [slots, hidden]
	last    kernels.Buf   // the same by span
}

var _ engine.LoopDrafter = (*medusa)(nil)

// Layers implements engine.DeviceDrafter: none.
func (d *medusa) Layers() []kernels.LayerSpec { return nil }

// TapLayers implements engine.DeviceDrafter: the final hidden state is enough.
func (d *medusa) TapLayers() []int { return nil }

// Attach implements engine.DeviceDrafter.
func (d *medusa) Attach(c kernels.Caches, _, spans, rows int) (err error) {
	be := d.m.Backend()
	if d.net, err = d.heads.New(spans); err != nil {
		return err
	}
	if d.shifted, err = kernels.NewBatch(be, spans, rows, spans); err != nil {
		return err
	}
	if d.carry, err = be.Alloc(kernels.State, kernels.BF16, c.Spec().Slots, d.net.Width()); err != nil {
		return err
	}
	if d.last, err = be.Alloc(kernels.Activations, kernels.BF16, spans, d.net.Width()); err != nil {
		return err
	}
	return d.attachSteps(be, spans, c.Spec().MaxDraft)
}

// Detach implements engine.DeviceDrafter.
func (d *medusa) Detach() {
	be := d.m.Backend()
	if d.net != nil {
		d.net.Close()
	}
	d.shifted.Free(be)
	free(be, d.carry, d.last)
	d.detachSteps(be)
	*d = medusa{stepper: stepper{name: d.name, ids: d.ids}, m: d.m, heads: d.heads}
}

// Committed implements engine.Drafter.
func (d *medusa) Committed(s *engine.Step) error {
	d.Level(s)
	return nil
}

// Level implements engine.LoopDrafter.
func (d *medusa) Level(s *engine.Step) {
	sh := successors(d.shifted, s)
	last := d.last.Top(s.Batch.Spans)
	s.Queue.Gather(last, s.Hidden, sh.Logit)
	s.Queue.Scatter(d.carry, last, sh.Seq)
}

// Propose implements engine.Drafter.
func (d *medusa) Propose(q kernels.Queue, asks []*engine.Ask) error {
	return d.steps(q, 0, d.begin(q, asks), d.heads.Heads(), func(stats, slots kernels.Buf, j, k int) {
		d.Draft(q, stats, slots, j, k)
	})
}

// Loops implements engine.LoopDrafter.
func (d *medusa) Loops(_ sample.Params, k int) (int, bool) { return min(k, d.heads.Heads()), true }

// Draft implements engine.LoopDrafter. Behind the last head, it is asked again.
func (d *medusa) Draft(q kernels.Queue, stats, slots kernels.Buf, j, _ int) {
	last := d.last.Top(int(slots.Rows))
	q.Gather(last, d.carry, slots)
	q.Stats(stats, d.net.Logits(q, min(j, d.heads.Heads()-1), last), d.net.Drafted(), false)
	d.translate(q, stats.Columns(kernels.StatTop1, kernels.StatTop1+1))
}

// Release implements engine.Drafter: the next committed row overwrites what is
// kept.
func (d *medusa) Release(*engine.Sequence) {}

// Save implements engine.DeviceDrafter: rows follow every border, and the last of
// them is what counts.
func (d *medusa) Save(kernels.Queue, *engine.Sequence, int) error { return nil }

// Restore implements engine.DeviceDrafter.
func (d *medusa) Restore(kernels.Queue, *engine.Sequence, int, int32) error { return nil }
