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
		Name:    "dspark",
		Summary: "a DSpark head: the block of a DFlash head, whose tokens are chosen one after the other with a small Markov head, and a confidence that cuts the draft",
		New:     func() Strategy { return &DSpark{MinConfidence: 0.3} },
	})
}

// DSpark configures the strategy that drafts with a DSpark head, whose attention is
// causal inside the block. Drafts are at most as long as the head's block.
type DSpark struct {
	// Head is the directory of the head: config.json and model.safetensors,
	// by the names of the speculators library. Empty takes the head that comes
	// with the model (the module in its own files, or its folder heads/dspark),
	// "model:NAME" another of that folder, "random" makes one of random weights.
	Head string `yaml:"head" json:"head"`
	// MinConfidence ends a draft before the first token that, by the head's
	// own confidence, is accepted with a lower probability. 0 never does.
	MinConfidence float64 `yaml:"min_confidence" json:"min_confidence"`
}

// Validate implements Strategy.
func (c *DSpark) Validate() error {
	return validConfidence(c.MinConfidence)
}

// Provision implements Strategy.
func (c *DSpark) Provision(env Env) (engine.Drafter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft dspark: %w", err)
	}
	head, err := env.Model.LoadDSpark(c.Head)
	if err != nil {
		return nil, fmt.Errorf("draft dspark: %w", err)
	}
	d := &dspark{head: head, least: c.MinConfidence}
	d.dflash = dflash{stepper: stepper{name: "dspark", ids: head.Tokens()}, blocks: blocks{
		m: env.Model, head: head, longest: head.Most(), lead: head.Lead(), whole: head.Whole(), open: d.open,
	}}
	return d, nil
}

// dspark chooses the tokens of a block that dflash has filled in.
type dspark struct {
	dflash
	head  *model.DSparkHead
	net   *model.DSpark
	least float64

	before kernels.Buf // draft before, by span, I32 [spans, 1]
	sure   []float32   // the head's confidence, on the host: of each place and span
}

var _ engine.LoopDrafter = (*dspark)(nil)

// open makes the head's network.
func (d *dspark) open(rows, spans int) (_ filler, err error) {
	if d.net, err = d.head.New(rows, spans); err != nil {
		return nil, err
	}
	return d.net, nil
}

// Attach implements engine.DeviceDrafter.
func (d *dspark) Attach(c kernels.Caches, first, spans, rows int) (err error) {
	if err := d.dflash.Attach(c, first, spans, rows); err != nil {
		return err
	}
	d.sure = make([]float32, spans*d.most)
	d.before, err = d.m.Backend().Alloc(kernels.Tables, kernels.I32, spans, 1)
	return err
}

// Detach implements engine.DeviceDrafter.
func (d *dspark) Detach() {
	free(d.m.Backend(), d.before)
	d.net, d.before, d.sure = nil, kernels.Buf{}, nil
	d.dflash.Detach()
}

// Propose implements engine.Drafter, as dflash does.
func (d *dspark) Propose(q kernels.Queue, asks []*engine.Ask) error {
	active := d.begin(q, asks)
	for from, to := 0, 0; from < active; from = to {
		for to < active && d.order[to].K == d.order[from].K {
			to++
		}
		at := 0
		err := d.steps(q, from, to, d.most, func(stats, slots kernels.Buf, j, k int) {
			confidence := d.step(q, stats, slots, j, k)
			if !confidence.None() {
				q.Read(floatBytes(d.sure[at:at+to-from]), confidence)
				at += to - from
			}
		})
		if err != nil {
			return err
		}
		if d.head.Confident() {
			d.cut(d.order[from:to])
		}
	}
	return nil
}

// cut ends the drafts of asks of one length where the head is not sure enough.
func (d *dspark) cut(asks []*engine.Ask) {
	for i, a := range asks {
		kept, p := 0, 1.0
		a.Draft.Expect = 0
		for kept < len(a.Draft.Tokens) {
			if p *= d.head.Sure(d.sure[kept*len(asks)+i]); p < d.least {
				break
			}
			a.Draft.Expect += float32(p)
			kept++
		}
		a.Draft.Tokens = a.Draft.Tokens[:kept]
	}
}

// Loops implements engine.LoopDrafter: the host ends drafts where the head is not sure.
func (d *dspark) Loops(p sample.Params, k int) (int, bool) {
	k, _ = d.dflash.Loops(p, k)
	return k, d.least == 0 || !d.head.Confident()
}

// Draft implements engine.LoopDrafter: without the host, no draft is cut.
func (d *dspark) Draft(q kernels.Queue, stats, slots kernels.Buf, j, k int) {
	d.step(q, stats, slots, j, k)
}

// step is Draft, and returns the confidence (F32 [n, 1]), if the head has one.
func (d *dspark) step(q kernels.Queue, stats, slots kernels.Buf, j, k int) kernels.Buf {
	n := int(slots.Rows)
	before := d.before.Top(n)
	if j == 0 {
		d.run(q, slots, k)
		before = d.token.Top(n)
	}
	logits, confidence := d.net.Step(q, d.place(q, slots, j, k), before)
	q.Stats(stats, logits, d.net.Drafted(), false)
	chosen := stats.Columns(kernels.StatTop1, kernels.StatTop1+1)
	d.translate(q, chosen)
	q.Copy(d.before.Top(n), chosen)
	return confidence
}
