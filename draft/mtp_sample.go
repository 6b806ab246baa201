package draft

import (
	"fmt"
	"unsafe"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

// mtpSampler draws drafts on the host, from the module's logits: after each
// draft step the rows come to the host, and the tokens go back.
type mtpSampler struct {
	vocab   int
	purpose sample.Purpose // of the noise: sample.Draft, but for tests
	chosen  kernels.Buf    // drafts of a step, I32 [spans, 1]

	logits []float32
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

// proposeSampled drafts for the first active of d.order, of which some draw.
func (d *mtp) proposeSampled(q kernels.Queue, active int) error {
	s, k := d.sampler, d.order[0].K
	s.begin(active, k, d.net.Vocab)
	for j := range k {
		for d.order[active-1].K <= j {
			active--
		}
		slots := d.slotTable.Top(active)
		last := d.last.Top(active)
		q.Gather(last, d.carry, slots)
		logits, stats := d.net.Logits(q, last), d.stats.Top(active)
		q.Stats(stats, logits, d.net.Vocab, false)
		q.Read(bytesOf(s.stats[:active*kernels.StatCols]), stats)
		if err := q.Read(floatBytes(s.logits[:active*d.net.Vocab]), logits).Wait(); err != nil {
			return fmt.Errorf("draft mtp: %w", err)
		}
		for i, a := range d.order[:active] {
			s.tokens[i] = s.stats[i*kernels.StatCols+kernels.StatTop1]
			s.draw(a, i, j, k, s.logits[i*d.net.Vocab:][:s.vocab])
		}
		if j+1 < k {
			q.Write(s.chosen.Top(active), bytesOf(s.tokens[:active]))
			d.extend(q, slots, j, s.chosen.Top(active))
		}
	}
	return nil
}

// begin makes room for n asks of at most k drafts, over rows of width logits.
func (s *mtpSampler) begin(n, k, width int) {
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

// draw puts draft j of ask i, of at most k, into s.tokens and into the draft.
// row are the module's logits; s.tokens has their argmax. A row from which
// nothing can be drawn (a grammar that is at its end, say) ends the draft.
func (s *mtpSampler) draw(a *engine.Ask, i, j, k int, row []float32) {
	if s.done[i] {
		return
	}
	if draws(a) {
		q, err := a.Seq.Sampler().ProcessTo(s.probs[i*k+j], row, a.Draft.Tokens)
		if err != nil {
			s.done[i] = true
			return
		}
		p, length := a.Seq.Params(), a.Seq.Length()
		if r, ok := a.Seq.Rule().(coupledRule); ok && r.TargetNoise() {
			s.tokens[i] = p.Coupled(q, length+1+j)
		} else {
			s.tokens[i] = sample.Sample(q, p.Stream(s.purpose, length, j).Uniform(0))
			a.Draft.Probs = append(a.Draft.Probs, q)
		}
	}
	a.Draft.Tokens = append(a.Draft.Tokens, s.tokens[i])
}

func floatBytes(s []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}
