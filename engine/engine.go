package engine

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/engine/sched"
	"exacta.dev/exacta/kernels"
)

// Engine runs sequences through one model. See the package comment.
type Engine struct {
	cfg      Config
	m        *model.Model
	be       kernels.Backend
	q        kernels.Queue
	caches   kernels.Caches
	core     *sched.Core
	drafters []*drafterEntry
	rule     Verifier
	recorder Recorder
	listener Listener

	t         *tables
	c         compacted
	stats     kernels.Buf
	statsHost []int32
	logits    []float32 // rows read for rules that need them

	workspace *sample.Workspace           // of all samplers: they work one at a time
	grammars  map[string]*grammar.Grammar // compiled, by pattern

	seqs   map[int64]*Sequence
	nextID int64
	step   int64
	failed error
	loop   *loop // the one that decodes now
	loops  map[*drafterEntry]*loop
	// cramped are drafters for whose loops there was no memory.
	cramped map[*drafterEntry]bool
	extra   []kernels.Buf // of loops and of trees
	w       work
	twins   twins
	passes  map[passKey]*pass
}

// drafterEntry is one of the engine's drafters with what a step needs of it.
type drafterEntry struct {
	Drafter
	name   string
	device DeviceDrafter // nil for host drafters
	tap    int           // index of its tap; -1 for none
	order  int
	kept   kernels.Buf // kept table with other drafters' spans masked
	idle

	backlog
	asks []*Ask
	ns   int64
}

// Listener is told what happens; any field may be nil.
type Listener struct {
	// Emitted is called for each record of a sequence, after the recorder,
	// before the next step.
	Emitted func(seq *Sequence, rec *Record)
	// Finished is called once per sequence, after its last record.
	Finished func(seq *Sequence)
}

// New makes an engine around a loaded model. drafters are by the names that
// requests use; rule is the default acceptance rule. recorder may be nil.
func New(m *model.Model, cfg Config, drafters map[string]Drafter, rule Verifier, recorder Recorder, l Listener) (*Engine, error) {
	stateful := m.Recurrent()
	for _, d := range drafters {
		if _, ok := d.(DeviceDrafter); ok {
			stateful = true
		}
	}
	if err := cfg.fill(m.MaxTokens, m.Config.VocabSize, stateful); err != nil {
		return nil, err
	}
	if rule == nil {
		return nil, errors.New("engine: no default acceptance rule")
	}
	if cfg.Now == nil {
		start := time.Now()
		cfg.Now = func() int64 { return int64(time.Since(start)) }
	}
	e := &Engine{cfg: cfg, m: m, be: m.Backend(), q: m.Backend().Queue(), rule: rule, recorder: recorder, listener: l, workspace: sample.NewWorkspace(), seqs: map[int64]*Sequence{}}
	e.q = cfg.Interposer.Queue(e.q)
	e.recorder, e.listener = cfg.quiet(recorder, l)
	for name, d := range drafters {
		if d == nil {
			return nil, fmt.Errorf("engine: drafter %q is nil; a request without a drafter decodes plainly", name)
		}
		entry := &drafterEntry{Drafter: d, name: name}
		entry.device, _ = d.(DeviceDrafter)
		e.drafters = append(e.drafters, entry)
	}
	// Device drafters first: their spans come first in every batch.
	slices.SortFunc(e.drafters, func(a, b *drafterEntry) int {
		if (a.device != nil) != (b.device != nil) {
			if a.device != nil {
				return -1
			}
			return 1
		}
		if a.name < b.name {
			return -1
		}
		return 1
	})
	if e.graphs() && cfg.Timeline == nil {
		e.passes = map[passKey]*pass{}
	}
	e.loops, e.cramped = map[*drafterEntry]*loop{}, map[*drafterEntry]bool{}
	if _, ok := e.be.(kernels.Looper); !ok || !e.graphs() {
		e.cfg.Loop = false
	}
	if err := e.allocate(); err != nil {
		return nil, errors.Join(fmt.Errorf("engine: %w", err), e.Close())
	}
	return e, nil
}

