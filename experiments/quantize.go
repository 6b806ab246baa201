package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/draft/quant"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
)

// QuantizeMethods are the ways to choose the 4 bits.
var QuantizeMethods = []string{"gptq", "rtn"}

// QuantizeHeads are the kinds of head that can be quantised, by the name of the
// strategy that drafts with them.
var QuantizeHeads = []string{
	string(checkpoint.HeadMTP), string(checkpoint.HeadEagle), string(checkpoint.HeadEagle3), string(checkpoint.HeadMedusa),
	string(checkpoint.HeadDFlash), string(checkpoint.HeadDSpark),
}

// QuantizeOptions say which head exacta quantize makes, and how it is judged.
type QuantizeOptions struct {
	Head string // one of QuantizeHeads
	// From is where the BF16 head is, as the strategy's setting head; empty takes
	// the one that comes with the model.
	From       string
	Model      string
	Backend    string
	Kernels    string
	Threads    int
	Group      int
	ZeroPoints bool
	Method     string
	// Vocab is the number of tokens of the head's own LM head; 0 keeps those of the
	// BF16 head. Fewer are those that are most frequent in the corpus.
	Vocab int
	// Corpus is a text file. It also gives the inputs to calibrate with, in
	// place of every second prompt of the model.
	Corpus string
	Pieces int    // of the corpus, to calibrate with
	Out    string // directory
	K      int    // drafts per step, if the head can draft so many
	Tokens int    // generated per prompt
	Limit  int    // prompts to judge by; 0 takes all
}

// QuantizeResult tells what a head of 4 bits costs and is worth. Accepted drafts are
// counted over the same prompts with the head it was made from, in turn.
type QuantizeResult struct {
	Model      string       `json:"model"`
	Head       string       `json:"head"`
	Out        string       `json:"out"`
	Method     string       `json:"method"`
	Group      int          `json:"group"`
	ZeroPoints bool         `json:"zero_points"`
	Vocab      int          `json:"vocab"` // tokens of the LM head
	Calibrated int          `json:"calibration_tokens"`
	Prompts    int          `json:"prompts"`
	K          int          `json:"k"`
	Bytes      QuantizePair `json:"bytes"` // of all that a draft reads, LM head included
	Accepted   QuantizePair `json:"accepted"`
	PerStep    QuantizePair `json:"accept_length"`
	DraftMs    QuantizePair `json:"draft_ms"` // median time to draft in a step
	// Exact says that both heads gave the same output tokens.
	Exact bool `json:"exact"`
}

// QuantizePair is a figure of the BF16 head and of that of 4 bits.
type QuantizePair struct {
	BF16  float64 `json:"bf16"`
	Int4  float64 `json:"int4"`
	Ratio float64 `json:"ratio"`
}

func pairOf(bf16, int4 float64) QuantizePair {
	p := QuantizePair{BF16: bf16, Int4: int4}
	if bf16 != 0 {
		p.Ratio = int4 / bf16
	}
	return p
}

func (o QuantizeOptions) validate() error {
	switch {
	case !slices.Contains(QuantizeHeads, o.Head):
		return fmt.Errorf("quantize %q: heads that can be quantised: %s", o.Head, strings.Join(QuantizeHeads, ", "))
	case !slices.Contains(QuantizeMethods, o.Method):
		return fmt.Errorf("method %q; use one of %v", o.Method, QuantizeMethods)
	case !slices.Contains(kernels.Int4Groups, o.Group):
		return fmt.Errorf("group %d; it must be one of %v", o.Group, kernels.Int4Groups)
	case o.Out == "":
		return errors.New("out: name the directory to write the head to")
	case o.K < 1 || o.K >= kernels.WindowTokens:
		return fmt.Errorf("k %d; it must be 1..%d", o.K, kernels.WindowTokens-1)
	case o.Tokens < 1 || o.Limit < 0 || o.Vocab < 0:
		return errors.New("tokens must be positive, limit and vocab must not be negative")
	case o.Corpus != "" && o.Pieces < 1:
		return fmt.Errorf("pieces %d; at least one of the corpus is needed", o.Pieces)
	case o.Vocab > 0 && o.Corpus == "":
		return errors.New("vocab: a corpus is needed to tell which tokens are frequent")
	}
	return nil
}

// quantizer is a running Quantize.
type quantizer struct {
	o     QuantizeOptions
	entry *registry.Entry
	rec   *quant.Recorder
	m     *model.Model
	from  *bf16Head
	res   QuantizeResult
	show  func(string)
}

// Quantize makes a head of 4 bits, writes it, and judges it against the head that it
// was made from. show is told how far it is.
func Quantize(ctx context.Context, o QuantizeOptions, show func(string)) (res *QuantizeResult, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	z := &quantizer{o: o, show: show}
	if err := z.load(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, z.close()) }()
	if z.from, err = z.open(); err != nil {
		return nil, fmt.Errorf("quantize %s: %w", o.Head, err)
	}
	defer func() { err = errors.Join(err, z.from.Close()) }()
	return &z.res, z.run(ctx)
}

