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
	step  int64
	batch int32
	gap   float32
}

// Add appends what one record emitted: emitted token i was chosen from logits
// row i of the record.
func (t *Trace) Add(r *engine.Record) error {
	n := len(r.EmittedIDs)
	if n > len(r.Hashes) || n > len(r.Gaps) {
		return fmt.Errorf("request %s, step %d: %d tokens emitted from %d hashed logits rows", r.Request, r.Step, n, min(len(r.Hashes), len(r.Gaps)))
	}
	t.Tokens = append(t.Tokens, r.EmittedIDs...)
	t.Hashes = append(t.Hashes, r.Hashes[:n]...)
	for i := range n {
		t.origin = append(t.origin, origin{r.Step, r.Batch, r.Gaps[i]})
	}
	return nil
}

// Divergence is the first difference between a run and plain decoding.
type Divergence struct {
	Request  string  `json:"request"`
	Output   int     `json:"output"` // output position, from 0
	Token    int32   `json:"token"`  // emitted; -1 where the run ended
	Plain    int32   `json:"plain"`  // plain decoding's; -1 where it ended
	SameHash bool    `json:"same_hash"`
	Gap      float32 `json:"gap"`   // top-1 minus top-2 logit that the run recorded there
	Step     int64   `json:"step"`  // engine step of the run
	Batch    int32   `json:"batch"` // sequences in that step
}

// String says it in a sentence.
func (d *Divergence) String() string {
	what := fmt.Sprintf("token %d, plain decoding has %d", d.Token, d.Plain)
	if d.Token == d.Plain {
		what = fmt.Sprintf("token %d agrees but its logits do not", d.Token)
	}
	return fmt.Sprintf("request %s, output %d: %s (gap %.4g, step %d, %d sequences in the batch)", d.Request, d.Output, what, d.Gap, d.Step, d.Batch)
}

// Compare returns the first difference between what a request emitted and plain
// decoding, or nil.
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
	if i < len(t.Tokens) {
		o := t.origin[i]
		d.Token, d.Gap, d.Step, d.Batch = t.Tokens[i], o.gap, o.step, o.batch
	}
	if i < len(plain.Tokens) {
		d.Plain = plain.Tokens[i]
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
