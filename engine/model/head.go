package model

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// HeadSource is the Source of a draft head. Its Config is the geometry of the
// head's decoder layers.
type HeadSource interface {
	Source
	// Head returns the checked configuration.
	Head() checkpoint.HeadConfig
	// Close releases the files.
	Close() error
}

// headOpener is a Source that has heads made for it.
type headOpener interface {
	OpenHead(name string) (HeadSource, error)
}

// Where OpenHead finds heads that are in no directory.
const (
	// RandomHead is a head of random weights.
	RandomHead = "random"
	// RandomInt4Head is one whose matrices have 4 bits, in groups of 32 columns.
	RandomInt4Head = "random:int4"
	// ModelHeads begins the name of a head in the model's folder heads, such as
	// model:mtp-int4.
	ModelHeads = "model:"
)

// OpenHead opens a draft head for the model: in the directory where, or, if where
// is empty, the one that comes with the model (its folder heads/KIND; a model of
// random weights comes with random heads), or another of that folder (ModelHeads
// and its name), or one of random weights (RandomHead, RandomInt4Head). The error
// says what would be right.
func (m *Model) OpenHead(kind checkpoint.HeadKind, where string) (h HeadSource, err error) {
	name, own := strings.CutPrefix(where, ModelHeads)
	random := Random{ShapeName: m.Name, Shape: m.Config, Seed: 1}
	switch {
	case own:
		h, err = m.ownHead(kind, name)
	case where == "":
		h, err = m.ownHead(kind, string(kind))
	case where == RandomHead:
		h, err = random.OpenHead(string(kind))
	case where == RandomInt4Head:
		h, err = random.int4Head(kind)
	default:
		var file *checkpoint.Head
		if file, err = checkpoint.OpenHead(where); err == nil {
			h = headFiles{file}
		}
	}
	if err != nil {
		return nil, err
	}
	if err := m.fits(kind, h); err != nil {
		return nil, errors.Join(fmt.Errorf("head %s: %w", h.Name(), err), h.Close())
	}
	return h, nil
}

// Gathered reports whether a head's tensor is one that rows are gathered from, by token,
// so that it can't have 4 bits.
func Gathered(name string) bool {
	return name == "embed_tokens.weight" || name == "markov_head.markov_w1.weight"
}

// ownHead opens a head of that name that comes with the model.
func (m *Model) ownHead(kind checkpoint.HeadKind, name string) (HeadSource, error) {
	const instead = "name the directory of one (head:), or %q"
	if m.heads == nil {
		return nil, fmt.Errorf("model %s comes with no %s head; "+instead, m.Name, kind, RandomHead)
	}
	h, err := m.heads.OpenHead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("model %s comes with no %s head (heads/%s); "+instead, m.Name, kind, name, RandomHead)
	}
	return h, err
}

// fits reports whether a head can draft for the model.
func (m *Model) fits(kind checkpoint.HeadKind, h HeadSource) error {
	c := h.Head()
	switch {
	case c.Kind != kind:
		return fmt.Errorf("it is a head of kind %s; kind %s was asked for", c.Kind, kind)
	case c.Layer.VocabSize != m.Config.VocabSize:
		return fmt.Errorf("vocab_size is %d; model %s has %d", c.Layer.VocabSize, m.Name, m.Config.VocabSize)
	case c.TargetHidden != m.Config.HiddenSize:
		return fmt.Errorf("the target's hidden size is %d; model %s has %d", c.TargetHidden, m.Name, m.Config.HiddenSize)
	case c.Layer.HiddenSize != m.Config.HiddenSize && !h.Has("embed_tokens.weight"):
		return fmt.Errorf("hidden_size is %d and the model's is %d; such a head needs embed_tokens.weight", c.Layer.HiddenSize, m.Config.HiddenSize)
	}
	for _, n := range c.Taps {
		if n > len(m.blocks) {
			return fmt.Errorf("it reads the target before layer %d; model %s has %d layers", n, m.Name, len(m.blocks))
		}
	}
	return nil
}

// HasHead reports whether a head of that kind, not one of random weights, comes
// with the model.
func (m *Model) HasHead(kind checkpoint.HeadKind) bool {
	if kind == checkpoint.HeadDSpark && m.spark != nil {
		return true
	}
	files, ok := m.heads.(Checkpoint)
	return ok && files.HasHead(string(kind))
}

// headTaps returns where a head reads the target.
func (m *Model) headTaps(c checkpoint.HeadConfig) []int {
	if c.Taps != nil {
		return c.Taps
	}
	return checkpoint.DefaultTaps(len(m.blocks))
}

// headFiles is the HeadSource of an opened directory.
type headFiles struct{ file *checkpoint.Head }

var _ HeadSource = headFiles{}

// OpenHead opens a head of the checkpoint's folder heads.
func (c Checkpoint) OpenHead(name string) (HeadSource, error) {
	h, err := c.Checkpoint.OpenHead(name)
	if err != nil {
		return nil, err
	}
	return headFiles{h}, nil
}

// Head implements HeadSource.
func (h headFiles) Head() checkpoint.HeadConfig { return h.file.Config() }

// Config implements Source.
func (h headFiles) Config() checkpoint.Config { return h.file.Config().Layer }

// Name implements Source.
func (h headFiles) Name() string { return h.file.Name() }

// Has implements Source.
func (h headFiles) Has(name string) bool { return h.file.Has(name) }

// Ints implements HeadSource.
func (h headFiles) Ints(name string, n int) ([]int64, error) { return h.file.Ints(name, n) }

// Alike implements Source: heads have no tokens of their own.
func (h headFiles) Alike() ([]int32, int, error) { return nil, 0, errors.ErrUnsupported }

// Close implements HeadSource.
func (h headFiles) Close() error { return h.file.Close() }

// Matrix implements Source.
func (h headFiles) Matrix(name string, rows, cols int) (kernels.Source, error) {
	t, err := h.file.Tensor(name)
	if err != nil {
		return kernels.Source{}, err
	}
	if t.DType == checkpoint.U8 {
		return h.int4Of(t, name, rows, cols)
	}
	return sourceOf(h.Name(), t, name, rows, cols)
}

// Done implements Source.
func (h headFiles) Done(name string) error {
	for _, n := range []string{name, name + ScaleSuffix, name + ZeroSuffix} {
		if n != name && !h.file.Has(n) {
			continue
		}
		t, err := h.file.Tensor(n)
		if err == nil {
			err = t.Discard()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
