package audit

import (
	"context"
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/verify"
)

// Names of the checks of the tokens audit.
const (
	checkReceived   = "received tokens are the recorded ones"
	checkNumbers    = "no logit is NaN"
	checkForcedRow  = "logits hash under teacher forcing"
	checkForced     = "token under teacher forcing"
	checkPlain      = "token and logits hash under plain replay"
	checkAfterDraft = "token after a forced run is the target's choice there"
)

// tokensAudit is the state of Tokens.
type tokensAudit struct {
	ctx      context.Context
	c        *Case
	b        *book
	progress Progress
	plain    bool
	told     int // divergences told in full
	plains   map[string]*trace
	replays  map[string][]judged
	held     int // rows in replays
	any      struct{ exact, simulated, sampled, unknown bool }
}

// trace is what plain decoding gave.
type trace struct {
	tokens []int32
	hashes []uint64
}

// judged is a row under teacher forcing with the request's own choice there.
type judged struct {
	hash         uint64
	choice, top2 int32
	gap          float32
	nans         int32
}

// Tokens asks whether the output is what plain decoding gives: see the package
// comment. The error is of the records or the laboratory, not a verdict.
func Tokens(ctx context.Context, c *Case, progress func(string)) (*Report, error) {
	a := &tokensAudit{
		ctx: ctx, c: c, b: newBook("tokens", c), progress: progress,
		plain: c.plainToo(), plains: map[string]*trace{}, replays: map[string][]judged{},
	}
	for _, name := range []string{checkForced, checkForcedRow, checkAfterDraft, checkPlain, checkReceived, checkNumbers} {
		a.b.check(name)
	}
	if c.Lab == nil {
		for _, name := range []string{checkForced, checkForcedRow} {
			a.b.check(name).skip(c.NoLab)
		}
	}
	w := walk{c: c}
	if err := w.run(ctx, nil, a.request); err != nil {
		return nil, err
	}
	a.close()
	return a.b.report(checkForced, checkForcedRow, checkAfterDraft), nil
}

// request audits a request whose records have all been seen.
func (a *tokensAudit) request(co *course) error {
	if co.req == nil {
		a.b.check(checkReceived).holds(false)
		a.b.check(checkReceived).blameRequest(co.id, "there are records of request %s, which nobody asked for", co.id)
		return nil
	}
	a.received(co)
	if a.c.Lab == nil {
		return nil
	}
	if err := a.forced(co); err != nil {
		return fmt.Errorf("request %s: teacher forcing: %w", co.id, err)
	}
	if a.plain && !co.simulated && exactRule(co) {
		if err := a.replay(co); err != nil {
			return fmt.Errorf("request %s: plain replay: %w", co.id, err)
		}
	}
	return nil
}

// exactRule reports whether the request's rule promises plain decoding's tokens.
func exactRule(co *course) bool {
	rule, err := verify.New(co.rule)
	return err == nil && rule.Exact(co.req.Params)
}

// received compares the records with what the client saw.
func (a *tokensAudit) received(co *course) {
	want := co.req.Received
	if len(want) == 0 && !co.req.Ended {
		return
	}
	k := a.b.check(checkReceived)
	n := min(len(want), len(co.tokens))
	same := slices.Equal(want[:n], co.tokens[:n]) && (len(want) == n || !co.req.Ended)
	if !k.holds(same && len(co.tokens) >= len(want)) {
		k.blameRequest(co.id, "request %s: the client received %d tokens, the records emitted %d; they part at output %d",
			co.id, len(want), len(co.tokens), apart(want, co.tokens))
	}
}

