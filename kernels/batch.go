package kernels

// Batch is the list of spans of one forward pass. All tables are I32 and live
// in backend memory: the host fills them with Queue.Write, or a device loop
// with Queue.Chain and Queue.Shift. Host code sees only the bucket (Spans,
// Rows, LogitRows): the numbers of entries that a recorded pass covers. Entries
// beyond the real work are idle: Len 0 for a span, Span -1 for a row.
//
// Values in an idle row are computed or not as the backend likes; they reach
// no other row.
//
// A span of at most MaxDraft+1 rows may be a tree: rows that share a parent, in
// any order in which parents come before their children. A row sees the
// committed prefix and its own ancestors, at the positions Start..Pos, and
// nothing else of its span; a chain is the tree with one branch. Until the next
// Commit the caches keep row i of a span in the place of position Start+i, so
// a slot needs pages for Start+Len positions, and Commit with a path moves the
// rows of the path to the places of their positions.
type Batch struct {
	// Per span, [Spans, 1].
	Seq    Buf // cache slot
	Start  Buf // position of the span's first row = committed length of the slot
	Len    Buf // rows of the span; 0 is idle
	RowOff Buf // index of its first row; rows of a span are consecutive
	// Per row, [Rows, 1].
	Token  Buf // token id; a valid id even in idle rows
	Pos    Buf // absolute position: Start + depth
	Parent Buf // row index, relative to RowOff, of the row's parent; -1 is the committed prefix. In a chain, depth-1
	Span   Buf // span index; -1 is idle
	// Logit lists the rows whose logits are wanted, [LogitRows, 1]; -1 is idle.
	Logit Buf

	Spans, Rows, LogitRows int // the bucket; fixed in a captured program
	// MaxLen bounds Len over the spans of this bucket.
	MaxLen int
}

// Prefix returns the batch cut to its first spans spans, which must own the
// first rows rows.
func (b Batch) Prefix(spans, rows, logitRows int) Batch {
	b.Seq, b.Start, b.Len, b.RowOff = b.Seq.Top(spans), b.Start.Top(spans), b.Len.Top(spans), b.RowOff.Top(spans)
	b.Token, b.Pos, b.Parent, b.Span = b.Token.Top(rows), b.Pos.Top(rows), b.Parent.Top(rows), b.Span.Top(rows)
	b.Logit = b.Logit.Top(logitRows)
	b.Spans, b.Rows, b.LogitRows = spans, rows, logitRows
	b.MaxLen = min(b.MaxLen, rows)
	return b
}

// NewBatch allocates the tables of a batch of at most spans spans, rows rows
// and logitRows wanted rows.
func NewBatch(be Backend, spans, rows, logitRows int) (Batch, error) {
	b := Batch{Spans: spans, Rows: rows, LogitRows: logitRows, MaxLen: rows}
	for _, t := range []struct {
		dst *Buf
		n   int
	}{
		{&b.Seq, spans}, {&b.Start, spans}, {&b.Len, spans}, {&b.RowOff, spans},
		{&b.Token, rows}, {&b.Pos, rows}, {&b.Parent, rows}, {&b.Span, rows},
		{&b.Logit, logitRows},
	} {
		var err error
		if *t.dst, err = be.Alloc(Tables, I32, t.n, 1); err != nil {
			return Batch{}, err
		}
	}
	return b, nil
}

// Free returns the memory of tables that NewBatch allocated.
func (b Batch) Free(be Backend) {
	for _, t := range []Buf{b.Seq, b.Start, b.Len, b.RowOff, b.Token, b.Pos, b.Parent, b.Span, b.Logit} {
		if !t.None() {
			be.Free(t)
		}
	}
}
