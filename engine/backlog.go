package engine

import (
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// backlogRows is how many rows of a sequence a device drafter may be behind.
const backlogRows = 16

// backlog holds the hidden states of decode steps without drafts that a device
// drafter has not been told of yet: a pass of its own over each such row would
// cost a sequence that does not draft as much as one that does. The drafter is
// told of many at once, before it is asked for drafts, before a snapshot, and
// before a loop, so that it never sees the difference. Sequence.owed counts the
// rows of a sequence, which are its last ones.
type backlog struct {
	rows, taps      kernels.Buf // BF16 [slots*backlogRows, hidden] and of the taps
	hidden, tapped  kernels.Buf // those of one telling, in order
	from            kernels.Buf // rows of it, I32
	fromHost        []int32
	list, telling   []*Sequence
	most            int // rows of a sequence that are put off
	firstRow, count int // rows of the present step that are
}

// open allocates the backlog of a drafter whose taps are tapWidth wide, for
// tellings of at most rows rows.
func (l *backlog) open(be kernels.Backend, slots, rows, hidden, tapWidth int) error {
	l.most = min(rows, backlogRows)
	rows = min(rows, slots*backlogRows)
	for _, a := range []struct {
		dst        *kernels.Buf
		purpose    kernels.Purpose
		kind       kernels.Kind
		rows, cols int
	}{
		{&l.rows, kernels.State, kernels.BF16, slots * backlogRows, hidden},
		{&l.taps, kernels.State, kernels.BF16, slots * backlogRows, tapWidth},
		{&l.hidden, kernels.Activations, kernels.BF16, rows, hidden},
		{&l.tapped, kernels.Activations, kernels.BF16, rows, tapWidth},
		{&l.from, kernels.Tables, kernels.I32, max(rows, slots), 1},
	} {
		if a.cols == 0 {
			continue
		}
		var err error
		if *a.dst, err = be.Alloc(a.purpose, a.kind, a.rows, a.cols); err != nil {
			return err
		}
	}
	return nil
}

func (l *backlog) bufs() []kernels.Buf {
	return []kernels.Buf{l.rows, l.taps, l.hidden, l.tapped, l.from}
}

// putOff says whether a device drafter hears of the item later: one row of a
// sequence that planned no drafts. Such items stand behind its others.
func (it *item) putOff() bool { return it.decodes() && it.plan.K == 0 }

// store records that the rows of this step which are put off are kept.
func (d *drafterEntry) store(q kernels.Queue, out model.Output) {
	l := &d.backlog
	if l.count == 0 {
		return
	}
	at := l.from.Top(l.count)
	q.Write(at, int32Bytes(l.fromHost))
	q.Scatter(l.rows, out.Hidden.Slice(l.firstRow, l.firstRow+l.count), at)
	if d.tap >= 0 {
		q.Scatter(l.taps, out.Taps[d.tap].Slice(l.firstRow, l.firstRow+l.count), at)
	}
}

// put notes that the item's only row is put off.
func (l *backlog) put(it *item) {
	if l.count == 0 {
		l.firstRow = it.rowOff
	}
	l.count++
	l.fromHost = append(l.fromHost, int32(it.seq.slot*backlogRows+it.seq.owed))
	it.seq.owed++
}

// due lists the sequences of the step of which the drafter must be told before it
// proposes: those that it is asked for, and those that it is too far behind with.
func (e *Engine) due(d *drafterEntry) []*Sequence {
	l := &d.backlog
	l.list = l.list[:0]
	for i := range e.w.items {
		it := &e.w.items[i]
		if it.seq.drafter == d && it.seq.owed > 0 && (it.asks(d) || it.seq.owed == l.most) {
			l.list = append(l.list, it.seq)
		}
	}
	return l.list
}

// settle tells the drafter what it has not been told of the sequences.
func (e *Engine) settle(d *drafterEntry, seqs []*Sequence) error {
	l := &d.backlog
	for i := 0; i < len(seqs); {
		l.telling, l.fromHost = l.telling[:0], l.fromHost[:0]
		for ; i < len(seqs) && len(l.fromHost)+seqs[i].owed <= int(l.hidden.Rows); i++ {
			for j := range seqs[i].owed {
				l.fromHost = append(l.fromHost, int32(seqs[i].slot*backlogRows+j))
			}
			l.telling = append(l.telling, seqs[i])
		}
		if len(l.fromHost) == 0 {
			continue
		}
		if err := e.tell(d); err != nil {
			return err
		}
	}
	return nil
}

// tell tells the drafter what it has not been told of the sequences in
// backlog.telling.
func (e *Engine) tell(d *drafterEntry) error {
	l, t, q := &d.backlog, e.t, e.q
	s := &e.w.stepSpan
	*s = Step{Queue: q, Spans: s.Spans[:0]}
	t.reset()
	for _, seq := range l.telling {
		if seq.owed == 0 {
			continue
		}
		span := Span{Seq: seq, Start: seq.length - seq.owed, RowOff: len(t.token), Kept: seq.owed, Next: seq.tokens[seq.length]}
		span.Tokens = seq.tokens[span.Start:seq.length]
		t.add(seq.slot, span.Start, span.Tokens, func(i int) int { return i - 1 }, 0, 0)
		t.keptHost, t.nextHost = append(t.keptHost, int32(span.Kept)), append(t.nextHost, span.Next)
		s.Spans = append(s.Spans, span)
		seq.owed = 0
	}
	s.Batch = t.write(q)
	rows := s.Batch.Rows
	s.Kept, s.Next = t.decide(q)
	q.Write(l.from.Top(rows), int32Bytes(l.fromHost))
	s.Hidden = l.hidden.Top(rows)
	q.Gather(s.Hidden, l.rows, l.from.Top(rows))
	if d.tap >= 0 {
		s.Taps = l.tapped.Top(rows)
		q.Gather(s.Taps, l.taps, l.from.Top(rows))
	}
	return d.Committed(s)
}
