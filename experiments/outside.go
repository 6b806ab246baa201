package experiments

import (
	"context"
	"errors"
	"fmt"

	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
)

// longestPrompt cuts the prompts of an endpoint's audit to their last so many
// tokens: one pass of any server reads them.
const longestPrompt = 512

// EndpointOptions say how a server is audited.
type EndpointOptions struct {
	// Endpoint is the server's address, Plain that of one without
	// speculation, or "".
	Endpoint, Plain string
	// Key is sent to both as a bearer token, if it is not empty.
	Key string
	// Model is the model of the same weights, Backend, Kernels, GPUMemory and Threads
	// what it runs on (see OpenBackend).
	Model, Backend, Kernels string
	GPUMemory               float64
	Threads                 int
	// Prompts is a file of prompts; "" takes those that come with the model.
	Prompts string
	// Requests is the number at each level of Concurrency, each of MaxTokens.
	Requests, MaxTokens int
	Concurrency         []int
	outside.Options
	// Progress is told what is being done; may be nil.
	Progress func(string)
}

// AuditEndpoint audits a server: it asks it, and judges what came by the model.
func AuditEndpoint(ctx context.Context, o EndpointOptions) (res *outside.Result, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	client, err := outside.NewClient(o.Endpoint)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	client.Key = o.Key
	plan := outside.Plan{Requests: o.Requests, Concurrency: o.Concurrency, MaxTokens: o.MaxTokens, Progress: o.Progress}
	if o.Plain != "" {
		if plan.Plain, err = outside.NewClient(o.Plain); err != nil {
			return nil, err
		}
		defer plan.Plain.Close()
		plan.Plain.Key = o.Key
	}
	entry, err := registry.Open(o.Model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, entry.Close()) }()
	if room := entry.Source.Config().MaxPositions - longestPrompt; o.MaxTokens > room {
		return nil, fmt.Errorf("--max-tokens %d; the model's context leaves %d behind a prompt", o.MaxTokens, room)
	}
	prompts, err := LoadPrompts(Prompts{File: o.Prompts, Limit: o.Requests, MaxTokens: longestPrompt}, entry)
	if err != nil {
		return nil, err
	}
	for _, p := range prompts {
		plan.Prompts = append(plan.Prompts, p.IDs)
	}
	var tok outside.Tokenizer // nil where the model has none
	if entry.Tokenizer != nil {
		tok = entry.Tokenizer
	}
	plan.Tokenizer = tok
	ev, err := outside.Collect(ctx, client, plan)
	if ctx.Err() != nil {
		return nil, ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	return judgeEvidence(ctx, ev, entry, tok, o)
}

// judgeEvidence loads the model and audits what was collected.
func judgeEvidence(ctx context.Context, ev *outside.Evidence, entry *registry.Entry, tok outside.Tokenizer, o EndpointOptions) (res *outside.Result, err error) {
	o.Progress("loading the model")
	be, err := OpenBackend(BackendChoice{Name: o.Backend, Threads: o.Threads, Kernels: o.Kernels, GPUMemory: o.GPUMemory})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, be.Close()) }()
	longest := 0
	for _, l := range ev.Levels {
		for _, a := range l.Answers {
			longest = max(longest, len(a.Prompt)+len(a.IDs))
		}
	}
	m, err := model.Load(be, entry.Source, model.Options{MaxTokens: max(1, longest)})
	if err != nil {
		return nil, err
	}
	j, err := NewJudge(m, entry.Source.Config().EOS, longest)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	j.progress = o.Progress
	return outside.Audit(ctx, ev, j, tok, o.Options)
}

// Judge is a model that reads the outputs of other engines again. It implements
// outside.Judge.
type Judge struct {
	f        *feeder
	m        *model.Model
	stops    []int32
	read     int
	progress func(string)
}

var _ outside.Judge = (*Judge)(nil)

// NewJudge makes a judge for sequences of up to length tokens. stops are the ids
// that end a text.
func NewJudge(m *model.Model, stops []int32, length int) (*Judge, error) {
	f, err := newFeeder(m, max(1, length))
	if err != nil {
		return nil, err
	}
	return &Judge{f: f, m: m, stops: stops, progress: func(string) {}}, nil
}

// Close frees the judge's buffers; the model stays.
func (j *Judge) Close() error { return j.f.close() }

// Vocab implements outside.Judge.
func (j *Judge) Vocab() int { return j.m.Config.VocabSize }

// Stops implements outside.Judge.
func (j *Judge) Stops() []int32 { return j.stops }

// Force implements outside.Judge: one prefill of prompt and output.
func (j *Judge) Force(ctx context.Context, prompt, output []int32, each func(i int, row []float32) error) error {
	j.read++
	j.progress(fmt.Sprintf("reading answer %d again", j.read))
	j.f.reset()
	ids := append(append([]int32{}, prompt...), output...)
	vocab := j.m.Config.VocabSize
	for from := 0; from < len(ids); from += scoreChunk {
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		chunk := ids[from:min(len(ids), from+scoreChunk)]
		rows, err := j.f.feed(from, chunk)
		if err != nil {
			return err
		}
		for i := range chunk {
			// The row of the prompt's last token predicts the first of the output.
			at := from + i - len(prompt) + 1
			if at < 0 {
				continue
			}
			if err := each(at, rows[i*vocab:(i+1)*vocab]); err != nil {
				return err
			}
		}
	}
	return nil
}
