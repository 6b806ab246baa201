package honest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/internal/faults/trial"
)

// Memo keeps what honest runs gave, for all labs of one model: runs differ in
// their requests less often than in what goes wrong with them.
type Memo struct {
	mu   sync.Mutex
	runs map[[32]byte][]*engine.Record
	rows map[[32]byte][]audit.Row
	// plain are continuations by prompt.
	plain map[string][]int32
	roof  float64
}

// NewMemo returns an empty memo.
func NewMemo() *Memo {
	return &Memo{runs: map[[32]byte][]*engine.Record{}, rows: map[[32]byte][]audit.Row{}, plain: map[string][]int32{}}
}

// lab is the laboratory of experiments with a memory.
type lab struct {
	*experiments.Lab
	memo *Memo
}

// Lab makes the laboratory in which audits run requests again, with what memo
// remembers. It works on the machine: not while a run does.
func Lab(m *trial.Machine, memo *Memo) (audit.Lab, func() error) {
	l := experiments.NewLab(experiments.LabConfig{
		Model: m.Model, Vocab: m.Entry.Vocab(), Context: trial.Context, Tokens: m.Tokens,
		Drafter: func(r *audit.Request) (engine.Drafter, error) { return m.Drafter(r.Strategy, memo.continuation) },
	})
	return &lab{Lab: l, memo: memo}, l.Close
}

// Plain implements audit.Lab.
func (l *lab) Plain(ctx context.Context, reqs []*audit.Request, rec engine.Recorder) error {
	return l.each(ctx, "plain", reqs, rec, l.Lab.Plain)
}

// Again implements audit.Lab.
func (l *lab) Again(ctx context.Context, reqs []*audit.Request, rec engine.Recorder) error {
	return l.each(ctx, "again", reqs, rec, l.Lab.Again)
}

func (l *lab) each(ctx context.Context, kind string, reqs []*audit.Request, rec engine.Recorder,
	run func(context.Context, []*audit.Request, engine.Recorder) error) error {
	for _, r := range reqs {
		key := keyOf(kind, r)
		got, ok := l.memo.run(key)
		if !ok {
			keep := engine.RecorderFunc(func(r *engine.Record) error {
				c := *r
				got = append(got, &c)
				return nil
			})
			if err := run(ctx, []*audit.Request{r}, keep); err != nil {
				return err
			}
			l.memo.keep(key, got)
		}
		for _, g := range got {
			c := *g
			c.Request = r.ID
			if err := rec.Record(&c); err != nil {
				return err
			}
		}
	}
	return nil
}

// Force implements audit.Lab. Rows with logits are too large to be kept.
func (l *lab) Force(ctx context.Context, ids []int32, first int, logits bool, each func(audit.Row) error) error {
	if logits {
		return l.Lab.Force(ctx, ids, first, logits, each)
	}
	h := sha256.New()
	fmt.Fprint(h, "force ", first, ids)
	key := [32]byte(h.Sum(nil))
	l.memo.mu.Lock()
	rows, ok := l.memo.rows[key]
	l.memo.mu.Unlock()
	if !ok {
		err := l.Lab.Force(ctx, ids, first, false, func(r audit.Row) error {
			rows = append(rows, r)
			return nil
		})
		if err != nil {
			return err
		}
		l.memo.mu.Lock()
		l.memo.rows[key] = rows
		l.memo.mu.Unlock()
	}
	for _, r := range rows {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// Roofline implements audit.Lab: the best of what was ever measured.
func (l *lab) Roofline() float64 {
	l.memo.mu.Lock()
	roof := l.memo.roof
	l.memo.mu.Unlock()
	if roof > 0 {
		return roof
	}
	roof = l.Lab.Roofline()
	l.memo.mu.Lock()
	defer l.memo.mu.Unlock()
	l.memo.roof = max(l.memo.roof, roof)
	return l.memo.roof
}

var _ audit.Lab = (*lab)(nil)

// continuation is what plain decoding gives for a sequence's prompt, as far as
// it was asked for.
func (m *Memo) continuation(seq *engine.Sequence) []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.plain[promptKey(seq.Request().Prompt, seq.Request().MaxNew, seq.Params())]
}

func promptKey(ids []int32, n int, p sample.Params) string { return fmt.Sprint(n, p, ids) }

func (m *Memo) run(key [32]byte) ([]*engine.Record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	got, ok := m.runs[key]
	return got, ok
}

func (m *Memo) keep(key [32]byte, got []*engine.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs[key] = got
}

// keyOf names what a run of a request depends on.
func keyOf(kind string, r *audit.Request) [32]byte {
	h := sha256.New()
	fmt.Fprint(h, kind, r.Prompt, r.MaxNew, r.Params, r.Rule, r.Stop, r.IgnoreStop, r.Ended)
	if kind == "again" {
		fmt.Fprint(h, r.Strategy, r.K, r.Received)
		for p := range r.Received {
			_ = binary.Write(h, binary.LittleEndian, []int32{int32(r.StepLength(len(r.Prompt)-1+p, -1)), int32(r.StepDrafts(len(r.Prompt)-1+p, -1))})
		}
	} else if !r.Ended {
		fmt.Fprint(h, len(r.Received))
	}
	return [32]byte(h.Sum(nil))
}

// Reference returns what plain decoding gives for each request, by its id, and
// lets the memo know it. l is a machine's Lab.
func Reference(ctx context.Context, l audit.Lab, reqs []*audit.Request) (map[string][]int32, error) {
	out := map[string][]int32{}
	var bare []*audit.Request
	for _, r := range reqs {
		c := *r
		c.Drafter, c.Strategy, c.K, c.Simulation, c.Received, c.Ended = "none", "none", 0, "", nil, false
		bare = append(bare, &c)
	}
	err := l.Plain(ctx, bare, engine.RecorderFunc(func(r *engine.Record) error {
		out[r.Request] = append(out[r.Request], r.EmittedIDs...)
		return nil
	}))
	if l, ok := l.(*lab); ok && err == nil {
		l.memo.mu.Lock()
		defer l.memo.mu.Unlock()
		for _, r := range reqs {
			l.memo.plain[promptKey(r.Prompt, r.MaxNew, r.Params)] = out[r.ID]
		}
	}
	return out, err
}

// Stop gives each request a stop token that its run will meet inside an accepted
// draft, where there is such a one, and else anywhere.
func Stop(ctx context.Context, l audit.Lab, reqs []*audit.Request, seed uint64) error {
	inside, anywhere := map[string][]int32{}, map[string][]int32{}
	seen := map[string][]int32{}
	var bare []*audit.Request
	for _, r := range reqs {
		c := *r
		c.Simulation, c.Received, c.Ended = "", nil, false
		bare = append(bare, &c)
	}
	err := l.Again(ctx, bare, engine.RecorderFunc(func(r *engine.Record) error {
		for i, id := range r.EmittedIDs {
			if !slices.Contains(seen[r.Request], id) && len(seen[r.Request]) >= 6 {
				anywhere[r.Request] = append(anywhere[r.Request], id)
				if i < int(r.Accepted) {
					inside[r.Request] = append(inside[r.Request], id)
				}
			}
			seen[r.Request] = append(seen[r.Request], id)
		}
		return nil
	}))
	if err != nil {
		return err
	}
	for i, r := range reqs {
		from := inside[r.ID]
		if len(from) == 0 {
			from = anywhere[r.ID]
		}
		if len(from) > 0 {
			r.Stop = []int32{from[(seed+uint64(i))%uint64(len(from))]}
		}
	}
	return nil
}