// load opens the model and loads it into a recorder; close undoes that.
func (z *quantizer) load() (err error) {
	if z.entry, err = registry.Open(z.o.Model); err != nil {
		return err
	}
	be, err := OpenBackend(BackendChoice{Name: z.o.Backend, Threads: z.o.Threads, Kernels: z.o.Kernels})
	if err != nil {
		return errors.Join(err, z.entry.Close())
	}
	z.rec = quant.NewRecorder(be)
	if z.m, err = model.Load(z.rec, z.entry.Source, model.Options{MTP: true}); err != nil {
		return errors.Join(err, z.close())
	}
	return nil
}

func (z *quantizer) close() error { return errors.Join(z.rec.Close(), z.entry.Close()) }

func (z *quantizer) run(ctx context.Context) error {
	calibrate, judge, corpus, err := z.prompts()
	if err != nil {
		return err
	}
	if z.o.Method == "gptq" {
		if err := z.calibrate(ctx, calibrate); err != nil {
			return err
		}
	}
	if err := z.write(corpus); err != nil {
		return err
	}
	return z.judge(ctx, judge)
}

// prompts returns what to calibrate with, what to judge by, and the corpus.
func (z *quantizer) prompts() (calibrate, judge []Prompt, corpus []int32, err error) {
	all, err := LoadPrompts(Prompts{MaxTokens: 128}, z.entry)
	if err != nil {
		return nil, nil, nil, err
	}
	if z.o.Corpus == "" {
		for i, p := range all {
			if i%2 == 0 {
				calibrate = append(calibrate, p)
			} else {
				judge = append(judge, p)
			}
		}
	} else {
		if corpus, err = z.corpus(); err != nil {
			return nil, nil, nil, err
		}
		const length = 96
		for i := range z.o.Pieces {
			from := i * max(1, len(corpus)/z.o.Pieces)
			if part := corpus[min(from, len(corpus)):min(from+length, len(corpus))]; len(part) > 0 {
				calibrate = append(calibrate, Prompt{ID: fmt.Sprintf("corpus-%d", i), IDs: part})
			}
		}
		judge = all
	}
	if n := z.o.Limit; n > 0 {
		judge = judge[:min(n, len(judge))]
	}
	if len(judge) == 0 || len(calibrate) == 0 {
		return nil, nil, nil, errors.New("quantize: there must be two prompts at least, or a corpus")
	}
	return calibrate, judge, corpus, nil
}

func (z *quantizer) corpus() ([]int32, error) {
	if z.entry.Tokenizer == nil {
		return nil, fmt.Errorf("corpus: model %s has no tokenizer", z.entry.Name)
	}
	text, err := os.ReadFile(z.o.Corpus)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("corpus %s is not valid UTF-8", z.o.Corpus)
	}
	ids := z.entry.Tokenizer.Encode(string(text), false)
	if len(ids) == 0 {
		return nil, fmt.Errorf("corpus %s is empty", z.o.Corpus)
	}
	return ids, nil
}

// drafter makes the drafter of the kind with the head at a place.
func (z *quantizer) drafter(where string) (engine.Drafter, error) {
	s := headStrategy(z.from.config.Kind, where)
	return s.Provision(draft.Env{Backend: z.rec, Model: z.m, Vocab: z.entry.Vocab()})
}

// headStrategy is the strategy that drafts with a kind of head, at a place.
func headStrategy(kind checkpoint.HeadKind, where string) draft.Strategy {
	switch kind {
	case checkpoint.HeadMTP:
		return &draft.MTP{Head: where}
	case checkpoint.HeadEagle:
		return &draft.Eagle{Head: where, Width: 3, Depth: 5}
	case checkpoint.HeadEagle3:
		return &draft.Eagle3{Head: where}
	case checkpoint.HeadMedusa:
		return &draft.Medusa{Head: where}
	case checkpoint.HeadDSpark:
		return &draft.DSpark{Head: where} // drafts of k, however sure it is
	}
	return &draft.DFlash{Head: where}
}

// calibrate decodes prompts while the recorder watches the drafter, with drafts so long
// that all of the head's matrices are used.
func (z *quantizer) calibrate(ctx context.Context, prompts []Prompt) error {
	d, err := z.drafter(z.o.From)
	if err != nil {
		return err
	}
	watched := quant.Watch(d.(engine.DeviceDrafter), z.rec)
	for i, p := range prompts {
		z.show(fmt.Sprintf("calibrate %d of %d", i+1, len(prompts)))
		out, err := z.decode(ctx, watched, p, max(z.o.K, z.from.config.Heads))
		if err != nil {
			return err
		}
		z.res.Calibrated += len(p.IDs) + len(out.tokens)
	}
	return z.rec.Err()
}
