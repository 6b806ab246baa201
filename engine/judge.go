package engine

import (
	"fmt"
	"math"
	"slices"

	"exacta.dev/exacta/engine/sched"
	"exacta.dev/exacta/kernels"
)

// judge lets the item's rule decide and works out what is kept and emitted.
func (e *Engine) judge(it *item, logits kernels.Buf) {
	it.kept, it.emit, it.finish = len(it.tokens), nil, ""
	it.verdict = Verdict{Kind: NextNone, Next: -1}
	if it.logits == 0 {
		it.next = it.seq.tokens[it.plan.Start+len(it.tokens)]
		return
	}
	if it.err == nil {
		it.verdict, it.err = e.verdict(it, logits)
	}
	if it.err != nil {
		it.kept, it.next = 0, 0
		it.finish = FinishError
		return
	}
	if it.decodes() {
		it.kept = int(it.verdict.Accepted.Length())
	}
	it.next = it.verdict.Next
	it.straighten()
	it.emit = make([]int32, 0, it.verdict.Accepted.Length())
	if it.path == nil {
		it.emit = append(it.emit, it.draft.Tokens[:it.verdict.Accepted]...)
	} else {
		for _, row := range it.path[1:] {
			it.emit = append(it.emit, it.draft.Tokens[row-1])
		}
	}
	it.emit = append(it.emit, it.next)
	decided := it.emit
	it.emit, it.finish = it.seq.cut(decided, e.cfg.MaxTokens)
	it.emit, it.finish = e.cfg.Interposer.Emit(it.seq, decided, it.emit, it.finish)
}

// verdict calls the rule.
func (e *Engine) verdict(it *item, logits kernels.Buf) (Verdict, error) {
	n := it.logits
	e.w.argmax = e.w.argmax[:0]
	for r := range n {
		if nan := e.stat(it.logit + r)[kernels.StatNaNs]; nan > 0 {
			return Verdict{}, fmt.Errorf("request %s: %d logits at position %d are not numbers", it.seq.req.ID, nan, it.plan.Start+it.logitFrom()+r)
		}
		e.w.argmax = append(e.w.argmax, e.stat(it.logit + r)[kernels.StatTop1])
	}
	if it.choice != nil {
		if err := it.seq.unbounded(e.stat(it.logit).logit1()); err != nil {
			return Verdict{}, err
		}
		return Verdict{Next: it.choice[0], Kind: NextSampled, Targets: slices.Clone(it.choice)}, nil
	}
	v := Verification{
		Seq: it.seq, Draft: it.draft, Argmax: e.w.argmax, Sampler: it.seq.sampler,
		Position: it.plan.Start + it.logitFrom(),
	}
	if it.seq.rule.NeedsLogits(it.seq.req.Params) {
		if err := e.readLogits(logits.Slice(it.logit, it.logit+n)); err != nil {
			return Verdict{}, err
		}
		v.Logits = e.logitsRow
	}
	verdict, err := it.seq.rule.Verify(&v)
	if err != nil {
		return verdict, fmt.Errorf("request %s: rule %s: %w", it.seq.req.ID, it.seq.rule.Name(), err)
	}
	if a := int(verdict.Accepted); a < 0 || a > len(it.draft.Tokens) || verdict.Next < 0 || int(verdict.Next) >= e.cfg.Vocab {
		return verdict, fmt.Errorf("request %s: rule %s accepted %d of %d drafts with next token %d", it.seq.req.ID, it.seq.rule.Name(), a, len(it.draft.Tokens), verdict.Next)
	}
	if it.decodes() {
		verdict = e.cfg.Interposer.Verdict(it.seq, &v, verdict)
	}
	if err := it.draft.along(&verdict); err != nil {
		return verdict, fmt.Errorf("request %s: rule %s: %w", it.seq.req.ID, it.seq.rule.Name(), err)
	}
	verdict.Targets = slices.Clone(verdict.Targets)
	return verdict, nil
}

// rowStats are the statistics of one row of logits, as a backend gives them (I32
// [kernels.StatCols]).
type rowStats []int32

// logit1 is the largest logit.
func (r rowStats) logit1() float32 { return math.Float32frombits(uint32(r[kernels.StatLogit1])) }

// gap is the largest logit less the second.
func (r rowStats) gap() float32 {
	return r.logit1() - math.Float32frombits(uint32(r[kernels.StatLogit2]))
}

