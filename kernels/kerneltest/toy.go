package kerneltest

import (
	"math"

	"exacta.dev/exacta/kernels"
)

// Geometry of the toy model.
const (
	toyHidden = 64
	toyInter  = 96
	toyVocab  = 90
	toyLogits = 96 // columns of the head, some beyond the vocabulary
)

// toyBlock is a decoder layer.
type toyBlock struct {
	*layer
	mixNorm, mlpNorm          kernels.Norm
	in, outProj, gateUp, down kernels.Weight
}

// toy is a model of a recurrent and an attention layer with a drafter of one
// attention layer, as a multi-token-prediction head: the drafter pairs the
// hidden state of a row with the embedding of the token after it. Left alone,
// the head makes token t follow by perm(t); the layers disturb that, for the
// target and the drafter in different ways, so some drafts are accepted and some
// are not.
type toy struct {
	embed, head    kernels.Weight
	blocks         []*toyBlock
	norm           kernels.Norm
	draft          *toyBlock
	fc             kernels.Weight
	preE, preH     kernels.Norm
	draftNorm      kernels.Norm
	x, proj, mix   kernels.Buf
	mlp, z         kernels.Buf
	hidden, hDraft kernels.Buf // final states of the target's and the drafter's rows
	sel, logits    kernels.Buf
}

func (r *rig) toyBlock(l *layer) *toyBlock {
	small := 3 / math.Sqrt(float64(l.out))
	return &toyBlock{
		layer: l, mixNorm: r.norm(toyHidden, true), mlpNorm: r.norm(toyHidden, true),
		in:      r.matrix(l.proj, toyHidden),
		outProj: r.load(kernels.Matrix, kernels.DTypeBF16, toyHidden, l.out, r.normal(toyHidden*l.out, small)),
		gateUp:  r.paired(toyInter, toyHidden),
		down:    r.load(kernels.Matrix, kernels.DTypeBF16, toyHidden, toyInter, r.normal(toyHidden*toyInter, 0.05)),
	}
}

// toy builds the model with activations for rows rows.
func (r *rig) toy(rows int) *toy {
	attn := attnShape{q: 2, kv: 1, dim: 32, gated: true, norm: true, centered: true, rotary: 16}
	second := attn
	second.firstKey = 1
	table := r.normal(toyLogits*toyHidden, 1)
	perm := r.rnd.Perm(toyVocab)
	head := r.normal(toyLogits*toyHidden, 0.02)
	for from, to := range perm {
		for j := range toyHidden {
			head[to*toyHidden+j] += table[from*toyHidden+j] / 8
		}
	}
	for i := range head {
		head[i] = toBF16(head[i])
	}
	fc := r.normal(toyHidden*2*toyHidden, 0.03)
	for i := range toyHidden {
		fc[i*2*toyHidden+i] = 1
	}
	t := &toy{
		embed:  r.load(kernels.Matrix, kernels.DTypeBF16, toyLogits, toyHidden, table),
		head:   r.load(kernels.Matrix, kernels.DTypeBF16, toyLogits, toyHidden, head),
		blocks: []*toyBlock{r.toyBlock(r.deltaLayer(deltaShape{"toy", 1, 2, 32, 32, 4, kernels.SiLU, -3, 0})), r.toyBlock(r.attnLayer(attn))},
		norm:   r.norm(toyHidden, true),
		draft:  r.toyBlock(r.attnLayer(second)),
		fc:     r.load(kernels.Matrix, kernels.DTypeBF16, toyHidden, 2*toyHidden, fc),
		preE:   r.norm(toyHidden, true), preH: r.norm(toyHidden, true), draftNorm: r.norm(toyHidden, true),
	}
	proj, mix := 0, 0
	for _, b := range append([]*toyBlock{t.draft}, t.blocks...) {
		proj, mix = max(proj, b.proj), max(mix, b.out)
	}
	t.x, t.proj, t.mix = r.alloc(kernels.BF16, rows, toyHidden), r.alloc(kernels.BF16, rows, proj), r.alloc(kernels.BF16, rows, mix)
	t.mlp, t.z = r.alloc(kernels.BF16, rows, toyInter), r.alloc(kernels.BF16, rows, 2*toyHidden)
	t.hidden, t.hDraft = r.alloc(kernels.BF16, rows, toyHidden), r.alloc(kernels.BF16, rows, toyHidden)
	t.sel, t.logits = r.alloc(kernels.BF16, rows, toyHidden), r.alloc(kernels.F32, rows, toyLogits)
	return t
}

// specs returns the cache layers: the target's, then the drafter's.
func (t *toy) specs() []kernels.LayerSpec {
	return []kernels.LayerSpec{t.blocks[0].spec, t.blocks[1].spec, t.draft.spec}
}

// block records one decoder layer over t.x.
func (t *toy) block(q kernels.Queue, bl *toyBlock, c kernels.Layer, b *kernels.Batch) {
	x, mlp := t.x.Top(b.Rows), t.mlp.Top(b.Rows)
	proj, mix := t.proj.Top(b.Rows).Columns(0, bl.proj), t.mix.Top(b.Rows).Columns(0, bl.out)
	q.MatMul(proj, bl.in, x, kernels.Linear{In: bl.mixNorm})
	if bl.attn != nil {
		q.Attend(mix, proj, c, b, bl.attn)
	} else {
		q.Delta(mix, proj, c, b, bl.delta)
	}
	q.MatMul(x, bl.outProj, mix, kernels.Linear{Residual: x})
	q.MatMul(mlp, bl.gateUp, x, kernels.Linear{In: bl.mlpNorm, Act: kernels.SwiGLU})
	q.MatMul(x, bl.down, mlp, kernels.Linear{Residual: x})
}

// target records the target's pass over b: t.hidden for all rows, and stats (of
// LogitRows rows) for the wanted ones.
func (t *toy) target(q kernels.Queue, cs kernels.Caches, b *kernels.Batch, stats kernels.Buf) {
	q.Embed(t.x.Top(b.Rows), t.embed, b.Token)
	for i, bl := range t.blocks {
		t.block(q, bl, cs.Layer(i), b)
	}
	q.Norm(t.hidden.Top(b.Rows), t.x.Top(b.Rows), t.norm)
	t.choose(q, t.hidden.Top(b.Rows), b.Logit, stats, true)
}

// choose records logits and statistics of the rows of h that the table names;
// the rows stay in t.sel.
func (t *toy) choose(q kernels.Queue, h, rows, stats kernels.Buf, hash bool) {
	n := int(rows.Rows)
	q.Gather(t.sel.Top(n), h, rows)
	q.MatMul(t.logits.Top(n), t.head, t.sel.Top(n), kernels.Linear{})
	q.Stats(stats, t.logits.Top(n), toyVocab, hash)
}

// drafter records the drafter's pass over b with the hidden states of its rows.
func (t *toy) drafter(q kernels.Queue, cs kernels.Caches, b *kernels.Batch, hidden, stats kernels.Buf) {
	e, z := t.x.Top(b.Rows), t.z.Top(b.Rows)
	q.Embed(e, t.embed, b.Token)
	q.Norm(z.Columns(0, toyHidden), e, t.preE)
	q.Norm(z.Columns(toyHidden, 2*toyHidden), hidden, t.preH)
	q.MatMul(t.x.Top(b.Rows), t.fc, z, kernels.Linear{})
	t.block(q, t.draft, cs.Layer(2), b)
	q.Norm(t.hDraft.Top(b.Rows), t.x.Top(b.Rows), t.draftNorm)
	t.choose(q, t.hDraft.Top(b.Rows), b.Logit, stats, false)
}
