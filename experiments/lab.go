package experiments

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/verify"
)

// LabConfig says what a Lab runs requests on.
type LabConfig struct {
	// Model is the target. The lab reserves its activations anew whenever it
	// runs: no other engine of this model may step meanwhile.
	Model *model.Model
	// Vocab is the number of ids that have a token, Context the longest
	// sequence in tokens.
	Vocab, Context int
	// Tokens are the bytes of the tokens, for requests with a grammar.
	Tokens *grammar.Vocabulary
	// Drafter makes the honest drafter of a request's strategy; nil means
	// plain decoding.
	Drafter func(r *audit.Request) (engine.Drafter, error)
	// Oracle opens the float64 twin of the model, with what closes it; it is
	// asked once, when first needed. Nil means that there is none.
	Oracle func() (*model.Model, func() error, error)
}

// Lab implements audit.Lab on an engine of one sequence, without an interposer
// and without simulation.
type Lab struct {
	cfg    LabConfig
	force  *feeder
	stats  kernels.Buf
	host   []int32
	oracle *oracle
}

var _ audit.Lab = (*Lab)(nil)

// NewLab makes a lab. Close frees what it allocated; the model stays.
func NewLab(cfg LabConfig) *Lab { return &Lab{cfg: cfg} }

// Close frees the lab's buffers and closes its oracle.
func (l *Lab) Close() error {
	var err error
	if l.force != nil {
		if !l.stats.None() {
			l.force.be.Free(l.stats)
		}
		err = l.force.close()
		l.force = nil
	}
	if l.oracle != nil {
		err = errors.Join(err, l.oracle.close())
		l.oracle = nil
	}
	return err
}

// Plain implements audit.Lab.
func (l *Lab) Plain(ctx context.Context, reqs []*audit.Request, rec engine.Recorder) error {
	return l.run(ctx, reqs, rec, func(r *audit.Request, e *engine.Request) error {
		rule, err := verify.New(r.Rule)
		e.Rule = rule
		return err
	}, nil)
}

// Again implements audit.Lab.
func (l *Lab) Again(ctx context.Context, reqs []*audit.Request, rec engine.Recorder) error {
	for _, r := range reqs {
		var d engine.Drafter
		var err error
		if r.K > 0 {
			if d, err = l.cfg.Drafter(r); err != nil {
				return err
			}
			d = follow(d, r)
		}
		err = l.run(ctx, []*audit.Request{r}, rec, func(r *audit.Request, e *engine.Request) error {
			rule, err := verify.New(r.Rule)
			if err != nil {
				return err
			}
			e.Rule = &follower{Verifier: rule, req: r}
			if d != nil {
				e.Drafter, e.K = d.Name(), r.K
			}
			return nil
		}, d)
		if err != nil {
			return err
		}
	}
	return nil
}

