package acceptance

import (
	"fmt"

	"exacta.dev/exacta/engine"
)

// Trace is what a request emitted: per output position the token and the hash
// of the logits row that it was chosen from.
type Trace struct {
	Tokens []int32
	Hashes []uint64
	origin []origin
}

// origin says where an output position was recorded.
type origin struct {
	step             int64
	position         int32
	batch, batchRows int32
	gap              float32
}

// Add appends what one record emitted. Committed logits rows of a record are its
// first accepted + 1, of which row i gave emitted token i; a prefill record has
// one row, or none. The error says that the record contradicts itself or the
// records of the request before it.
func (t *Trace) Add(r *engine.Record) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("request %s, step %d: %s", r.Request, r.Step, fmt.Sprintf(format, args...))
	}
	n := len(r.EmittedIDs)
	if n > len(r.Hashes) || n > len(r.Gaps) {
		return fail("%d tokens emitted from %d hashed logits rows", n, min(len(r.Hashes), len(r.Gaps)))
	}
	if n == 0 {
		return nil
	}
	first := r.Position + r.Rows // of a prompt's last chunk
	if r.Phase == engine.Decode {
		first = r.Position + 1
	}
	if k := len(t.origin); k > 0 && first != t.origin[k-1].position+1 {
		return fail("emits the token of position %d; the one before was of position %d", first, t.origin[k-1].position)
	}
	for i, id := range r.EmittedIDs {
		want := r.NextID
		if i < int(r.Accepted) && i < len(r.ProposedIDs) {
			want = r.ProposedIDs[i]
		}
		if i > int(r.Accepted) || id != want {
			return fail("emitted %v is not a beginning of %d accepted of the drafts %v and next token %d", r.EmittedIDs, r.Accepted, r.ProposedIDs, r.NextID)
		}
		t.origin = append(t.origin, origin{r.Step, first + int32(i), r.Batch, r.BatchRows, r.Gaps[i]})
	}
	t.Tokens = append(t.Tokens, r.EmittedIDs...)
	t.Hashes = append(t.Hashes, r.Hashes[:n]...)
	return nil
}

// First returns the trace of the first n output positions.
func (t *Trace) First(n int) *Trace {
	return &Trace{Tokens: t.Tokens[:n], Hashes: t.Hashes[:n], origin: t.origin[:n]}
}

// Divergence is the first difference between a run and plain decoding.
type Divergence struct {
	Request   string  `json:"request"`
	Output    int     `json:"output"`   // output position, from 0
	Position  int32   `json:"position"` // position in the sequence, prompt included
	Token     int32   `json:"token"`    // emitted; -1 where the run ended
	Plain     int32   `json:"plain"`    // plain decoding's; -1 where it ended
	SameHash  bool    `json:"same_hash"`
	Gap       float32 `json:"gap"`        // top-1 minus top-2 logit that the run recorded there
	PlainGap  float32 `json:"plain_gap"`  // the same in plain decoding
	Step      int64   `json:"step"`       // engine step of the run
	Batch     int32   `json:"batch"`      // sequences in that step
	BatchRows int32   `json:"batch_rows"` // rows in that step
}

// String says it in a sentence.
func (d *Divergence) String() string {
	what := fmt.Sprintf("token %d, plain decoding has %d", d.Token, d.Plain)
	switch {
	case d.Token < 0:
		what = fmt.Sprintf("nothing, plain decoding has token %d", d.Plain)
	case d.Plain < 0:
		what = fmt.Sprintf("token %d, plain decoding has nothing", d.Token)
	case d.Token == d.Plain:
		what = fmt.Sprintf("token %d agrees but its logits do not", d.Token)
	}
	return fmt.Sprintf("request %s, output %d (position %d): %s (gap %.4g, step %d, %d sequences in the batch)",
		d.Request, d.Output, d.Position, what, d.Gap, d.Step, d.Batch)
}

// Compare returns the first difference between what a request emitted and plain
// decoding, in token or in the hash of the logits row, or nil.
func Compare(request string, got, plain *Trace) *Divergence {
	n := min(len(got.Tokens), len(plain.Tokens))
	for i := range n {
		if got.Tokens[i] != plain.Tokens[i] || got.Hashes[i] != plain.Hashes[i] {
			return got.divergence(request, i, plain)
		}
	}
	if len(got.Tokens) != len(plain.Tokens) {
		return got.divergence(request, n, plain)
	}
	return nil
}

func (t *Trace) divergence(request string, i int, plain *Trace) *Divergence {
	d := &Divergence{Request: request, Output: i, Token: -1, Plain: -1}
	if i < len(plain.Tokens) {
		o := plain.origin[i]
		d.Plain, d.PlainGap, d.Position = plain.Tokens[i], o.gap, o.position
	}
	if i < len(t.Tokens) {
		o := t.origin[i]
		d.Token, d.Gap, d.Position = t.Tokens[i], o.gap, o.position
		d.Step, d.Batch, d.BatchRows = o.step, o.batch, o.batchRows
	}
	d.SameHash = d.Token >= 0 && d.Plain >= 0 && t.Hashes[i] == plain.Hashes[i]
	return d
}

// Collector rebuilds the traces of all requests of a stream of records.
type Collector struct {
	Order  []string
	Traces map[string]*Trace
}

// Add takes one record.
func (c *Collector) Add(r *engine.Record) error {
	if c.Traces == nil {
		c.Traces = map[string]*Trace{}
	}
	t := c.Traces[r.Request]
	if t == nil {
		t = &Trace{}
		c.Traces[r.Request] = t
		c.Order = append(c.Order, r.Request)
	}
	return t.Add(r)
}
