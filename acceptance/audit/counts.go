package audit

import (
	"context"
	"slices"

	"exacta.dev/exacta/engine"
)

// Counts asks whether the numbers of a run add up, and are those of what was
// declared: see the package comment.
func Counts(ctx context.Context, c *Case, progress func(string)) (*Report, error) {
	b := newBook("counts", c)
	w := walk{c: c}
	end := func(co *course) error {
		if co.req == nil {
			return nil
		}
		k := b.check("sum of emitted is what the client received")
		if co.req.Ended && !k.holds(slices.Equal(co.tokens, co.req.Received)) {
			k.blameRequest(co.id, "request %s: records emitted %d tokens, the client received %d", co.id, len(co.tokens), len(co.req.Received))
		}
		return nil
	}
	err := w.run(ctx, func(co *course, r *engine.Record) error {
		record(b, r)
		return nil
	}, end)
	if err != nil {
		return nil, err
	}
	return b.report("rows are k executed + 1"), nil
}

// record checks the identities of one record.
func record(b *book, r *engine.Record) {
	if r.Phase != engine.Decode {
		return
	}
	if k := b.check("accepted is at most k executed"); !k.holds(int32(r.Accepted) <= r.KExecuted) {
		k.blame(r, "accepted %d of %d", r.Accepted, r.KExecuted)
	}
	if k := b.check("rows are k executed + 1"); !k.holds(r.Rows == r.KExecuted+1 && len(r.Hashes) == int(r.Rows)) {
		k.blame(r, "%d rows and %d logits rows for k %d", r.Rows, len(r.Hashes), r.KExecuted)
	}
	if k := b.check("emitted is at most accepted + 1"); !k.holds(int32(r.Emitted()) <= int32(r.Accepted.Length())) {
		k.blame(r, "emitted %d, accepted %d", r.Emitted(), r.Accepted)
	}
}