// apart is the first index at which two slices differ.
func apart[T comparable](a, b []T) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// forced compares with teacher forcing of prompt and output.
func (a *tokensAudit) forced(co *course) error {
	n := len(co.tokens)
	if n == 0 || slices.Min(co.tokens) < 0 {
		return nil
	}
	rows, err := a.judge(co)
	if err != nil {
		return err
	}
	exact := exactRule(co)
	for j, row := range rows {
		if k := a.b.check(checkNumbers); !k.holds(row.nans == 0) {
			k.blameRequest(co.id, "request %s: %d logits of the row at position %d are not numbers", co.id, row.nans, len(co.req.Prompt)-1+j)
		}
		if j >= n {
			a.tailHash(co, j-n, row)
			continue
		}
		at, id := co.at[j], co.tokens[j]
		chosen := checkForced
		if co.simulated {
			chosen = checkAfterDraft
		}
		if co.simulated && !at.drafted || !co.simulated && exact {
			if k := a.b.check(chosen); !k.holds(id == row.choice) {
				if k.finding == nil {
					k.blameRequest(co.id, "%s", a.divergence(co, j, row))
					k.finding.Step = at.step
				}
			}
		}
		if k := a.b.check(checkForcedRow); at.hashed && !k.holds(co.hashes[j] == row.hash) && k.finding == nil {
			k.blameRequest(co.id, "%s", a.divergence(co, j, row))
			k.finding.Step = at.step
		}
	}
	return nil
}

// tailHash compares the row behind a decided token that a stop or the length
// limit cut.
func (a *tokensAudit) tailHash(co *course, i int, row judged) {
	if k := a.b.check(checkForcedRow); i < len(co.tailHashes) && !k.holds(co.tailHashes[i] == row.hash) {
		k.blameRequest(co.id, "request %s: the logits behind decided token %d past the output's end are not those of teacher forcing", co.id, i)
	}
}

// judge reads prompt and output in prefill chunks and returns the row behind
// each decided token with the request's own choice there.
func (a *tokensAudit) judge(co *course) ([]judged, error) {
	req := co.req
	p := req.Params
	decided := slices.Concat(co.tokens, co.tail)
	ids := slices.Concat(req.Prompt, decided)
	ids = ids[:len(ids)-1]
	sampler := sample.New(p, req.Prompt)
	var rows []judged
	err := a.c.Lab.Force(a.ctx, ids, len(req.Prompt)-1, !p.Plain(), func(r Row) error {
		j := judged{hash: r.Hash, choice: r.Top1, top2: r.Top2, gap: r.Gap, nans: r.NaNs}
		if !p.Plain() && r.NaNs == 0 {
			var err error
			if j.choice, err = sampler.CoupledSample(r.Logits, nil, int(r.Position)+1); err != nil {
				return err
			}
		}
		sampler.Push(decided[len(rows)])
		rows = append(rows, j)
		return nil
	})
	return rows, err
}

// divergence says what differs at output j, what else was in the batch, and
// which side the oracle takes.
func (a *tokensAudit) divergence(co *course, j int, row judged) string {
	at := co.at[j]
	position := len(co.req.Prompt) + j
	what := fmt.Sprintf("token %d, the target's choice is %d (largest gap there %.4g)", co.tokens[j], row.choice, row.gap)
	if co.tokens[j] == row.choice {
		what = fmt.Sprintf("token %d agrees, its logits row has hash %016x where teacher forcing has %016x", co.tokens[j], co.hashes[j], row.hash)
	}
	return fmt.Sprintf("request %s, output %d (position %d): %s; row %d of its span in step %d, of %d sequences, %d rows, %d prefill tokens",
		co.id, j, position, what, at.row, at.step, at.batch, at.rows, at.fresh)
}

// replay compares with plain decoding of the request alone.
func (a *tokensAudit) replay(co *course) error {
	var t trace
	err := a.c.Lab.Plain(a.ctx, []*Request{co.req}, engine.RecorderFunc(func(r *engine.Record) error {
		t.tokens = append(t.tokens, r.EmittedIDs...)
		t.hashes = append(t.hashes, r.Hashes[:len(r.EmittedIDs)]...)
		return nil
	}))
	if err != nil {
		return err
	}
	n := len(t.tokens)
	if !co.req.Ended {
		n = min(n, len(co.tokens))
	}
	k := a.b.check(checkPlain)
	i := apart(co.tokens, t.tokens[:n])
	same := i == n && len(co.tokens) == n
	if h := apart(co.hashes[:i], t.hashes[:i]); h < i {
		same, i = false, h
	}
	if !k.holds(same) {
		k.blameRequest(co.id, "request %s: %d tokens and plain decoding has %d; the first difference of token or logits is at output %d", co.id, len(co.tokens), n, i)
	}
	return nil
}

// close says what could not be seen.
func (a *tokensAudit) close() {}
