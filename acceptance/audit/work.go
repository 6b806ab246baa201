package audit

import (
	"context"

	"exacta.dev/exacta/engine"
)

// Work asks whether every step did what it claims: see the package comment.
func Work(ctx context.Context, c *Case, progress func(string)) (*Report, error) {
	b := newBook("work", c)
	const name = "multiply-adds of the target's pass"
	if c.Lab == nil {
		b.check(name).skip(c.NoLab)
		return b.report(name), nil
	}
	var spans []SpanCost
	var first *engine.Record
	flush := func() {
		if first == nil {
			return
		}
		want := c.Lab.Cost(spans)
		if k := b.check(name); !k.holds(want.MACs == first.TargetWork.MACs) {
			k.blame(first, "%d multiply-adds, the rows that the records claim need %d", first.TargetWork.MACs, want.MACs)
		}
		spans = spans[:0]
	}
	w := walk{c: c}
	err := w.run(ctx, func(_ *course, r *engine.Record) error {
		if first != nil && (r.Step != first.Step || r.TotalNs != first.TotalNs) {
			flush()
			first = nil
		}
		if first == nil {
			first = r
		}
		spans = append(spans, SpanCost{Start: int(r.Position), Rows: int(r.Rows), LogitRows: len(r.Hashes)})
		return nil
	}, func(*course) error { return nil })
	if err != nil {
		return nil, err
	}
	flush()
	return b.report(name), nil
}
