package draft

import (
	"fmt"
	"math"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// validConfidence checks a setting min_confidence.
func validConfidence(v float64) error {
	if !(v >= 0 && v < 1) {
		return fmt.Errorf("min_confidence is %v; it must be at least 0 and below 1", v)
	}
	return nil
}

// going are the asks whose drafts have not ended.
type going struct {
	asks   []*engine.Ask
	sure   []float64 // confidence in the draft so far
	slots  []int32
	chosen []int32 // the last token
}

// reset empties it; what is appended then overwrites what it held.
func (g *going) reset() {
	g.asks, g.sure, g.slots, g.chosen = g.asks[:0], g.sure[:0], g.slots[:0], g.chosen[:0]
}

func (g *going) add(a *engine.Ask, sure float64, chosen int32) {
	g.asks, g.sure = append(g.asks, a), append(g.sure, sure)
	g.slots, g.chosen = append(g.slots, int32(a.Seq.Slot())), append(g.chosen, chosen)
}

// proposeSure is Propose where drafts end early: step after step it goes on with
// those of the first active asks of the order whose confidence is not below least.
// An end saves the drafts behind it and the verification of their rows; the token at
// which it comes is drafted already, and more often worth its row than not. Draft.Expect
// gets the confidence in each token, summed up. Dynamic lengths by what the head says
// of itself are those of EAGLE-2 (arXiv:2406.16858), whose trees take its probability.
func (d *chain) proposeSure(q kernels.Queue, active int) error {
	g := &d.going
	g.reset()
	for _, a := range d.order[:active] {
		a.Draft.Expect = 0
		g.add(a, 1, 0)
	}
	for j := 0; len(g.asks) > 0; j++ {
		n := len(g.asks)
		stats, slots := d.stats.Top(n), d.slotTable.Top(n)
		d.Draft(q, stats, slots, j, 0)
		read := d.read[:n*kernels.StatCols]
		if err := q.Read(bytesOf(read), stats).Wait(); err != nil {
			return fmt.Errorf("draft %s: %w", d.name, err)
		}
		asks, sure := g.asks, g.sure
		g.reset()
		for i, a := range asks {
			row := read[i*kernels.StatCols:]
			p, token := sure[i]*shareOfTwo(row), row[kernels.StatTop1]
			if !(p >= 0) {
				continue
			}
			a.Draft.Tokens = append(a.Draft.Tokens, token)
			if a.Draft.Expect += float32(p); p >= d.least && a.K > j+1 {
				g.add(a, p, token)
			}
		}
		d.goOn(q, j, n)
	}
	return nil
}

// goOn records the network's run over draft j of those that go on, of n that were
// drafted for.
func (d *chain) goOn(q kernels.Queue, j, n int) {
	left := len(d.going.asks)
	if left == 0 {
		return
	}
	slots, tokens := d.slotTable.Top(left), d.rowsTable.Top(left)
	if left < n {
		q.Write(slots, bytesOf(d.going.slots))
		q.Gather(d.last.Top(left), d.carry, slots)
	}
	q.Write(tokens, bytesOf(d.going.chosen))
	d.extend(q, slots, j, tokens)
}

// shareOfTwo is the likeliest token's share of the probability of the two likeliest,
// by a row's statistics; NaN where the logits are not numbers.
func shareOfTwo(row []int32) float64 {
	logit := func(column int) float64 { return float64(math.Float32frombits(uint32(row[column]))) }
	return 1 / (1 + math.Exp(logit(kernels.StatLogit2)-logit(kernels.StatLogit1)))
}
