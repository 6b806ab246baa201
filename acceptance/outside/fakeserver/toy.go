package fakeserver

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Toy is a model without weights: its logits are a function of the last one or
// two tokens. Token 0 ends a text. It is a Script, and also the judge and the
// tokenizer of its own server.
type Toy struct {
	// Seed chooses the model.
	Seed uint64
	// K is the draft length.
	K int
	// Lookup drafts what followed the last token before; otherwise a drafter
	// is right in a share Hit of positions.
	Lookup bool
	Hit    float64
	// Noise moves each logit by up to so many units of BF16 rounding, as
	// other arithmetic does.
	Noise float64
	// Threshold accepts a draft whose logit is at most so many units below
	// the first choice: a lossy rule.
	Threshold float64
	// Simulate is the accept length, bonus included, of a simulated
	// acceptance with the least variance; 0 is real acceptance. Placeholder
	// emits token 100 in place of drafts; Truthful emits the tokens of plain
	// decoding.
	Simulate    float64
	Placeholder bool
	Truthful    bool
	// NoStop never ends a text.
	NoStop bool
}

// vocabulary of the toy.
const vocabulary = 211

// placeholder is the id that a simulation with placeholders emits.
const placeholder = 100

// Vocab is the number of ids.
func (t *Toy) Vocab() int { return vocabulary }

// Stops are the ids that end a text.
func (t *Toy) Stops() []int32 { return []int32{0} }

// row fills in the logits behind a context.
func (t *Toy) row(ids []int32, noise float64) []float32 {
	last := uint64(ids[len(ids)-1])
	seed := last
	if r := rand.New(rand.NewPCG(last, 7+t.Seed<<8)); r.Float64() < 0.75 && len(ids) > 1 {
		seed = last<<20 | uint64(ids[len(ids)-2])<<1 | 1
	}
	r := rand.New(rand.NewPCG(seed, 11+t.Seed<<8))
	row := make([]float32, vocabulary)
	for i := range row {
		row[i] = float32(r.NormFloat64() * 1.5)
	}
	top, second := 1+r.IntN(vocabulary-1), 1+r.IntN(vocabulary-1)
	high := 10 + 5*r.Float64()
	row[second] = float32(high - 7*r.Float64())
	row[top] = float32(high)
	row[0] = -12
	if !t.NoStop && r.IntN(80) == 0 {
		row[0] = float32(high + 3)
	}
	for i := range row {
		n := 0.0
		if noise > 0 {
			n = noise * (2*rand.Float64() - 1) * math.Ldexp(1, int(math.Floor(math.Log2(math.Abs(float64(row[i]))+1e-9)))-7)
		}
		row[i] = math.Float32frombits(math.Float32bits(row[i]+float32(n)) &^ 0xffff)
	}
	return row
}

