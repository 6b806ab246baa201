package audit

import (
	"fmt"
	"math"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/verify"
)

// Identities of single records.
const (
	checkEmitted  = "emitted is at most accepted + 1"
	checkDecided  = "emitted tokens are the accepted drafts and the next token"
	checkAccepted = "accepted <= k executed <= drafts <= k planned <= k asked"
	checkRows     = "rows, hashes and gaps are the drafts + 1"
	checkIDs      = "proposed ids are the drafts, k executed of them on the longest path"
	checkGreedy   = "accepted is the longest run of drafts that equal the target's choices"
	checkKind     = "next_kind fits accepted and k"
	checkReal     = "real and forced outcome are equal unless simulated"
	checkLossy    = "lossy rules are stamped, and no others"
	checkRanks    = "all ranks decided the same"
	checkGaps     = "logit gaps are numbers"
	checkVocab    = "token ids are in the vocabulary"
)

// identities checks what one record says of itself.
func (a *countsAudit) identities(co *course, r *engine.Record) {
	a.accepted(co, r)
	a.emitted(r)
	a.widths(r)
	a.choices(co, r)
	a.stamped(r)
	if k := a.b.check(checkKind); !k.holds(kindOf(r) == r.NextKind) {
		k.blame(r, "next_kind is %q with %d of %d drafts accepted in a step of kind %s; it is %q", r.NextKind, r.Accepted, r.KExecuted, r.Phase, kindOf(r))
	}
	if k := a.b.check(checkReal); !r.Simulated && !k.holds(r.RealAccepted == r.Accepted && r.ForcedAccepted == r.Accepted && r.RealNextID == r.NextID) {
		k.blame(r, "accepted %d, really %d, forced %d, next token %d, really %d, and nothing was simulated", r.Accepted, r.RealAccepted, r.ForcedAccepted, r.NextID, r.RealNextID)
	} else if r.Simulated && !k.holds(r.ForcedAccepted == r.Accepted) {
		k.blame(r, "%d drafts were forced and %d accepted", r.ForcedAccepted, r.Accepted)
	}
	if k := a.b.check(checkRanks); len(r.RankHashes) > 0 && !k.holds(!slices.ContainsFunc(r.RankHashes, func(h uint64) bool { return h != r.RankHashes[0] })) {
		k.blame(r, "the ranks decided differently: outcome hashes %x", r.RankHashes)
	}
	k := a.b.check(checkGaps)
	for i, g := range r.Gaps {
		if !k.holds(g >= 0 && !math.IsNaN(float64(g))) {
			k.blame(r, "the gap between the two largest logits of row %d is %v", i, g)
		}
	}
}

// accepted checks the order of the counts.
func (a *countsAudit) accepted(co *course, r *engine.Record) {
	asked := r.KPlanned
	if co.req != nil {
		asked = int32(co.req.K)
	}
	ok := r.Accepted >= 0 && int32(r.Accepted) <= r.KExecuted && r.RealAccepted >= 0 && int32(r.RealAccepted) <= r.KExecuted &&
		r.KExecuted <= r.TreeNodes && r.TreeNodes <= r.KPlanned && r.KPlanned <= asked
	if r.Phase == engine.Prefill {
		ok = r.Accepted == 0 && r.KExecuted == 0 && r.KPlanned == 0
	}
	if k := a.b.check(checkAccepted); !k.holds(ok) {
		k.blame(r, "accepted %d (really %d), k executed %d, planned %d, asked %d", r.Accepted, r.RealAccepted, r.KExecuted, r.KPlanned, asked)
	}
}

// emitted checks what reached the client against what was decided.
func (a *countsAudit) emitted(r *engine.Record) {
	n := len(r.EmittedIDs)
	if r.NextKind == engine.NextNone {
		if k := a.b.check(checkEmitted); !k.holds(n == 0 && r.NextID == -1) {
			k.blame(r, "%d tokens emitted by a chunk that decides nothing", n)
		}
		return
	}
	if k := a.b.check(checkEmitted); !k.holds(n <= int(r.Accepted.Length())) {
		k.blame(r, "%d tokens emitted, %d accepted and one after them", n, r.Accepted)
	}
	k := a.b.check(checkDecided)
	for i, id := range r.EmittedIDs[:min(n, int(r.Accepted.Length()))] {
		if !k.holds(id == decided(r, i)) {
			k.blame(r, "token %d emitted as %d; drafts %v, %d accepted, next token %d decide %d", i, id, r.ProposedIDs, r.Accepted, r.NextID, decided(r, i))
			break
		}
	}
	vocab, ok := a.c.Lab.(interface{ Vocab() int })
	if !ok {
		return
	}
	v := a.b.check(checkVocab)
	for _, id := range r.EmittedIDs {
		if !v.holds(id >= 0 && int(id) < vocab.Vocab()) {
			v.blame(r, "token %d was emitted; the vocabulary is 0..%d", id, vocab.Vocab()-1)
		}
	}
}

