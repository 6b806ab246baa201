package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"exacta.dev/exacta/engine/chat"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/checkpoint/hub"
	"exacta.dev/exacta/engine/embedded"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/tokenizer"
)

// Embedded is the name of the model inside the binary.
const Embedded = "embedded"

// randomPrefix starts the names of random-weight models.
const randomPrefix = "random:"

// Names says what a model can be called, for help texts.
const Names = "embedded, random:SHAPE (exacta models), a directory with config.json, a GGUF file, or ORG/NAME of a model in the Hugging Face cache (exacta pull)"

// Entry is an opened model.
type Entry struct {
	Name   string
	Source model.Source
	// Tokenizer is nil for models without text (random weights).
	Tokenizer *tokenizer.Tokenizer
	// Hash identifies configuration and weights: a cheap hash of headers and
	// sizes, or of the shape and seed.
	Hash string
	// Skipped lists tensors that were left out (vision parts).
	Skipped []string
	// Notes are sentences that a user should see: what was left out, and where
	// expanded weights are.
	Notes []string

	ck *checkpoint.Checkpoint // nil for random weights
}

// Prompt is one prompt that comes with a model.
type Prompt struct {
	ID    string `json:"id"`
	Class string `json:"class"`
	Text  string `json:"prompt"`
}

// Info describes a model that can be named.
type Info struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"` // embedded, shape
	Summary string `json:"summary"`
}

// List returns the models that can be named without a file.
func List() []Info {
	out := []Info{{Embedded, "embedded", "the model inside the binary: a Qwen3.5-type hybrid with an MTP head, trained on Go source"}}
	for _, s := range model.ShapeNames() {
		c, _ := model.Shape(s)
		out = append(out, Info{randomPrefix + s, "shape", fmt.Sprintf("random weights: %s, %d layers of width %d, vocabulary %d", c.ModelType, c.NumLayers, c.HiddenSize, c.VocabSize)})
	}
	return out
}

// Open resolves a name. Weights of 8 and 4 bits are expanded to BF16 once, into a file
// below CacheDir that the next call finds.
func Open(name string) (*Entry, error) {
	e, err := Look(name)
	if err == nil {
		e.notes()
	}
	return e, err
}

// Look resolves a name as Open does, and writes nothing.
func Look(name string) (*Entry, error) {
	switch {
	case name == Embedded:
		fsys, err := embedded.FS()
		if err != nil {
			return nil, err
		}
		ck, err := checkpoint.OpenFS(fsys, Embedded)
		if err != nil {
			return nil, err
		}
		return fromCheckpoint(name, ck)
	case strings.HasPrefix(name, randomPrefix):
		shape := strings.TrimPrefix(name, randomPrefix)
		c, err := model.Shape(shape)
		if err != nil {
			return nil, err
		}
		return &Entry{Name: name, Source: model.Random{ShapeName: shape, Shape: c, Seed: 1}, Hash: name + "/seed=1"}, nil
	}
	path, err := locate(name)
	if err != nil {
		return nil, err
	}
	ck, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	return fromCheckpoint(name, ck)
}

// locate finds the files of a name that is none of those known: a path, or the id of a
// model in the cache of the Hugging Face libraries.
func locate(name string) (string, error) {
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return name, nil
	}
	id, err := hub.ParseID(name)
	if err == nil {
		var path string
		if path, err = hub.Find(id); err == nil {
			return path, nil
		}
	}
	if err != nil && strings.Contains(id.Name, "/") {
		return "", err
	}
	return "", fmt.Errorf("model %q: no such file or directory, and not a known name; use %s", name, Names)
}

// Examine says what the headers of a model's files say, whether the engine can run
// it or not. The error of a name that stands for no files satisfies errors.Is(err,
// errors.ErrUnsupported).
func Examine(name string) (*checkpoint.Survey, error) {
	switch {
	case strings.HasPrefix(name, randomPrefix):
		return nil, fmt.Errorf("model %s has no files: %w", name, errors.ErrUnsupported)
	case name != Embedded:
		path, err := locate(name)
		if err != nil {
			return nil, err
		}
		return checkpoint.Examine(path)
	}
	fsys, err := embedded.FS()
	if err != nil {
		return nil, err
	}
	return checkpoint.ExamineFS(fsys, name)
}

func fromCheckpoint(name string, ck *checkpoint.Checkpoint) (*Entry, error) {
	e := &Entry{Name: name, Source: model.Checkpoint{Checkpoint: ck}, Hash: ck.Hash(), Skipped: ck.Skipped(), ck: ck}
	text, err := ck.ReadFile("tokenizer.json")
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err == nil {
		e.Tokenizer, err = tokenizer.Load(text)
	}
	if err == nil {
		err = e.Tokenizer.Check(ck.Config().VocabSize)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("model %s: tokenizer.json: %w", name, err), ck.Close())
	}
	return e, nil
}

// Vocab returns the number of ids that have a token: the tokenizer's, or the
// model's where there is no tokenizer.
func (e *Entry) Vocab() int {
	if e.Tokenizer == nil {
		return e.Source.Config().VocabSize
	}
	return min(e.Tokenizer.VocabSize(), e.Source.Config().VocabSize)
}

// Prompts returns the prompts in the model's prompts.jsonl, if it has one.
func (e *Entry) Prompts() ([]Prompt, error) {
	if e.ck == nil {
		return nil, nil
	}
	text, err := e.ck.ReadFile("prompts.jsonl")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", e.Name, err)
	}
	var out []Prompt
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var p Prompt
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return nil, fmt.Errorf("model %s: prompts.jsonl line %d: %w", e.Name, i+1, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// Chat returns the model's chat templates. A model without any gives an error that
// is chat.ErrNone.
func (e *Entry) Chat() (*chat.Set, error) {
	if e.ck == nil {
		return nil, fmt.Errorf("model %s: %w", e.Name, chat.ErrNone)
	}
	set, err := chat.Load(e.ck)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", e.Name, err)
	}
	return set, nil
}

// SpecialTokens returns the special tokens that a chat template may name, such as
// bos_token.
func (e *Entry) SpecialTokens() (map[string]string, error) {
	if e.ck == nil {
		return nil, nil
	}
	tokens, err := chat.SpecialTokens(e.ck)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", e.Name, err)
	}
	return tokens, nil
}

// HasHead reports whether a draft head of that kind comes with the model, as files.
func (e *Entry) HasHead(kind checkpoint.HeadKind) bool {
	return e.ck != nil && e.ck.HasHead(string(kind))
}

// Tensors returns the names of the tensors in the model's files; none of made-up
// weights.
func (e *Entry) Tensors() []string {
	if e.ck == nil {
		return nil
	}
	return e.ck.Names()
}

// CheckFinite reads every weight and returns an error for each tensor that has a NaN
// or an infinity, or that is none of numbers.
func (e *Entry) CheckFinite(ctx context.Context) []error {
	var bad []error
	for _, name := range e.Tensors() {
		if ctx.Err() != nil {
			break
		}
		t, err := e.ck.Tensor(name)
		if err == nil {
			err = errors.Join(t.CheckFinite(), t.Discard())
		}
		if err != nil {
			bad = append(bad, err)
		}
	}
	return bad
}

// Close releases the files.
func (e *Entry) Close() error {
	if e.ck == nil {
		return nil
	}
	return e.ck.Close()
}
