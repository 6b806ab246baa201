package engine

// Lengths is a policy that chooses how many drafts each sequence gets in a step.
// Its methods are called by the engine loop. What it chooses changes speed, never
// the output of a rule that is exact.
type Lengths interface {
	// Choose fills in K of each ask, 0..Most. The asks are for the sequences
	// that decode next, in order of admission; the scheduler may give less.
	Choose(asks []LengthAsk)
	// Observe is told what a step gave and cost.
	Observe(o *StepOutcome)
	// Release forgets a sequence that has ended.
	Release(seq *Sequence)
}

// LengthAsk asks for the draft length of one sequence.
type LengthAsk struct {
	Seq *Sequence
	// Most is the most drafts that it can use in this step.
	Most int
	// K is the answer.
	K int
}

// StepOutcome is what one step gave and cost.
type StepOutcome struct {
	// Sequences are the decoding ones.
	Sequences []LengthOutcome
	// PrefillRows is the number of prompt rows that were read beside them.
	PrefillRows int
	// DraftNs is the time of all drafters, TotalNs that of the whole step.
	DraftNs, TotalNs int64
}

// LengthOutcome is what one sequence's drafts came to.
type LengthOutcome struct {
	Seq      *Sequence
	Drafts   int // verified
	Accepted Accepted
}

// chooseLengths tells the scheduler how many drafts each sequence wants.
func (e *Engine) chooseLengths() error {
	if e.cfg.Lengths == nil {
		return nil
	}
	e.w.lengths = e.w.lengths[:0]
	e.core.Decoding(func(id int64, most int) {
		if seq := e.seqs[id]; seq.drafter != nil {
			e.w.lengths = append(e.w.lengths, LengthAsk{Seq: seq, Most: most})
		}
	})
	if len(e.w.lengths) == 0 {
		return nil
	}
	e.cfg.Lengths.Choose(e.w.lengths)
	for _, a := range e.w.lengths {
		if err := e.core.Drafts(a.Seq.id, min(max(a.K, 0), a.Most)); err != nil {
			return err
		}
	}
	return nil
}

// observeLengths tells the policy what a step gave and cost.
func (e *Engine) observeLengths(totalNs int64) {
	if e.cfg.Lengths == nil {
		return
	}
	o := &e.w.outcome
	*o = StepOutcome{Sequences: o.Sequences[:0], PrefillRows: e.w.prefill, TotalNs: totalNs}
	for _, d := range e.drafters {
		o.DraftNs += d.ns
	}
	for i := range e.w.items {
		if it := &e.w.items[i]; it.decodes() && it.finish != FinishError {
			o.Sequences = append(o.Sequences, LengthOutcome{Seq: it.seq, Drafts: len(it.draft.Tokens), Accepted: it.verdict.Accepted})
		}
	}
	e.cfg.Lengths.Observe(o)
}