// hash is that of the row's bits.
func (r rowStats) hash() uint64 {
	return uint64(uint32(r[kernels.StatHashLo])) | uint64(uint32(r[kernels.StatHashHi]))<<32
}

// unbounded refuses to draw from a row whose largest logit is infinite, as the sampler
// does.
func (s *Sequence) unbounded(largest float32) error {
	if s.drawn() && math.IsInf(float64(largest), 0) {
		return fmt.Errorf("request %s: the largest logit is %v; weights or activations are out of range", s.req.ID, largest)
	}
	return nil
}

// readLogits brings whole rows to the host.
func (e *Engine) readLogits(rows kernels.Buf) error {
	n := int(rows.Rows) * int(rows.Cols)
	if cap(e.logits) < n {
		e.logits = make([]float32, n)
	}
	e.logits = e.logits[:n]
	return e.q.Read(float32Bytes(e.logits), rows).Wait()
}

func (e *Engine) logitsRow(row int) []float32 {
	v := e.m.Config.VocabSize
	return e.logits[row*v:][:e.cfg.Vocab]
}

// room is how many tokens a sequence may still emit.
func (s *Sequence) room(maxTokens int) int {
	return min(s.req.MaxNew-len(s.Output()), maxTokens-len(s.tokens))
}

// cut shortens newly decided tokens at the first stop token (which is emitted),
// at the length limits, and where the request's Until ends them.
func (s *Sequence) cut(ids []int32, maxTokens int) ([]int32, Finish) {
	room := s.room(maxTokens)
	finish := Finish("")
	if len(ids) >= room {
		ids, finish = ids[:room], FinishLength
	}
	for i, id := range ids {
		if !s.req.IgnoreStop && slices.Contains(s.req.Stop, id) {
			ids, finish = ids[:i+1], FinishStop
			break
		}
	}
	if s.req.Until != nil {
		if n, ended := s.req.Until.Push(ids); ended {
			return ids[:n], FinishText
		}
	}
	return ids, finish
}

// observe shows requests that ask for it the logits of their prompts and of what
// they emit.
func (e *Engine) observe(logits kernels.Buf) error {
	for i := range e.w.items {
		it := &e.w.items[i]
		for j := range it.before {
			position := it.plan.Start + j + 1
			if position >= len(it.seq.req.Prompt) {
				break
			}
			at := it.logit - it.before + j
			if err := e.readLogits(logits.Slice(at, at+1)); err != nil {
				return err
			}
			it.seq.req.ObservePrompt(position, e.logitsRow(0))
		}
		if it.seq.req.Observe == nil {
			continue
		}
		for j, id := range it.emit {
			at := it.logit + it.row(j)
			if err := e.readLogits(logits.Slice(at, at+1)); err != nil {
				return err
			}
			it.seq.req.Observe(id, e.logitsRow(0))
		}
	}
	return nil
}

// commit records the commit of what was kept.
func (e *Engine) commit(b kernels.Batch) {
	for i := range e.w.items {
		it := &e.w.items[i]
		kept := e.cfg.Interposer.Keep(it.seq, len(it.tokens), it.kept)
		if it.path != nil {
			kept = min(kept, len(it.path))
		}
		e.t.keptHost = append(e.t.keptHost, int32(kept))
		e.t.nextHost = append(e.t.nextHost, it.next)
	}
	kept, _ := e.t.decide(e.q)
	e.q.Commit(e.caches, &b, kept, e.path(b))
}

// path uploads the rows that are kept, or returns none where they are the first
// ones of every span.
func (e *Engine) path(b kernels.Batch) kernels.Buf {
	if !e.moves() {
		return kernels.Buf{}
	}
	for i := range e.w.items {
		it := &e.w.items[i]
		for j := range it.tokens {
			e.t.pathHost = append(e.t.pathHost, int32(it.row(j)))
		}
	}
	path := e.t.path.Top(b.Rows)
	e.q.Write(path, int32Bytes(e.t.pathHost))
	return path
}

