package draft

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

// treeShape bounds the drafts of strategies that draft dynamic trees, as EAGLE-2
// does (Li et al. 2024, arXiv:2406.16858): level by level, the likeliest drafts of
// the last level, at most width, are run through the head and each gets its width
// likeliest next tokens as children; then, of all, the K with the highest
// probability are proposed, where a draft's probability is the product of those
// along its path. K, the request's number of drafts, counts the whole tree.
type treeShape struct {
	width int
	depth int // most drafts on a path
}

func (t treeShape) validate() error {
	switch {
	case t.width < 1 || t.width > 32:
		return fmt.Errorf("width is %d; it must be 1..32", t.width)
	case t.depth < 1 || t.depth >= kernels.WindowTokens:
		return fmt.Errorf("depth is %d; it must be 1..%d", t.depth, kernels.WindowTokens-1)
	}
	return nil
}

// newTree makes a tree drafter; see newChain.
func newTree(name string, ids []int32, c chained, env Env, t treeShape, sampled bool) *tree {
	return &tree{chain: newChain(name, ids, c, env, chainOptions{sampled: sampled}), cfg: t, vocab: env.Vocab}
}

// tree drafts trees with the network of a chain, which it also uses to keep level
// with the target. The drafts that get children stand in one span of the network's
// cache, behind the committed tokens; a level runs them all again, so that each
// sees its own path.
type tree struct {
	*chain
	cfg   treeShape
	vocab int

	batch  kernels.Batch
	pool   kernels.Buf // carry, by slot, and behind it h' of the last level's rows
	inputs kernels.Buf // hidden states that the rows begin with
	picked kernels.Buf // h' of the rows that get children
	from   kernels.Buf // rows of pool, I32
	host   treeTables
	logits []float32
	plants []plant
	drawn  drawnTrees
}

var _ engine.DeviceDrafter = (*tree)(nil)

// Chains implements engine.ChainDrafter.
func (d *tree) Chains() bool { return false }

// Loops says that no loop can draft trees, whatever the chain in it can do.
func (d *tree) Loops(sample.Params, int) (int, bool) { return 0, false }

// Attach implements engine.DeviceDrafter.
func (d *tree) Attach(c kernels.Caches, first, spans, rows int) error {
	open, most, be := d.chain.open, max(1, c.Spec().MaxDraft), d.m.Backend()
	d.chain.open = func(rows, spans int) (network, error) { return open(rows, min(rows, spans*most)) }
	err := d.chain.Attach(c, first, spans, rows)
	d.chain.open = open
	if err != nil {
		return err
	}
	rows = min(rows, spans*most)
	if d.batch, err = kernels.NewBatch(be, spans, rows, rows); err != nil {
		return err
	}
	for _, a := range []struct {
		dst     *kernels.Buf
		purpose kernels.Purpose
		kind    kernels.Kind
		rows    int
		cols    int
	}{
		{&d.pool, kernels.Activations, kernels.BF16, c.Spec().Slots + rows, d.net.Width()},
		{&d.inputs, kernels.Activations, kernels.BF16, rows, d.net.Width()},
		{&d.picked, kernels.Activations, kernels.BF16, rows, d.net.Width()},
		{&d.from, kernels.Tables, kernels.I32, rows, 1},
	} {
		if *a.dst, err = be.Alloc(a.purpose, a.kind, a.rows, a.cols); err != nil {
			return err
		}
	}
	d.logits = make([]float32, rows*d.net.Drafted())
	return nil
}

// Detach implements engine.DeviceDrafter.
func (d *tree) Detach() {
	be := d.m.Backend()
	d.batch.Free(be)
	free(be, d.pool, d.inputs, d.picked, d.from)
	d.chain.Detach()
	*d = tree{chain: d.chain, cfg: d.cfg, vocab: d.vocab}
}

// Propose implements engine.Drafter.
func (d *tree) Propose(q kernels.Queue, asks []*engine.Ask) error {
	active := d.begin(q, asks)
	if active == 0 {
		return nil
	}
	d.plants = d.plants[:0]
	d.drawn.used = 0
	for _, a := range d.order[:active] {
		p := plant{ask: a}
		if d.sampler != nil && draws(a) {
			p.shape = d.drawn.shape(a.K, d.cfg)
		}
		d.plants = append(d.plants, p)
	}
	// The first level grows from h' of the pending token.
	q.Copy(d.pool.Top(int(d.carry.Rows)), d.carry)
	q.Gather(d.picked.Top(active), d.carry, d.slotTable.Top(active))
	if err := d.read(q, active); err != nil {
		return err
	}
	for i := range d.plants {
		d.grow(&d.plants[i], -1, i)
	}
	for level := 1; level < d.cfg.depth; level++ {
		n, err := d.level(q)
		if n == 0 || err != nil {
			return cmp.Or(err, d.harvest())
		}
	}
	return d.harvest()
}

