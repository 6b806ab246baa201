package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/verify"
)

// HiddenFormat names the layout of an export; a reader of another one must refuse.
const HiddenFormat = "exacta-hidden-1"

// hiddenManifest is the file that lists an export's shards, written last.
const hiddenManifest = "export.json"

// HiddenOptions say what exacta hidden exports. One of Prompts, Text and IDs at
// most is given; without any, the sequences are the model's own prompts.
type HiddenOptions struct {
	Model, Backend, Kernels string
	Threads                 int
	GPUMemory               float64 // see BackendChoice

	Prompts string // JSONL file of prompts
	Text    string // text file, cut into pieces of Length tokens
	IDs     string // file with an array of token ids on each line
	Length  int    // tokens of a piece of text; longer prompts keep their end
	Limit   int    // sequences; 0 takes all

	// New is the number of tokens that the model continues each sequence by; 0
	// reads what is given and no more. Temperature 0 continues greedily.
	New         int
	Temperature float32
	Seed        uint64
	IgnoreEOS   bool

	Taps []int // numbers of layers after which the residual stream is exported
	TopK int   // largest logits of each position; 0 exports none

	Sequences  int   // read or decoded at once
	Chunk      int   // most rows of a sequence in a step
	Rows       int   // most rows of prompts in a step, about
	ShardBytes int64 // a shard is full when it has this much
	Out        string
	Version    string // of the program, for the header
}

// HiddenFile is a shard of an export.
type HiddenFile struct {
	Name      string `json:"name"`
	Sequences int    `json:"sequences"`
	Tokens    int    `json:"tokens"`
	Bytes     int64  `json:"bytes"`
}

// HiddenResult describes an export. It is also its manifest, export.json.
type HiddenResult struct {
	Format     string `json:"format"`
	Model      string `json:"model"`
	ModelHash  string `json:"model_hash"`
	Backend    string `json:"backend"`
	Arithmetic string `json:"arithmetic"`
	Version    string `json:"version"`
	Revision   string `json:"revision"`
	Hidden     int    `json:"hidden"` // width of a state
	Taps       []int  `json:"taps"`
	TopK       int    `json:"top_k"`

	Temperature float32 `json:"temperature"`
	Seed        uint64  `json:"seed"`
	// Sequences and Tokens count what was written; Continued is the part of
	// Tokens that the model chose itself.
	Sequences int          `json:"sequences"`
	Tokens    int          `json:"tokens"`
	Continued int          `json:"continued"`
	Out       string       `json:"out"`
	Files     []HiddenFile `json:"files"`
}

func (o HiddenOptions) validate() error {
	given := 0
	for _, f := range []string{o.Prompts, o.Text, o.IDs} {
		if f != "" {
			given++
		}
	}
	if given > 1 {
		return errors.New("hidden: give one of prompts, text and ids")
	}
	for _, r := range []struct {
		name      string
		v, lo, hi int
	}{
		{"length", o.Length, 1, 1 << 20}, {"new", o.New, 0, 1 << 20}, {"limit", o.Limit, 0, 1 << 30}, {"top-k", o.TopK, 0, 1 << 10},
		{"sequences", o.Sequences, 1, 1 << 12}, {"chunk", o.Chunk, 1, 1 << 16}, {"rows", o.Rows, 1, 1 << 19},
	} {
		if r.v < r.lo || r.v > r.hi {
			return fmt.Errorf("hidden: %s is %d; it must be %d..%d", r.name, r.v, r.lo, r.hi)
		}
	}
	if o.ShardBytes < 1 {
		return fmt.Errorf("hidden: shards of %d bytes; they need at least 1", o.ShardBytes)
	}
	return sample.Params{Temperature: o.Temperature}.Validate()
}

// Hidden runs sequences through a model and exports, for every position, the
// token, the final hidden state (after the final norm, what the LM head reads) and,
// on request, the residual stream at taps and the largest logits. With New, the
// model continues each sequence by tokens of its own first. What is exported are the
// engine's own rows: the same bits in any company, chunk and number of threads.
//
// Out gets shards hidden-00001.safetensors, ... with whole sequences, in order, and
// last export.json. A shard has
//
//	tokens      I32 [n]             the tokens of its sequences, one after another
//	starts      I32 [sequences+1]   where each begins, and n
//	prompts     I32 [sequences]     how many tokens of each were given
//	hidden      BF16 [n, hidden]    the state at each token, which predicts the next
//	taps        BF16 [n, hidden*taps]
//	top_ids     I32 [n, top_k]      largest first, of equal ones the lower id
//	top_logits  F32 [n, top_k]
//
// and, in its metadata, what is needed to say later what it was. If ctx ends, what
// was finished is written, and the error is ErrInterrupted. progress, which may be
// nil, is told how far the work is.
func Hidden(ctx context.Context, o HiddenOptions, progress func(string)) (res *HiddenResult, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	entry, err := registry.Open(o.Model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, entry.Close()) }()
	prompts, err := o.sequences(entry)
	if err != nil {
		return nil, err
	}
	be, err := OpenBackend(BackendChoice{Name: o.Backend, Threads: o.Threads, Kernels: o.Kernels, GPUMemory: o.GPUMemory})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, be.Close()) }()
	m, err := model.Load(be, entry.Source, model.Options{})
	if err != nil {
		return nil, err
	}
	if n := m.Config.VocabSize; o.TopK > n {
		return nil, fmt.Errorf("hidden: top-k is %d; the model's vocabulary has %d tokens", o.TopK, n)
	}
	longest, err := o.longest(prompts, m)
	if err != nil {
		return nil, err
	}
	w, err := newHiddenWriter(o, entry, m)
	if err != nil {
		return nil, err
	}
	if err := o.run(ctx, entry, m, longest, prompts, w, progress); err != nil && !errors.Is(err, ErrInterrupted) {
		return nil, err
	}
	if err := w.close(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return &w.res, ErrInterrupted
	}
	return &w.res, nil
}