// allocate makes caches, activations and the scheduler.
func (e *Engine) allocate() error {
	cfg := e.cfg
	spec := kernels.CacheSpec{
		Layers: e.m.Layers(), Slots: cfg.MaxSequences, Pages: cfg.Pages, SlotPages: cfg.slotPages(),
		MaxDraft: cfg.MaxDraft, Snapshots: cfg.Snapshots,
	}
	lookahead := 0
	firsts := map[*drafterEntry]int{}
	var taps [][]int
	for i, d := range e.drafters {
		d.order, d.tap = i, -1
		if d.device != nil {
			if layers := d.device.TapLayers(); len(layers) > 0 {
				d.tap = len(taps)
				taps = append(taps, layers)
			}
			firsts[d] = len(spec.Layers)
			spec.Layers = append(spec.Layers, d.device.Layers()...)
			lookahead = 1
		}
	}
	var err error
	if e.caches, err = e.be.Caches(spec); err != nil {
		return err
	}
	for _, layers := range taps {
		e.c.widths = append(e.c.widths, len(layers)*e.m.Config.HiddenSize)
	}
	rows := max(cfg.BatchTokens, cfg.MaxDraft+1)
	logitRows := min(rows, cfg.MaxSequences*(cfg.MaxDraft+1))
	if cfg.PromptLogits {
		logitRows = rows
	}
	if err := e.m.Reserve(rows, logitRows, taps...); err != nil {
		return err
	}
	if e.t, err = newTables(e.be, cfg.MaxSequences, rows, logitRows); err != nil {
		return err
	}
	if e.stats, err = e.be.Alloc(kernels.Tables, kernels.I32, logitRows, kernels.StatCols); err != nil {
		return err
	}
	e.statsHost = make([]int32, logitRows*kernels.StatCols)
	for _, d := range e.drafters {
		if d.device == nil {
			continue
		}
		for _, t := range []struct {
			dst *kernels.Buf
			n   int
		}{{&d.kept, cfg.MaxSequences}, {&d.idle.length, cfg.MaxSequences}, {&d.idle.span, rows}} {
			if *t.dst, err = e.be.Alloc(kernels.Tables, kernels.I32, t.n, 1); err != nil {
				return err
			}
		}
		width := 0
		if d.tap >= 0 {
			width = len(taps[d.tap]) * e.m.Config.HiddenSize
		}
		if err := d.backlog.open(e.be, cfg.MaxSequences, rows, e.m.Config.HiddenSize, width); err != nil {
			return err
		}
		if err := d.device.Attach(e.caches, firsts[d], cfg.MaxSequences, rows); err != nil {
			return err
		}
	}
	e.core, err = sched.New(sched.Config{
		Slots: cfg.MaxSequences, Pages: cfg.Pages, SlotPages: cfg.slotPages(), MaxBatchTokens: cfg.BatchTokens,
		Chunk: cfg.Chunk, MaxSpans: cfg.MaxSequences, Lookahead: lookahead,
		Policy: cfg.Policy, PrefillShare: cfg.PrefillShare, Expect: cfg.ExpectedOutput, Sessions: cfg.Sessions,
		PrefixCache: cfg.PrefixCache, Recurrent: e.m.Recurrent() || lookahead > 0, Snapshots: cfg.Snapshots,
	})
	return err
}

// Model returns the engine's model.
func (e *Engine) Model() *model.Model { return e.m }

// Config returns the configuration with defaults filled in.
func (e *Engine) Config() Config { return e.cfg }

// Submit takes a request in. An error names what is wrong with it; the engine is
// unchanged.
func (e *Engine) Submit(req Request) (*Sequence, error) {
	if e.failed != nil {
		return nil, fmt.Errorf("request %s: %w", req.ID, e.failed)
	}
	seq, err := e.sequence(req)
	if err == nil && seq.branches() {
		err = e.reserveCompact()
	}
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", req.ID, err)
	}
	err = e.core.Submit(sched.Request{
		ID: seq.id, Prompt: e.cfg.Interposer.Keys(seq, req.Prompt), MaxLen: len(req.Prompt) + min(req.MaxNew, e.cfg.MaxTokens-len(req.Prompt)), K: seq.k(),
		Fixed: (req.IgnoreStop || len(req.Stop) == 0) && req.Until == nil && seq.req.Grammar == nil && req.Params.Grammar == "",
		Space: seq.space(), Session: req.Session, Priority: req.Priority,
	})
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", req.ID, err)
	}
	e.seqs[seq.id] = seq
	e.nextID++
	return seq, nil
}

