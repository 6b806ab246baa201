package experiments

import (
	"errors"
	"fmt"
	"slices"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/verify"
)

// Drafts are what StepBenchOptions.Draft may name: the MTP module, with random weights
// where the model has them.
var Drafts = []string{"mtp", "mtp-int4"}

// LoopCost is what a turn of the loop costs: drafts, verification, acceptance, commit
// and the levelling of the drafter's caches, as one program, by the device's clock.
type LoopCost struct {
	Draft   string  `json:"draft"` // one of Drafts; "none" decodes plainly
	K       int     `json:"k"`
	Batch   int     `json:"batch"`
	Ms      float64 `json:"ms"`
	Idle    float64 `json:"idle"`     // share of the time between replays
	ToPlain float64 `json:"to_plain"` // time by that of plain decoding in the loop
	Skipped string  `json:"skipped,omitempty"`
}

// Prompts, and turns of the loop before and in the measurement.
const (
	loopPrompt = 64
	loopWarm   = 6
	loopTurns  = 30
)

// loops measures the loop at each batch, plainly and with drafts.
func (b *stepBench) loops(progress func(string)) {
	plain := map[int]float64{}
	for _, name := range []string{"none", b.o.Draft} {
		for _, batch := range b.o.Batch {
			progress(fmt.Sprintf("the loop, drafts of %s, %d sequences", name, batch))
			cost, err := b.loop(name, batch)
			switch {
			case err != nil: // what was measured is worth telling
				cost.Skipped = err.Error()
			case name == "none":
				plain[batch] = cost.Ms
			}
			if plain[batch] > 0 {
				cost.ToPlain = cost.Ms / plain[batch]
			}
			b.res.Loops = append(b.res.Loops, *cost)
		}
	}
}

// loop measures one kind of turn.
func (b *stepBench) loop(name string, batch int) (c *LoopCost, err error) {
	c = &LoopCost{Draft: name, Batch: batch}
	drafters, request := map[string]engine.Drafter{}, engine.Request{IgnoreStop: true}
	if name != "none" {
		c.K = b.o.K
		request.Drafter, request.K = "mtp", b.o.K
		if drafters["mtp"], err = b.drafter(name); err != nil {
			return c, err
		}
	}
	rule, err := verify.New("greedy")
	if err != nil {
		return c, err
	}
	request.MaxNew = (c.K+1)*(loopWarm+loopTurns) + batch + loopPrompt
	e, err := engine.New(b.m, engine.Config{
		MaxTokens: loopPrompt + request.MaxNew, MaxSequences: batch, MaxDraft: max(1, c.K), Loop: true, BatchTokens: max(2048, batch*(c.K+1)),
	}, drafters, rule, nil, engine.Listener{})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for i := range batch {
		request.ID, request.Prompt = fmt.Sprint(i), slices.Repeat([]int32{int32(7 + i)}, loopPrompt)
		if _, err := e.Submit(request); err != nil {
			return c, err
		}
	}
	turns := func(n int64, ready func() bool) error {
		for from := e.LoopStats().Replays; e.LoopStats().Replays < from+n || !ready(); {
			if more, err := e.Step(); err != nil || !more {
				return errors.Join(err, errors.New("bench: the loop ended early, or never began"))
			}
		}
		return nil
	}
	// The last prompt is read in the step that admits it, and in the loop two turns
	// later.
	err = turns(loopWarm, func() bool { return e.Load().Waiting == 0 })
	if err == nil {
		err = turns(3, func() bool { return true })
	}
	if err != nil {
		return c, err
	}
	before := e.LoopStats()
	if err := turns(loopTurns, func() bool { return true }); err != nil {
		return c, err
	}
	after := e.LoopStats()
	busy, idle := (after.Busy - before.Busy).Seconds(), (after.Idle - before.Idle).Seconds()
	c.Ms, c.Idle = (busy+idle)/loopTurns*1e3, idle/(busy+idle)
	return c, nil
}

// drafter makes the drafter of one of Drafts.
func (b *stepBench) drafter(name string) (engine.Drafter, error) {
	where := map[string]string{"mtp": "", "mtp-int4": "model:mtp-int4"}[name]
	if _, ok := b.source.(model.Random); ok {
		where = map[string]string{"mtp": model.RandomHead, "mtp-int4": model.RandomInt4Head}[name]
	}
	return headStrategy(checkpoint.HeadMTP, where).Provision(draft.Env{Backend: b.m.Backend(), Model: b.m, Vocab: b.m.Config.VocabSize})
}
