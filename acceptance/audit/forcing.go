package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// judged is a row under teacher forcing with the request's own choice there:
// what its rule decides in a step without drafts.
type judged struct {
	hash         uint64
	choice, top2 int32
	gap          float32
	nans         int32
}

// heldRows bounds the rows that are kept for requests of the same tokens.
const heldRows = 1 << 20

// forcings keeps what teacher forcing gave, since a run repeats requests.
type forcings struct {
	rows map[[32]byte][]judged
	n    int
}

func (f *forcings) keep(key [32]byte, rows []judged) {
	if f.rows == nil || f.n+len(rows) > heldRows {
		f.rows, f.n = map[[32]byte][]judged{}, 0
	}
	f.rows[key] = rows
	f.n += len(rows)
}

// judge reads prompt and output in prefill chunks and returns the row behind
// each decided token.
func (a *tokensAudit) judge(co *course, rule engine.Verifier) ([]judged, error) {
	p := co.req.Params
	out := slices.Concat(co.tokens, co.tail)
	ids := slices.Concat(co.req.Prompt, out)
	ids = ids[:len(ids)-1]
	h := sha256.New()
	fmt.Fprint(h, co.rule, p, len(co.req.Prompt))
	_ = binary.Write(h, binary.LittleEndian, ids)
	key := [32]byte(h.Sum(nil))
	first := a.sampled.first(co)
	if rows, ok := a.forcings.rows[key]; ok && !first {
		return rows, nil
	}
	sampler, err := a.c.sampler(co.req)
	if err != nil {
		return nil, err
	}
	rows := make([]judged, 0, len(out))
	err = a.c.Lab.Force(a.ctx, ids, len(co.req.Prompt)-1, !p.Plain(), func(r Row) error {
		j, at := judged{hash: r.Hash, choice: r.Top1, top2: r.Top2, gap: r.Gap, nans: r.NaNs}, len(rows)
		if r.Logits != nil && r.NaNs == 0 {
			if first && at < len(co.tokens) {
				if err := a.sampled.add(a.b, co, at, sampler, r.Logits); err != nil {
					return err
				}
			}
			if rule != nil {
				v, err := rule.Verify(&engine.Verification{
					Position: int(r.Position), Argmax: []int32{r.Top1}, Sampler: sampler,
					Logits: func(int) []float32 { return r.Logits },
				})
				if err != nil {
					return err
				}
				j.choice = v.Next
			}
		}
		sampler.Push(out[at])
		rows = append(rows, j)
		return nil
	})
	if err == nil {
		a.forcings.keep(key, rows)
	}
	return rows, err
}

// sampler returns what processes a request's logits, from before its first token.
func (c *Case) sampler(r *Request) (*sample.Sampler, error) {
	if l, ok := c.Lab.(interface {
		Sampler(r *Request) (*sample.Sampler, error)
	}); ok {
		return l.Sampler(r)
	}
	if r.Params.Grammar != "" {
		return nil, errors.New("a request with a grammar, and a laboratory that can't compile it")
	}
	return sample.New(r.Params, r.Prompt), nil
}

// trace is what plain decoding gave.
type trace struct {
	tokens []int32
	hashes []uint64
}

// replay compares with plain decoding of the request alone.
func (a *tokensAudit) replay(co *course) error {
	t, err := a.decode(co.req)
	if err != nil {
		return err
	}
	n := len(t.tokens)
	if !co.req.Whole() || a.c.CutShort {
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

// decode decodes a request plainly, or remembers it.
func (a *tokensAudit) decode(r *Request) (*trace, error) {
	h := sha256.New()
	fmt.Fprint(h, r.Rule, r.Params, r.MaxNew, r.Stop, r.IgnoreStop, r.Whole(), len(r.Received), r.Prompt)
	if r.Until != nil {
		fmt.Fprint(h, r.ID) // no other request ends where it does
	}
	key := string(h.Sum(nil))
	if t := a.plains[key]; t != nil {
		return t, nil
	}
	t := &trace{}
	err := a.c.Lab.Plain(a.ctx, []*Request{r}, engine.RecorderFunc(func(r *engine.Record) error {
		t.tokens = append(t.tokens, r.EmittedIDs...)
		t.hashes = append(t.hashes, r.Hashes[:len(r.EmittedIDs)]...)
		return nil
	}))
	if len(a.plains)*max(1, r.MaxNew) > heldRows {
		clear(a.plains)
	}
	a.plains[key] = t
	return t, err
}