// Force reads an output again, without noise.
func (t *Toy) Force(ctx context.Context, prompt, output []int32, each func(i int, row []float32) error) error {
	ids := append(append([]int32{}, prompt...), output...)
	for i := range len(output) + 1 {
		if err := each(i, t.row(ids[:len(prompt)+i], 0)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func argmax(row []float32) int32 {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return int32(best)
}

// propose drafts behind a context.
func (t *Toy) propose(ids []int32) []int32 {
	if !t.Lookup {
		ctx := append([]int32{}, ids...)
		var out []int32
		for range t.K {
			row := t.row(ctx, 0)
			d := argmax(row)
			// Some texts are easier to foresee than others.
			hit := t.Hit + 0.15*(float64(ids[0]%5)/2-1)
			if rand.New(rand.NewPCG(uint64(len(ctx)), uint64(ctx[len(ctx)-1])+uint64(ids[0])<<16)).Float64() > hit {
				row[d] = -100
				d = argmax(row)
			}
			ctx, out = append(ctx, d), append(out, d)
		}
		return out
	}
	last := ids[len(ids)-1]
	for i := len(ids) - 2; i >= 0; i-- {
		if ids[i] == last {
			return append([]int32{}, ids[i+1:min(len(ids), i+1+t.K)]...)
		}
	}
	return nil
}

// verify decides a step: the accepted drafts and the tokens to emit.
func (t *Toy) verify(ids, drafts []int32, r *rand.Rand) Step {
	s := Step{Offered: drafts}
	force := -1
	if t.Simulate > 0 {
		want := t.Simulate - 1
		force = int(want)
		if r.Float64() < want-math.Floor(want) {
			force++
		}
		force = min(force, len(drafts))
	}
	ctx := append([]int32{}, ids...)
	for i := 0; ; i++ {
		row := t.row(ctx, t.Noise)
		best := argmax(row)
		ok := i < len(drafts) && (drafts[i] == best || t.Threshold > 0 && within(row, best, drafts[i], t.Threshold))
		if force >= 0 {
			ok = i < force
		}
		next := best
		if ok {
			next = drafts[i]
			if t.Truthful {
				next = best
			}
		}
		if ok && t.Placeholder {
			next = placeholder
		}
		ctx, s.Emitted = append(ctx, next), append(s.Emitted, next)
		if !ok {
			return s
		}
		s.Accepted++
	}
}

func within(row []float32, best, draft int32, units float64) bool {
	u := math.Ldexp(1, int(math.Floor(math.Log2(float64(row[best]))))-7)
	return float64(row[best]-row[draft]) <= units*u
}

// Trace implements Script.
func (t *Toy) Trace(prompt []int32, maxTokens int, plain bool) *Trace {
	ids := append([]int32{}, prompt...)
	r := rand.New(rand.NewPCG(uint64(len(prompt))+t.Seed<<16, uint64(prompt[0])))
	tr := &Trace{First: argmax(t.row(ids, t.Noise)), Finish: "length"}
	ids = append(ids, tr.First)
	if tr.First == 0 {
		tr.Finish = "stop"
		return tr
	}
	for n := 1; n < maxTokens && tr.Finish == "length"; {
		var drafts []int32
		if !plain {
			drafts = t.propose(ids)
		}
		var s Step
		if plain {
			s = Step{Emitted: []int32{argmax(t.row(ids, t.Noise))}}
		} else {
			s = t.verify(ids, drafts, r)
		}
		for i, id := range s.Emitted {
			if id == 0 {
				s.Emitted, tr.Finish = s.Emitted[:i+1], "stop"
				break
			}
		}
		if over := n + len(s.Emitted) - maxTokens; over > 0 {
			s.Emitted, tr.Finish = s.Emitted[:len(s.Emitted)-over], "length"
		}
		n += len(s.Emitted)
		ids = append(ids, s.Emitted...)
		tr.Steps = append(tr.Steps, s)
	}
	return tr
}

// Text implements Script.
func (t *Toy) Text(ids []int32) string { return t.Decode(ids, true) }

// Decode is the tokenizer's: each token is a word.
func (t *Toy) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	for _, id := range ids {
		switch {
		case id == 0 && skipSpecial:
		case id == 0:
			b.WriteString(" </s>")
		case id == placeholder:
			b.WriteString(" \uFFFD")
		default:
			fmt.Fprintf(&b, " w%d", id)
		}
	}
	return b.String()
}

// Encode is the tokenizer's.
func (t *Toy) Encode(text string, _ bool) []int32 {
	var ids []int32
	for word := range strings.FieldsSeq(text) {
		id, err := strconv.Atoi(strings.TrimPrefix(word, "w"))
		if err != nil {
			id = placeholder
		}
		ids = append(ids, int32(id))
	}
	return ids
}

// Prompts makes n prompts of a length.
func (t *Toy) Prompts(n, length int) [][]int32 {
	out := make([][]int32, n)
	for i := range out {
		r := rand.New(rand.NewPCG(uint64(i), 3+t.Seed<<8))
		for range length {
			out[i] = append(out[i], int32(1+r.IntN(vocabulary-1)))
		}
	}
	return out
}
