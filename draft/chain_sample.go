package draft

import (
	"fmt"
	"math"
	"unsafe"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

// chainSampler draws drafts on the host, from the network's logits: after each
// draft step the rows come to the host, and the tokens go back.
type chainSampler struct {
	vocab   int
	ids     []int32        // token of each logit; nil: logit i is of token i
	purpose sample.Purpose // of the noise: sample.Draft, but for tests
	chosen  kernels.Buf    // drafts of a step, I32 [spans, 1]

	logits []float32
	wide   []float32 // a row over the vocabulary
	stats  []int32
	tokens []int32
	done   []bool      // of the asks: its draft has ended early
	probs  [][]float32 // memory of the distributions, by ask and draft
}

// coupledRule is a rule that may say that it draws with noise of purpose
// sample.Target, by position, whatever the drafts are.
type coupledRule interface{ TargetNoise() bool }

// draws reports whether an ask's request samples.
func draws(a *engine.Ask) bool { return !a.Seq.Params().Greedy() }

// attach allocates for at most spans asks. A nil sampler needs nothing.
func (s *chainSampler) attach(be kernels.Backend, spans int) (err error) {
	if s != nil {
		s.chosen, err = be.Alloc(kernels.Tables, kernels.I32, spans, 1)
	}
	return err
}

// detach frees what attach allocated and returns the sampler as it was made.
func (s *chainSampler) detach(be kernels.Backend) *chainSampler {
	if s == nil {
		return nil
	}
	free(be, s.chosen)
	return &chainSampler{vocab: s.vocab, ids: s.ids, purpose: s.purpose}
}

// propose drafts for the first active of the stepper's order, of which some draw.
// logits records what gives those for draft j of each slot, over columns columns;
// extend records that the drafts j are chosen (I32 [n, 1]), where more follow.
func (s *chainSampler) propose(d *stepper, q kernels.Queue, active, columns int,
	logits func(q kernels.Queue, slots kernels.Buf, j int) kernels.Buf, extend func(q kernels.Queue, slots kernels.Buf, j int, chosen kernels.Buf)) error {
	k := d.order[0].K
	for j := range k {
		for d.order[active-1].K <= j {
			active--
		}
		slots, stats := d.slotTable.Top(active), d.stats.Top(active)
		rows := logits(q, slots, j)
		width := int(rows.Cols)
		if j == 0 {
			s.begin(active, k, width)
		}
		q.Stats(stats, rows, columns, false)
		q.Read(bytesOf(s.stats[:active*kernels.StatCols]), stats)
		if err := q.Read(floatBytes(s.logits[:active*width]), rows).Wait(); err != nil {
			return fmt.Errorf("draft %s: %w", d.name, err)
		}
		for i, a := range d.order[:active] {
			s.tokens[i] = s.token(s.stats[i*kernels.StatCols+kernels.StatTop1])
			s.draw(a, i, j, k, s.logits[i*width:][:width])
		}
		if j+1 < k {
			chosen := s.chosen.Top(active)
			q.Write(chosen, bytesOf(s.tokens[:active]))
			extend(q, slots, j, chosen)
		}
	}
	return nil
}

// begin makes room for n asks of at most k drafts, over rows of width logits.
func (s *chainSampler) begin(n, k, width int) {
	if len(s.logits) < n*width {
		s.logits = make([]float32, n*width)
	}
	if len(s.tokens) < n {
		s.tokens, s.done = make([]int32, n), make([]bool, n)
		s.stats = make([]int32, n*kernels.StatCols)
	}
	clear(s.done)
	for len(s.probs) < n*k {
		s.probs = append(s.probs, make([]float32, s.vocab))
	}
}

// token returns the token of a column of the logits.
func (s *chainSampler) token(column int32) int32 {
	if s.ids == nil {
		return column
	}
	return s.ids[column]
}

// spread returns a row of logits over the vocabulary: tokens that a reduced one
// lacks can't be drawn.
func (s *chainSampler) spread(row []float32) []float32 {
	if s.ids == nil {
		return row[:s.vocab]
	}
	if len(s.wide) < s.vocab {
		s.wide = make([]float32, s.vocab)
	}
	for i := range s.wide {
		s.wide[i] = float32(math.Inf(-1))
	}
	for i, id := range s.ids {
		if int(id) < s.vocab {
			s.wide[id] = max(s.wide[id], row[i]) // translations of some may be one
		}
	}
	return s.wide
}

// draw puts draft j of ask i, of at most k, into s.tokens and into the draft.
// row are the network's logits; s.tokens has their argmax. A row from which
// nothing can be drawn (a grammar that is at its end, say) ends the draft.
func (s *chainSampler) draw(a *engine.Ask, i, j, k int, row []float32) {
	if s.done[i] {
		return
	}
	if draws(a) {
		q, err := a.Seq.Sampler().ProcessTo(s.probs[i*k+j], s.spread(row), a.Draft.Tokens)
		if err != nil {
			s.done[i] = true
			return
		}
		token, told := s.pick(a, q, j, j+1)
		if s.tokens[i] = token; told {
			a.Draft.Probs = append(a.Draft.Probs, q)
		}
	}
	a.Draft.Tokens = append(a.Draft.Tokens, s.tokens[i])
}

// pick draws draft number node of an ask, which is at depth (1 follows the pending
// token), from a distribution that need not be normalised: with the request's draft
// noise for that node, and then the rule has to be told q; or, where the rule draws
// with the target's noise by position, with that. The token is -1 if q has no mass.
func (s *chainSampler) pick(a *engine.Ask, q []float32, node, depth int) (token int32, told bool) {
	p, length := a.Seq.Params(), a.Seq.Length()
	if r, ok := a.Seq.Rule().(coupledRule); ok && r.TargetNoise() {
		return p.Coupled(q, length+depth), false
	}
	return p.Draw(s.purpose, q, length, node), true
}

func floatBytes(s []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}
