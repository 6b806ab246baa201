package engine

import (
	"fmt"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// follow lets each device drafter run its own layers over its spans of the batch.
func (e *Engine) follow(b kernels.Batch) error {
	for _, d := range e.drafters {
		if d.device == nil {
			continue
		}
		spans, rows := e.covers(d)
		if spans == 0 {
			continue
		}
		from := e.cfg.Now()
		view := e.behind(b, spans, rows)
		e.only(d, &view)
		if !d.device.Follow(e.q, &view) {
			continue
		}
		// Run it now, so that its time is the drafter's.
		if err := e.q.Err(); err != nil {
			return err
		}
		d.ns += e.cfg.Now() - from
	}
	return nil
}

// idle are tables of a batch in which the spans of other drafters are idle.
type idle struct {
	length, span         kernels.Buf // Len, Span
	lengthHost, spanHost []int32
}

// only makes the spans of a batch that are not a drafter's idle.
func (e *Engine) only(d *drafterEntry, b *kernels.Batch) {
	others := false
	d.lengthHost, d.spanHost = d.lengthHost[:0], d.spanHost[:0]
	for i := range b.Spans {
		it := &e.w.items[i]
		n, span := int32(len(it.tokens)), int32(i)
		if it.seq.drafter != d {
			others, n, span = true, 0, -1
		}
		d.lengthHost = append(d.lengthHost, n)
		for range it.tokens {
			d.spanHost = append(d.spanHost, span)
		}
	}
	if !others {
		return
	}
	b.Len, b.Span = d.idle.length.Top(b.Spans), d.idle.span.Top(b.Rows)
	e.q.Write(b.Len, int32Bytes(d.lengthHost))
	e.q.Write(b.Span, int32Bytes(d.spanHost))
}

// covers returns the number of spans up to a drafter's last one, and of their rows.
func (e *Engine) covers(d *drafterEntry) (spans, rows int) {
	for i := range e.w.items {
		if it := &e.w.items[i]; it.seq.drafter == d {
			spans, rows = i+1, it.rowOff+len(it.tokens)
		}
	}
	return spans, rows
}

// behind cuts a batch behind a span.
func (e *Engine) behind(b kernels.Batch, spans, rows int) kernels.Batch {
	maxLen := b.MaxLen
	b = b.Prefix(spans, rows, min(b.LogitRows, int(b.Logit.Rows)))
	b.MaxLen = maxLen
	return b
}

// inform tells each drafter what its sequences committed.
func (e *Engine) inform(b kernels.Batch, out model.Output) error {
	for _, d := range e.drafters {
		if err := e.informDrafter(d, b, out); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) informDrafter(d *drafterEntry, b kernels.Batch, out model.Output) error {
	s := &e.w.stepSpan
	*s = Step{Queue: e.q, Spans: s.Spans[:0]}
	d.count, d.fromHost = 0, d.fromHost[:0]
	spans, rows := 0, 0
	for i := range e.w.items {
		it := &e.w.items[i]
		if it.seq.drafter != d {
			continue
		}
		if d.device != nil && it.putOff() {
			d.put(it)
			continue
		}
		spans, rows = i+1, it.rowOff+len(it.tokens)
		s.Spans = append(s.Spans, Span{
			Seq: it.seq, Start: it.plan.Start, RowOff: it.rowOff, Tokens: it.spanTokens(), Kept: it.kept, Next: it.next,
		})
	}
	d.store(e.q, out)
	if len(s.Spans) == 0 {
		return nil
	}
	from := e.cfg.Now()
	if d.device != nil {
		e.deviceView(d, s, b, out, spans, rows)
	}
	if err := d.Committed(s); err != nil {
		for i := range e.w.items {
			if it := &e.w.items[i]; it.seq.drafter == d {
				it.err, it.finish = fmt.Errorf("request %s: drafter %s: %w", it.seq.req.ID, d.name, err), FinishError
			}
		}
	}
	if d.device != nil {
		// Run it now, so that its time is the drafter's.
		if err := e.q.Err(); err != nil {
			return err
		}
	}
	d.ns += e.cfg.Now() - from
	return nil
}

// deviceView gives a device drafter the batch cut behind the last span that it is
// told of, with other drafters' spans masked.
func (e *Engine) deviceView(d *drafterEntry, s *Step, b kernels.Batch, out model.Output, spans, rows int) {
	s.Batch, s.Hidden = e.behind(b, spans, rows), out.Hidden.Top(rows)
	if d.tap >= 0 {
		s.Taps = out.Taps[d.tap].Top(rows)
	}
	s.Kept, s.Next = e.t.kept.Top(spans), e.t.next.Top(spans)
	if len(s.Spans) == spans {
		return
	}
	masked := e.t.keptHost[:0]
	for i := range spans {
		it := &e.w.items[i]
		if it.seq.drafter == d {
			masked = append(masked, int32(it.kept))
		} else {
			masked = append(masked, 0)
		}
	}
	s.Kept = d.kept.Top(spans)
	e.q.Write(s.Kept, int32Bytes(masked))
}
