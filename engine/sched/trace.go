package sched

import (
	"fmt"
	"io"
	"strings"
)

// Tracer is a core that writes what it is told and what it plans as a text
// trace, which Replay can check. The format is a line per event, and under it,
// indented by a tab, what belongs to it:
//
//	config slots=2 pages=8 slot-pages=4 rows=64 chunk=32 spans=2 lookahead=0 prefix=false recurrent=false snapshots=0 policy=fcfs share=50 expect=256 sessions=64
//	submit 7 max=60 k=3 fixed=false priority=0 session="" space="" prompt=40*0
//	plan
//		step 0: running 1, waiting 0, rows 0+32, pages 7 free 0 idle
//		reset 7 slot=0
//		pages 7 slot=0 first=0 pages=0
//		prefill 7 slot=0 [0,32)
//	commit
//		7 kept=32 tokens= done=false
//	drafts 7 k=1
//	cancel 7
//
// A list of numbers is separated by commas; a..b counts up, n*v repeats v.
// Events that the core refused are not written. Prompts are: the trace of
// private requests is private.
type Tracer struct {
	*Core
	w   io.Writer
	err error
}

// NewTracer returns a new core that writes its trace to w.
func NewTracer(cfg Config, w io.Writer) (*Tracer, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	t := &Tracer{Core: c, w: w}
	t.write(formatConfig(c.Config()), "")
	return t, nil
}

// Err returns the first error of writing the trace. Nothing is written after
// it, and scheduling goes on.
func (t *Tracer) Err() error { return t.err }

// Submit is Core.Submit.
func (t *Tracer) Submit(r Request) error {
	err := t.Core.Submit(r)
	if err == nil {
		t.write(formatRequest(r), "")
	}
	return err
}

// Cancel is Core.Cancel.
func (t *Tracer) Cancel(id int64) bool {
	ok := t.Core.Cancel(id)
	if ok {
		t.write(fmt.Sprintf("cancel %d", id), "")
	}
	return ok
}

// Drafts is Core.Drafts.
func (t *Tracer) Drafts(id int64, k int) error {
	err := t.Core.Drafts(id, k)
	if err == nil {
		t.write(fmt.Sprintf("drafts %d k=%d", id, k), "")
	}
	return err
}

// Plan is Core.Plan.
func (t *Tracer) Plan() Plan {
	p := t.Core.Plan()
	t.write("plan", p.String())
	return p
}

// Commit is Core.Commit.
func (t *Tracer) Commit(results []Result) error {
	err := t.Core.Commit(results)
	if err == nil {
		var b strings.Builder
		for _, r := range results {
			fmt.Fprintf(&b, "%d kept=%d tokens=%s done=%v\n", r.ID, r.Kept, formatTokens(r.Tokens), r.Done)
		}
		t.write("commit", b.String())
	}
	return err
}

func (t *Tracer) write(event, body string) {
	if t.err != nil {
		return
	}
	text := event + "\n"
	for line := range strings.Lines(body) {
		text += "\t" + line
	}
	if _, err := io.WriteString(t.w, text); err != nil {
		t.err = fmt.Errorf("scheduler trace: %w", err)
	}
}

func formatConfig(c Config) string {
	return fmt.Sprintf("config slots=%d pages=%d slot-pages=%d rows=%d chunk=%d spans=%d lookahead=%d prefix=%v recurrent=%v snapshots=%d policy=%s share=%d expect=%d sessions=%d",
		c.Slots, c.Pages, c.SlotPages, c.MaxBatchTokens, c.Chunk, c.MaxSpans, c.Lookahead,
		c.PrefixCache, c.Recurrent, c.Snapshots, c.Policy, c.PrefillShare, c.Expect, c.Sessions)
}

func formatRequest(r Request) string {
	return fmt.Sprintf("submit %d max=%d k=%d fixed=%v priority=%d session=%q space=%q prompt=%s",
		r.ID, r.MaxLen, r.K, r.Fixed, r.Priority, r.Session, r.Space, formatTokens(r.Prompt))
}