// longest is the length of the longest sequence with its continuation. The error
// names one that does not fit the model.
func (o HiddenOptions) longest(prompts []Prompt, m *model.Model) (int, error) {
	longest := 0
	for _, p := range prompts {
		n := len(p.IDs) + o.asked()
		if n > m.MaxTokens {
			return 0, fmt.Errorf("hidden: sequence %s has %d tokens and is to be continued by %d; the context of %d leaves room for %d in all", p.ID, len(p.IDs), o.New, m.MaxTokens, m.MaxTokens-2)
		}
		longest = max(longest, n)
	}
	return longest, nil
}

// asked is the number of tokens that the engine is asked for. It tells a drafter at
// once of steps that planned drafts alone, and the last step of a sequence can't: so
// that is one whose row is not wanted.
func (o HiddenOptions) asked() int {
	if o.New == 0 {
		return 1
	}
	return o.New + 2
}

// run feeds the sequences to an engine in which nothing is drafted.
func (o HiddenOptions) run(ctx context.Context, entry *registry.Entry, m *model.Model, longest int, prompts []Prompt, w *hiddenWriter, progress func(string)) (err error) {
	rule, err := verify.New("coupled")
	if err != nil {
		return err
	}
	tap := newHiddenTap(m, o.Taps, o.TopK)
	var failed error
	e, err := engine.New(m, engine.Config{
		MaxTokens: longest, MaxSequences: o.Sequences, MaxDraft: 1, Vocab: entry.Vocab(), NoHash: true,
		Chunk: o.Chunk, BatchTokens: o.Rows + 2*o.Sequences,
	}, map[string]engine.Drafter{tap.Name(): tap}, rule, nil, engine.Listener{Finished: func(s *engine.Sequence) {
		failed = errors.Join(failed, s.Err())
		rows := tap.take(s)
		if n := s.PromptLen() + o.New; s.Finish() == engine.FinishLength && len(rows.tokens) != n {
			failed = errors.Join(failed, fmt.Errorf("hidden: sequence %s gave %d rows of %d", s.Request().ID, len(rows.tokens), n))
		}
		w.finished(int(s.ID()), s.PromptLen(), rows)
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for next := 0; ; {
		for ; next < len(prompts) && e.Active() < 2*o.Sequences; next++ {
			_, err := e.Submit(engine.Request{
				ID: prompts[next].ID, Prompt: prompts[next].IDs, MaxNew: o.asked(), Drafter: tap.Name(), K: 1,
				Params: sample.Params{Temperature: o.Temperature, Seed: o.Seed + uint64(next)},
				Stop:   entry.Source.Config().EOS, IgnoreStop: o.IgnoreEOS,
			})
			if err != nil {
				return err
			}
		}
		more, err := e.Step()
		if err = errors.Join(err, failed, w.err); err != nil {
			return err
		}
		if !more {
			return nil
		}
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		if progress != nil {
			progress(fmt.Sprintf("hidden %d of %d sequences, %d tokens", w.res.Sequences, len(prompts), w.res.Tokens))
		}
	}
}

// writeManifest writes export.json.
func (r *HiddenResult) writeManifest() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("hidden: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.Out, hiddenManifest), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("hidden: %w", err)
	}
	return nil
}

// metadata is a shard's provenance. It says nothing of what does not change the
// contents (threads, chunks, time), so that equal exports are equal files.
func (r *HiddenResult) metadata() (map[string]string, error) {
	taps, err := json.Marshal(r.Taps)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"format": r.Format, "model": r.Model, "model_hash": r.ModelHash, "backend": r.Backend, "arithmetic": r.Arithmetic,
		"version": r.Version, "revision": r.Revision, "taps": string(taps), "top_k": fmt.Sprint(r.TopK),
		"temperature": fmt.Sprint(r.Temperature), "seed": fmt.Sprint(r.Seed),
	}, nil
}

// int32Data makes an I32 tensor.
func int32Data(name string, shape []int, values []int32) checkpoint.Data {
	return checkpoint.Data{Name: name, DType: checkpoint.I32, Shape: shape, Bytes: rawInts(values)}
}
