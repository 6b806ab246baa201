package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Phases of a request. Figures of the window are over what happens in it; those
// of the whole are over all requests but warm-up.
const (
	// Warmup prepares the target and counts nowhere.
	Warmup = "warmup"
	// Measured counts.
	Measured = "measured"
)

// Row is one request as its client saw it: a line of requests.jsonl. Times are
// nanoseconds since the load began, of one monotonic clock; -1 is never.
type Row struct {
	// Request, Session, Class, Agent and Turn are those of the workload.
	Request string `json:"request"`
	Session string `json:"session"`
	Class   string `json:"class,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Turn    int    `json:"turn,omitempty"`
	// Lane is the lane of a closed loop that the session ran in, from 0.
	Lane  int    `json:"lane"`
	Phase string `json:"phase"`
	// Sched is when the request was to be sent, Sent when it was, First when
	// the first content came, Last when the last did, End when the stream was
	// closed.
	Sched int64 `json:"sched_ns"`
	Sent  int64 `json:"sent_ns"`
	First int64 `json:"first_ns"`
	Last  int64 `json:"last_ns"`
	End   int64 `json:"end_ns"`
	// Prompt, Output and Cached are tokens: by the server's usage, or else the
	// prompt's ids and the ids that came. Cached is -1 where it isn't told.
	Prompt int `json:"prompt_tokens"`
	Output int `json:"output_tokens"`
	Cached int `json:"cached_tokens"`
	// Gaps are the times between chunks with content, in nanoseconds, and
	// Tokens the tokens of each chunk, one more than there are gaps; nil where
	// the server doesn't say how many tokens a chunk has.
	Gaps   []int64 `json:"gaps_ns,omitempty"`
	Tokens []int   `json:"tokens,omitempty"`
	// Finish is the server's reason, ServerID its name of the request, by
	// which records have it, and OutputHash the SHA-256 of the output: of its
	// token ids (little-endian, 4 bytes each) if they came, else of its text.
	Finish     string `json:"finish,omitempty"`
	ServerID   string `json:"server_id,omitempty"`
	OutputHash string `json:"output_sha256,omitempty"`
	// Drafted and Accepted are what the server says that it drafted and
	// accepted in this request, -1 where it doesn't: they are shown as its
	// claim, and never enter a figure.
	Drafted  int `json:"claimed_drafted"`
	Accepted int `json:"claimed_accepted"`
	// Error says why the request failed; such rows count as failed and enter no
	// other figure.
	Error string `json:"error,omitempty"`
}

// OK reports whether the request was answered.
func (r *Row) OK() bool { return r.Error == "" }

// Arrivals returns the time of each chunk with content.
func (r *Row) Arrivals() []int64 {
	if r.First < 0 {
		return nil
	}
	out := make([]int64, 1, len(r.Gaps)+1)
	out[0] = r.First
	for _, g := range r.Gaps {
		out = append(out, out[len(out)-1]+g)
	}
	return out
}

// ms turns nanoseconds into milliseconds.
func ms(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }

// check says what can't be true of a row.
func (r *Row) check() error {
	switch {
	case r.Request == "" || r.Session == "":
		return errors.New("request or session is empty")
	case r.Phase != Warmup && r.Phase != Measured:
		return fmt.Errorf("phase is %q; it is %s or %s", r.Phase, Warmup, Measured)
	case !r.OK():
		return nil
	case r.Sent < 0 || r.First < r.Sent || r.Last < r.First || r.End < r.Last:
		return fmt.Errorf("times are not in order: sent %d, first %d, last %d, end %d ns", r.Sent, r.First, r.Last, r.End)
	case r.Output < 1 || r.Prompt < 0:
		return fmt.Errorf("%d prompt and %d output tokens", r.Prompt, r.Output)
	case r.Tokens != nil && len(r.Tokens) != len(r.Gaps)+1:
		return fmt.Errorf("tokens of %d chunks with %d gaps between chunks", len(r.Tokens), len(r.Gaps))
	}
	at := r.First
	for _, g := range r.Gaps {
		if g < 0 || g > r.Last-at {
			return fmt.Errorf("a gap of %d ns goes beyond the last content at %d ns", g, r.Last)
		}
		at += g
	}
	sum := 0
	for _, n := range r.Tokens {
		if n < 0 || n > r.Output-sum {
			return fmt.Errorf("chunks have more tokens than the output's %d", r.Output)
		}
		sum += n
	}
	if at != r.Last {
		return fmt.Errorf("gaps end at %d ns, the last content came at %d ns", at, r.Last)
	}
	return nil
}

// WriteRows writes rows as JSON lines.
func WriteRows(w io.Writer, rows []Row) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	for i := range rows {
		if err := enc.Encode(&rows[i]); err != nil {
			return fmt.Errorf("rows: %w", err)
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("rows: %w", err)
	}
	return nil
}

// maxRow bounds a line of rows, in bytes.
const maxRow = 16 << 20

// ReadRows reads rows and checks each; errors name file and line.
func ReadRows(name string, r io.Reader) ([]Row, error) {
	var rows []Row
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxRow)
	for n := 1; in.Scan(); n++ {
		row := Row{Cached: -1, Drafted: -1, Accepted: -1}
		err := json.Unmarshal(in.Bytes(), &row)
		if err == nil {
			err = row.check()
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		rows = append(rows, row)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rows, nil
}

// ReadRowsFile is ReadRows of a file.
func ReadRowsFile(path string) ([]Row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	defer f.Close()
	return ReadRows(path, f)
}
