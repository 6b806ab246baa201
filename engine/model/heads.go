package model

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// headKey says which head was loaded.
type headKey struct {
	kind  checkpoint.HeadKind
	where string
}

// loadHead returns a head's parameters, taken into the backend once for each
// model, kind and place. load does so with a loader over the head's source.
func loadHead[W any](m *Model, kind checkpoint.HeadKind, where string, load func(l *loader, src HeadSource) *W) (_ *W, err error) {
	key := headKey{kind, where}
	if w, ok := m.loaded[key].(*W); ok {
		return w, nil
	}
	src, err := m.OpenHead(kind, where)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	l := &loader{be: m.be, src: src}
	w := load(l, src)
	if l.err != nil {
		return nil, fmt.Errorf("load head: %w", l.err)
	}
	m.keep(key, w)
	return w, nil
}

// Companion returns a model that goes with m, on the same backend: load loads it the
// first time that it is asked for by that name.
func (m *Model) Companion(name string, load func() (*Model, error)) (*Model, error) {
	key := headKey{"model", name}
	if c, ok := m.loaded[key].(*Model); ok {
		return c, nil
	}
	c, err := load()
	if err != nil {
		return nil, err
	}
	m.keep(key, c)
	return c, nil
}

func (m *Model) keep(key headKey, loaded any) {
	if m.loaded == nil {
		m.loaded = map[headKey]any{}
	}
	m.loaded[key] = loaded
}

// lmHead loads the LM head of a draft head: its own, or the target's where it
// brings none and neither its vocabulary nor its width asks for one.
func (m *Model) lmHead(l *loader, src HeadSource) kernels.Weight {
	c := src.Head()
	if src.Has("lm_head.weight") || c.DraftVocab != m.Config.VocabSize || c.Layer.HiddenSize != m.Config.HiddenSize {
		return l.matrix("lm_head.weight", c.DraftVocab, c.Layer.HiddenSize)
	}
	return m.head
}

// tokens returns the token of each row of a head's LM head, from the integer
// tensor of that name; nil where the head knows the whole vocabulary. With
// offsets the tensor says what is added to a row's number.
func (l *loader) tokens(src HeadSource, name string, offsets bool) []int32 {
	c := src.Head()
	if l.err != nil || c.DraftVocab == c.Layer.VocabSize && !src.Has(name) {
		return nil
	}
	ids, err := src.Ints(name, c.DraftVocab)
	if err != nil {
		l.err = err
		return nil
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		if offsets {
			id += int64(i)
		}
		if id < 0 || id >= int64(c.Layer.VocabSize) {
			l.err = fmt.Errorf("head %s: %s gives row %d token %d; tokens are 0..%d", src.Name(), name, i, id, c.Layer.VocabSize-1)
			return nil
		}
		out[i] = int32(id)
	}
	return out
}

// mlp loads the MLP of a head's layer.
func (l *loader) mlp(prefix string) (gateUp, down kernels.Weight) {
	return l.mlpOf(prefix, l.src.Config().IntermediateSize)
}

// buffers allocates activations, and remembers them, with the first error.
type buffers struct {
	be  kernels.Backend
	all []kernels.Buf
	err error
}

func (b *buffers) alloc(kind kernels.Kind, rows, cols int) kernels.Buf {
	if b.err != nil {
		return kernels.Buf{}
	}
	buf, err := b.be.Alloc(kernels.Activations, kind, rows, cols)
	if err != nil {
		b.err = err
		return buf
	}
	b.all = append(b.all, buf)
	return buf
}

func (b *buffers) free() {
	for _, buf := range b.all {
		b.be.Free(buf)
	}
	b.all = nil
}