// run decodes requests one at a time. as finishes an engine request.
func (l *Lab) run(ctx context.Context, reqs []*audit.Request, rec engine.Recorder, as func(*audit.Request, *engine.Request) error, d engine.Drafter) (err error) {
	drafters, k := map[string]engine.Drafter{}, 1
	for _, r := range reqs {
		k = max(k, r.K)
	}
	if d != nil {
		drafters[d.Name()] = d
	}
	rule, err := verify.New("coupled")
	if err != nil {
		return err
	}
	e, err := engine.New(l.cfg.Model, engine.Config{
		MaxTokens: l.cfg.Context, MaxSequences: 1, MaxDraft: k, Vocab: l.cfg.Vocab, Tokens: l.cfg.Tokens,
	}, drafters, rule, rec, engine.Listener{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for _, r := range reqs {
		q := engine.Request{
			ID: r.ID, Prompt: r.Prompt, MaxNew: r.MaxNew, Params: r.Params, Stop: r.Stop, IgnoreStop: r.IgnoreStop,
		}
		if r.Until != nil {
			q.Until = r.Until()
		}
		if err := as(r, &q); err != nil {
			return fmt.Errorf("request %s: %w", r.ID, err)
		}
		seq, err := e.Submit(q)
		if err != nil {
			return err
		}
		enough := len(r.Received) // of a request that was cut short, no more than it has
		if r.Whole() || enough == 0 {
			enough = r.MaxNew
		}
		if err := e.Run(func() bool { return ctx.Err() != nil || len(seq.Output()) >= enough }); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		if seq.Err() != nil {
			return seq.Err()
		}
		e.Cancel(seq)
	}
	return nil
}

// Vocab returns the number of ids that have a token.
func (l *Lab) Vocab() int { return l.cfg.Vocab }

// Sampler returns a sampler that processes logits as the engine does for a
// request, before its first token.
func (l *Lab) Sampler(r *audit.Request) (*sample.Sampler, error) {
	s := sample.New(r.Params, r.Prompt)
	if r.Params.Grammar == "" {
		return s, nil
	}
	if l.cfg.Tokens == nil {
		return nil, errors.New("a request with a grammar, and no tokenizer")
	}
	g, err := l.cfg.Tokens.Compile(r.Params.Grammar)
	if err != nil {
		return nil, err
	}
	s.Constrain(g)
	return s, nil
}

// Force implements audit.Lab.
func (l *Lab) Force(ctx context.Context, ids []int32, first int, logits bool, each func(audit.Row) error) error {
	if err := l.openForce(); err != nil {
		return err
	}
	if len(ids) > l.cfg.Context+forceSlack {
		return fmt.Errorf("teacher forcing: %d tokens are more than the context of %d", len(ids), l.cfg.Context)
	}
	f := l.force
	most := l.forceChunk()
	if err := f.m.Reserve(most, most); err != nil {
		return err
	}
	f.reset()
	for from := 0; from < len(ids); from += most {
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		chunk := ids[from:min(len(ids), from+most)]
		want := min(len(chunk), max(0, first-from)) // first wanted row of the chunk
		if err := l.forcePass(from, chunk, want, logits, each); err != nil {
			return err
		}
	}
	return nil
}

const (
	// forceRows is the most rows of a pass of Force, as many as the engine
	// reads of a prompt at a time, forceLogits the most logits of one.
	forceRows   = 512
	forceLogits = 40 << 20
	// forceSlack is the positions past the context that drafts may touch.
	forceSlack = kernels.WindowTokens - 1
)

// forceChunk is the most rows of a pass of Force with this model.
func (l *Lab) forceChunk() int {
	fit := forceLogits / l.cfg.Model.Config.VocabSize
	return min(forceRows, max(kernels.PageTokens, fit/kernels.PageTokens*kernels.PageTokens))
}

func (l *Lab) openForce() (err error) {
	if l.force != nil {
		return nil
	}
	most := l.forceChunk()
	if l.force, err = newFeederOf(l.cfg.Model, l.cfg.Context+forceSlack, most); err != nil {
		return err
	}
	l.host = make([]int32, most*kernels.StatCols)
	l.stats, err = l.force.be.Alloc(kernels.Tables, kernels.I32, most, kernels.StatCols)
	return err
}

func (l *Lab) forcePass(from int, chunk []int32, want int, logits bool, each func(audit.Row) error) error {
	f, q, n := l.force, l.force.be.Queue(), len(chunk)-want
	out := f.forward(from, chunk, want)
	if n == 0 {
		return q.Err()
	}
	stats := l.stats.Top(n)
	q.Stats(stats, out.Logits, l.cfg.Vocab, true)
	ticket := q.Read(unsafe.Slice((*byte)(unsafe.Pointer(&l.host[0])), 4*n*kernels.StatCols), stats)
	if logits {
		if err := f.read(out.Logits); err != nil {
			return err
		}
	}
	if err := ticket.Wait(); err != nil {
		return err
	}
	for i := range n {
		row := audit.RowOf(int32(from+want+i), l.host[i*kernels.StatCols:][:kernels.StatCols])
		if logits {
			row.Logits = f.rows[i*f.m.Config.VocabSize:][:l.cfg.Vocab]
		}
		if err := each(row); err != nil {
			return err
		}
	}
	return nil
}

// Oracle implements audit.Lab.
func (l *Lab) Oracle(ctx context.Context, ids []int32) ([]float32, error) {
	if l.oracle == nil {
		if l.cfg.Oracle == nil {
			return nil, errors.New("no float64 oracle for this model here")
		}
		m, closeModel, err := l.cfg.Oracle()
		if err != nil {
			return nil, err
		}
		l.oracle = &oracle{m: m, closeModel: closeModel}
	}
	return l.oracle.logits(ctx, ids, l.cfg.Vocab)
}

// oracle is the float64 twin of the lab's model.
type oracle struct {
	m          *model.Model
	closeModel func() error
	feed       *feeder
}

func (o *oracle) logits(ctx context.Context, ids []int32, vocab int) (last []float32, err error) {
	if o.feed == nil {
		if o.feed, err = newFeederOf(o.m, o.m.MaxTokens, scoreChunk); err != nil {
			return nil, err
		}
	}
	o.feed.reset()
	for from := 0; from < len(ids); from += scoreChunk {
		if ctx.Err() != nil {
			return nil, ErrInterrupted
		}
		chunk := ids[from:min(len(ids), from+scoreChunk)]
		want := len(chunk)
		if from+len(chunk) == len(ids) {
			want--
		}
		out := o.feed.forward(from, chunk, want)
		if want < len(chunk) {
			if err := o.feed.read(out.Logits); err != nil {
				return nil, err
			}
			return o.feed.rows[:vocab], nil
		}
	}
	return nil, errors.New("the oracle needs at least one token")
}

func (o *oracle) close() error {
	var err error
	if o.feed != nil {
		err = o.feed.close()
	}
	return errors.Join(err, o.closeModel())
}

// Cost implements audit.Lab: the counts follow from the model's shape alone.
// WeightBytes are those of reading every matrix once. Launches are left out:
// they are the backend's own affair.
func (l *Lab) Cost(spans []audit.SpanCost) kernels.Counters {
	c := l.cfg.Model.Config
	head := uint64(c.VocabSize) * uint64(c.HiddenSize)
	trunk := uint64(l.cfg.Model.StepParams()) - head
	layers, attention := uint64(c.NumLayers), uint64(0)
	for _, kind := range c.LayerTypes {
		if kind == checkpoint.FullAttention {
			attention++
		}
	}
	var rows, idle, logits, keys uint64
	for _, s := range spans {
		n := uint64(s.Rows)
		rows += n
		logits += uint64(s.LogitRows)
		if s.Idle {
			idle += n
			continue
		}
		own := n * (n + 1) / 2
		if s.Own > 0 {
			own = uint64(s.Own)
		}
		keys += n*uint64(s.Start) + own
	}
	out := kernels.Counters{
		Ops: 2 + 5*layers, MatMulRows: 4*layers*rows + logits, MACs: trunk*rows + head*logits, WeightBytes: 2 * trunk,
		AttendRows: attention * (rows - idle), KVTokens: attention * keys, DeltaRows: (layers - attention) * (rows - idle), LogitRows: logits,
	}
	if logits > 0 {
		out.Ops += 3
		out.WeightBytes += 2 * head
	}
	return out
}

// Roofline implements audit.Lab.
func (l *Lab) Roofline() float64 {
	be, ok := l.cfg.Model.Backend().(Calibrated)
	if !ok {
		return 0
	}
	best := 0.0
	for range 5 {
		if bytes, took := be.ReadWeights(1); took > 0 {
			best = max(best, float64(bytes)/took.Seconds())
		}
	}
	return best
}