// sequence checks a request against the engine.
func (e *Engine) sequence(req Request) (*Sequence, error) {
	switch n := len(req.Prompt); {
	case n == 0:
		return nil, errors.New("the prompt is empty; it needs at least one token")
	case n >= e.cfg.MaxTokens:
		return nil, fmt.Errorf("the prompt has %d tokens; the context of %d leaves room for at most %d and one to generate", n, e.cfg.MaxTokens, e.cfg.MaxTokens-1)
	case req.MaxNew < 1:
		return nil, fmt.Errorf("max_new is %d; it must be at least 1", req.MaxNew)
	case req.K < 0 || req.K > e.cfg.MaxDraft:
		return nil, fmt.Errorf("k is %d; it must be 0..%d (max_draft)", req.K, e.cfg.MaxDraft)
	}
	for i, id := range req.Prompt {
		if id < 0 || int(id) >= e.m.Config.VocabSize {
			return nil, fmt.Errorf("prompt token %d is id %d; the model's vocabulary is 0..%d", i, id, e.m.Config.VocabSize-1)
		}
	}
	params := req.Params
	if req.Grammar != nil {
		params.Grammar = "" // which compiled
	}
	if err := params.ValidateFor(e.cfg.Vocab); err != nil {
		return nil, err
	}
	rule := req.Rule
	if rule == nil {
		rule = e.rule
	}
	if l, ok := rule.(limited); ok {
		if err := l.Serves(req.Params); err != nil {
			return nil, err
		}
	}
	seq := &Sequence{id: e.nextID, req: req, slot: -1, tokens: slices.Clone(req.Prompt), rule: rule}
	if req.Drafter != "" {
		i := slices.IndexFunc(e.drafters, func(d *drafterEntry) bool { return d.name == req.Drafter })
		if i < 0 {
			return nil, fmt.Errorf("drafter %q is not one of the engine's: %v", req.Drafter, e.DrafterNames())
		}
		seq.drafter = e.drafters[i]
	}
	seq.sampler = sample.New(req.Params, req.Prompt)
	seq.sampler.Use(e.workspace)
	return seq, e.constrain(seq)
}

// maxGrammars bounds the compiled grammars that an engine keeps.
const maxGrammars = 64

// constrain gives a sequence's sampler the compiled grammar of its request.
func (e *Engine) constrain(seq *Sequence) error {
	pattern := seq.req.Params.Grammar
	if g := seq.req.Grammar; g != nil {
		if g.Pattern() != pattern {
			return fmt.Errorf("the compiled grammar is of pattern %q, the request's is %q", g.Pattern(), pattern)
		}
		seq.sampler.Constrain(g)
		return nil
	}
	if pattern == "" {
		return nil
	}
	g := e.grammars[pattern]
	if g == nil {
		if e.cfg.Tokens == nil {
			return errors.New("a grammar needs a tokenizer, and the model has none")
		}
		var err error
		if g, err = e.cfg.Tokens.Compile(pattern); err != nil {
			return err
		}
		if e.grammars == nil || len(e.grammars) >= maxGrammars {
			e.grammars = map[string]*grammar.Grammar{}
		}
		e.grammars[pattern] = g
	}
	seq.sampler.Constrain(g)
	return nil
}

// limited is a rule that can't serve every request; its error says which can.
type limited interface {
	Serves(p sample.Params) error
}

// DrafterNames lists the engine's drafters.
func (e *Engine) DrafterNames() []string {
	names := make([]string, len(e.drafters))
	for i, d := range e.drafters {
		names[i] = d.name
	}
	slices.Sort(names)
	return names
}

// Cancel ends a sequence before its next step.
func (e *Engine) Cancel(seq *Sequence) {
	if seq.finish == "" {
		e.core.Cancel(seq.id)
		e.end(seq, FinishCancel, nil)
	}
}

// end finishes a sequence that the scheduler has let go, or is about to, once.
func (e *Engine) end(seq *Sequence, why Finish, err error) {
	if seq.finish != "" {
		return // cancelled by the listener
	}
	seq.finish, seq.err = why, err
	if seq.drafter != nil {
		seq.drafter.Release(seq)
		if e.cfg.Lengths != nil {
			e.cfg.Lengths.Release(seq)
		}
	}
	seq.slot, seq.owed = -1, 0
	delete(e.seqs, seq.id)
	if e.listener.Finished != nil {
		e.listener.Finished(seq)
	}
}

// CacheBytes returns the memory behind one page, one slot and one snapshot.
func (e *Engine) CacheBytes() (page, slot, snapshot int64) { return e.caches.Bytes() }

// Load returns how much of the engine is in use now.
func (e *Engine) Load() sched.Load { return e.core.Load() }

// Active returns the number of unfinished sequences.
func (e *Engine) Active() int { return len(e.seqs) }

// Close frees the caches, the tables and what the drafters hold on the device,
// and closes drafters that are io.Closers.
// The model stays loaded.
func (e *Engine) Close() error {
	var errs []error
	bufs := append([]kernels.Buf{e.stats}, e.extra...)
	if e.t != nil {
		e.t.free(e.be)
	}
	for _, d := range e.drafters {
		if d.device != nil {
			d.device.Detach()
			bufs = append(append(bufs, d.kept, d.idle.length, d.idle.span), d.backlog.bufs()...)
		}
		if c, ok := d.Drafter.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	for _, b := range bufs {
		if !b.None() {
			e.be.Free(b)
		}
	}
	for _, l := range e.loops {
		if l.ring != nil {
			errs = append(errs, l.ring.Close())
		}
	}
	if e.caches != nil {
		errs = append(errs, e.caches.Close())
	}
	return errors.Join(errs...)
}