// read brings the logits of the first n rows of picked to the host.
func (d *tree) read(q kernels.Queue, n int) error {
	logits := d.net.Logits(q, d.picked.Top(n))
	if err := q.Read(floatBytes(d.logits[:n*d.net.Drafted()]), logits).Wait(); err != nil {
		return fmt.Errorf("draft %s: %w", d.name, err)
	}
	return nil
}

// level runs the likeliest drafts of the last level and gives them children. It
// returns how many were run.
func (d *tree) level(q kernels.Queue) (int, error) {
	t, slots := &d.host, int(d.carry.Rows)
	t.reset()
	var picked, of []int32
	for i := range d.plants {
		p := &d.plants[i]
		before := p.off
		p.choose(d.cfg.width)
		if p.fresh == len(p.grown) {
			continue
		}
		p.off = len(t.token)
		t.span(p.ask.Seq.Slot(), p.ask.Seq.Length()+1, len(p.grown))
		for j, n := range p.grown {
			node, up, from := &p.nodes[n], int32(-1), int32(p.ask.Seq.Slot())
			if node.parent >= 0 {
				g := p.nodes[node.parent].grown
				up, from = int32(g), int32(slots+before+g)
			}
			t.row(node.token, up, p.ask.Seq.Length()+node.depth, from)
			of = append(of, int32(p.ask.Seq.Slot()))
			if j >= p.fresh {
				picked = append(picked, int32(p.off+j))
			}
		}
	}
	if len(picked) == 0 {
		return 0, nil
	}
	b := t.write(q, d.batch)
	rows := b.Rows
	q.Write(d.from.Top(rows), bytesOf(of))
	d.shared.reuse(q, d.from.Top(rows))
	q.Write(d.from.Top(rows), bytesOf(t.from))
	q.Gather(d.inputs.Top(rows), d.pool, d.from.Top(rows))
	h := d.net.Forward(q, &b, d.cache, d.inputs.Top(rows))
	q.Copy(d.pool.Slice(slots, slots+rows), h)
	q.Write(d.from.Top(len(picked)), bytesOf(picked))
	q.Gather(d.picked.Top(len(picked)), h, d.from.Top(len(picked)))
	if err := d.read(q, len(picked)); err != nil {
		return 0, err
	}
	row := 0
	for i := range d.plants {
		p := &d.plants[i]
		for _, n := range p.grown[p.fresh:] {
			d.grow(p, n, row)
			row++
		}
	}
	return len(picked), nil
}

// grow gives node n (-1: the pending token) its children, by a row of logits.
func (d *tree) grow(p *plant, n, row int) {
	if p.shape != nil {
		d.draw(p, n, row)
		return
	}
	d.sprout(p, n, row)
}

// sprout gives node n (-1: the pending token) its likeliest next tokens as children,
// by a row of logits. Of equal tokens the lowest comes first. A row that has
// nothing finite gives none.
func (d *tree) sprout(p *plant, n, row int) {
	logits := d.logits[row*d.net.Drafted():][:d.net.Drafted()]
	if d.ids == nil {
		logits = logits[:min(len(logits), d.vocab)]
	}
	var top []int
	most := min(d.cfg.width, p.ask.K)
	for i, l := range logits {
		if math.IsNaN(float64(l)) || math.IsInf(float64(l), 0) || len(top) == most && l <= logits[top[most-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, l, func(j int, l float32) int {
			if logits[j] >= l {
				return -1
			}
			return 1
		})
		top = slices.Insert(top, at, i)
		top = top[:min(len(top), most)]
	}
	if len(top) == 0 {
		return
	}
	peak, sum := float64(logits[top[0]]), 0.0
	for _, l := range logits {
		if e := math.Exp(float64(l) - peak); e <= 1 {
			sum += e
		}
	}
	depth, score := 1, 0.0
	if n >= 0 {
		depth, score = p.nodes[n].depth+1, p.nodes[n].score
	}
	for _, i := range top {
		token := int32(i)
		if d.ids != nil {
			token = d.ids[i]
		}
		p.nodes = append(p.nodes, node{parent: n, depth: depth, token: token, score: score + float64(logits[i]) - peak - math.Log(sum), grown: -1})
	}
}

// harvest fills in the drafts.
func (d *tree) harvest() error {
	for i := range d.plants {
		p := &d.plants[i]
		kept := p.kept()
		slices.Sort(kept) // parents before children, the likelier of siblings first
		place := make([]int32, len(p.nodes))
		out := &p.ask.Draft
		out.Parents, out.Expect = make([]int32, 0, len(kept)), 0
		for j, n := range kept {
			node, up := &p.nodes[n], int32(-1)
			if node.parent >= 0 {
				up = place[node.parent]
			}
			place[n] = int32(j)
			out.Tokens, out.Parents = append(out.Tokens, node.token), append(out.Parents, up)
			out.Expect += float32(math.Exp(node.score))
		}
	}
	return nil
}