// advance tells the scheduler and the sequences what happened, and records the
// operations that follow the step.
func (e *Engine) advance(after []sched.Op) error {
	e.w.results = slices.Grow(e.w.results[:0], len(e.w.items))[:len(e.w.items)]
	for i := range e.w.items {
		it := &e.w.items[i]
		seq := it.seq
		if it.finish == FinishError {
			it.kept, it.emit = 0, nil
		}
		seq.tokens = append(seq.tokens, it.emit...)
		seq.sampler.Push(it.emit...)
		seq.length = it.plan.Start + it.kept
		e.w.results[it.at] = sched.Result{ID: seq.id, Kept: it.kept, Tokens: e.cfg.Interposer.Keys(seq, it.emit), Done: it.finish != ""}
	}
	for _, op := range after {
		seq := e.seqs[op.ID]
		if seq.length != op.Length {
			continue // it failed in this step; the scheduler lets the snapshot go
		}
		e.q.Save(e.caches, op.Slot, op.Snapshot)
		if d := seq.drafter; d != nil && d.device != nil {
			if err := e.settle(d, append(d.list[:0], seq)); err != nil {
				return err
			}
			if err := d.device.Save(e.q, seq, op.Snapshot); err != nil {
				return err
			}
		}
	}
	return e.core.Commit(e.w.results)
}

// report writes the records and ends finished sequences.
func (e *Engine) report(b kernels.Batch, verifyNs, totalNs int64) error {
	for i := range e.w.items {
		it := &e.w.items[i]
		if it.finish != FinishError {
			rec := e.record(it, b, verifyNs, totalNs)
			if e.recorder != nil {
				if err := e.recorder.Record(rec); err != nil {
					return fmt.Errorf("record of request %s: %w", it.seq.req.ID, err)
				}
			}
			if e.listener.Emitted != nil {
				e.listener.Emitted(it.seq, rec)
			}
			it.seq.seqStep++
		}
		if it.finish != "" {
			e.end(it.seq, it.finish, it.err)
		}
	}
	return nil
}

// simulator is a rule that forces its outcome; it says what was asked for.
type simulator interface{ Simulation() string }

func (e *Engine) record(it *item, b kernels.Batch, verifyNs, totalNs int64) *Record {
	rec := &Record{
		Request: it.seq.req.ID, Sequence: it.seq.id, Step: e.step, SeqStep: it.seq.seqStep, Phase: Prefill,
		Batch: int32(b.Spans), BatchRows: int32(b.Rows), PrefillTokens: int32(e.w.prefill),
		Position: int32(it.plan.Start), Rows: int32(len(it.tokens)), Cached: it.seq.cached, Preemptions: it.seq.preemptions,
		Drafter: "none", Rule: it.seq.rule.Name(), Lossy: Lossy(it.seq.rule), KPlanned: int32(it.planned), KExecuted: int32(it.draft.Depth()),
		TreeNodes: int32(len(it.draft.Tokens)), TargetIDs: it.verdict.Targets,
		Accepted: it.verdict.Accepted, NextID: it.verdict.Next, NextKind: it.verdict.Kind, EmittedIDs: slices.Clone(it.emit),
		RealAccepted: it.verdict.Accepted, RealNextID: it.verdict.Next, ForcedAccepted: it.verdict.Accepted,
		VerifyNs: verifyNs, TotalNs: totalNs, DraftWork: e.w.draftWork, TargetWork: e.w.targetWork,
		RankHashes: e.rankHashes(it.at),
	}
	rec.ProposedIDs, rec.Parents = it.recorded()
	if sim := it.verdict.Simulation; sim != nil {
		rec.Simulated, rec.Simulation, rec.RealAccepted, rec.RealNextID = true, sim.Spec, sim.Real, sim.RealNext
	} else if s, ok := it.seq.rule.(simulator); ok && it.logits == 0 {
		rec.Simulated, rec.Simulation = true, s.Simulation() // nothing was decided yet
	}
	if it.decodes() {
		rec.Phase = Decode
	}
	if d := it.seq.drafter; d != nil {
		rec.Drafter, rec.DraftNs = d.Drafter.Name(), d.ns
	}
	if it.logits > 0 {
		rec.Gaps, rec.Hashes = make([]float32, 0, it.logits), make([]uint64, 0, it.logits)
	}
	for r := it.logit; r < it.logit+it.logits; r++ {
		row := e.stat(r)
		rec.Gaps, rec.Hashes = append(rec.Gaps, row.gap()), append(rec.Hashes, row.hash())
	}
	order := it.order()
	rec.Gaps, rec.Hashes, rec.TargetIDs = reorder(rec.Gaps, order), reorder(rec.Hashes, order), reorder(rec.TargetIDs, order)
	e.cfg.Interposer.Count(it.seq, rec)
	return rec
}