// widths checks the sizes of what was verified.
func (a *countsAudit) widths(r *engine.Record) {
	if r.NextKind == engine.NextNone {
		if k := a.b.check(checkRows); !k.holds(len(r.Hashes) == 0 && len(r.Gaps) == 0) {
			k.blame(r, "%d logits rows of a chunk that decides nothing", len(r.Hashes))
		}
		return
	}
	rows := r.TreeNodes + 1
	ok := len(r.Hashes) == int(rows) && len(r.Gaps) == int(rows) && (r.Phase == engine.Prefill || r.Rows == rows)
	if k := a.b.check(checkRows); !k.holds(ok) {
		k.blame(r, "k %d + 1 = %d rows to verify; %d rows, %d hashes, %d gaps", r.TreeNodes, rows, r.Rows, len(r.Hashes), len(r.Gaps))
	}
	if k := a.b.check(checkIDs); !k.holds(len(r.ProposedIDs) == int(r.TreeNodes) && longest(r) == r.KExecuted) {
		k.blame(r, "k executed is %d, with %d proposed ids and %d nodes", r.KExecuted, len(r.ProposedIDs), r.TreeNodes)
	}
}

// stamped checks that a record of a lossy rule says so.
func (a *countsAudit) stamped(r *engine.Record) {
	rule, err := verify.New(r.Rule)
	if err != nil {
		return
	}
	if k := a.b.check(checkLossy); !k.holds(r.Lossy == engine.Lossy(rule)) {
		k.blame(r, "rule %s is lossy: %v; the record says %v", r.Rule, engine.Lossy(rule), r.Lossy)
	}
}

// liberties counts what lossy rules accepted, and what of it plain decoding would
// not have said.
type liberties struct{ accepted, other int64 }

func (l *liberties) add(r *engine.Record) {
	n := int(r.RealAccepted)
	l.accepted += int64(n)
	for i, id := range r.ProposedIDs[:n] {
		if id != r.TargetIDs[i] {
			l.other++
		}
	}
}

// note says it.
func (l *liberties) note(b *book) {
	if l.accepted > 0 {
		b.note(fmt.Sprintf("of %d drafts that lossy rules accepted, %d (%.1f %%) are not what plain decoding says at their rows", l.accepted, l.other, 100*float64(l.other)/float64(l.accepted)))
	}
}

// choices checks the rule's decision against the target's choices.
func (a *countsAudit) choices(co *course, r *engine.Record) {
	if r.NextKind == engine.NextNone || co.req == nil || r.Simulated && len(r.Parents) > 0 {
		return // the drafts of a simulated tree stand in the order that was forced
	}
	rule, err := verify.New(r.Rule)
	if err != nil {
		return
	}
	k := a.b.check(checkGreedy)
	n := int(r.RealAccepted)
	if n < 0 || n >= len(r.TargetIDs) || n > len(r.ProposedIDs) {
		k.holds(false)
		k.blame(r, "%d drafts really accepted of %v with target choices %v", n, r.ProposedIDs, r.TargetIDs)
		return
	}
	ok := slices.Equal(r.ProposedIDs[:n], r.TargetIDs[:n]) && r.RealNextID == r.TargetIDs[n]
	if engine.Lossy(rule) {
		a.lossy.add(r)
		ok = r.RealNextID == r.TargetIDs[n]
	}
	if rule.Exact(co.req.Params) && n < len(r.ProposedIDs) {
		for i := n; i < len(r.ProposedIDs); i++ { // else it stopped too early
			ok = ok && (r.Parent(i) != n-1 || r.ProposedIDs[i] != r.TargetIDs[n])
		}
	}
	if !k.holds(ok) {
		k.blame(r, "drafts %v, target choices %v: %d really accepted with next token %d", r.ProposedIDs, r.TargetIDs, r.RealAccepted, r.RealNextID)
	}
}

// kindOf is the kind that the next token of a record must have. Only the last
// chunk of a prompt yields a token; which one is last is checked with positions.
func kindOf(r *engine.Record) engine.NextKind {
	switch {
	case r.Phase == engine.Prefill && len(r.Hashes) == 0:
		return engine.NextNone
	case r.KExecuted == 0:
		return engine.NextSampled
	case r.Leaf():
		return engine.NextBonus
	}
	return engine.NextCorrection
}

// longest is the number of drafts on the longest path of a record; -1 where the
// accepted drafts are not a path.
func longest(r *engine.Record) int32 {
	depths := depthsOf(r)
	if depths == nil {
		return -1
	}
	most := int32(0)
	for i, n := range depths {
		if i < int(r.Accepted) && r.Parent(i) != i-1 {
			return -1
		}
		most = max(most, n)
	}
	return most
}

// depthsOf returns how many drafts each draft of a record has on its path, itself
// included; nil where the parents are not those of a tree.
func depthsOf(r *engine.Record) []int32 {
	depths := make([]int32, len(r.ProposedIDs))
	if n := len(r.Parents); n > 0 && n != len(depths) {
		return nil
	}
	for i := range depths {
		up := r.Parent(i)
		if up < -1 || up >= i {
			return nil
		}
		depths[i] = 1
		if up >= 0 {
			depths[i] += depths[up]
		}
	}
	return depths
}

// pairs counts, for a record of a tree, the pairs of a row and a row on its path,
// itself included; 0 for a chain.
func pairs(r *engine.Record) int {
	if len(r.Parents) == 0 {
		return 0
	}
	n := 1
	for _, d := range depthsOf(r) {
		n += int(d) + 1
	}
	return n
}
