package trial

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
)

// Context is the longest sequence of a machine, in tokens.
const Context = 384

// Machine is a model loaded on a backend of one thread, on which runs are made
// one after another.
type Machine struct {
	Entry   *registry.Entry
	Backend kernels.Backend
	Model   *model.Model
	// Tokens are the bytes of the tokens, for grammars.
	Tokens *grammar.Vocabulary
	pool   [][]int32 // prompts

	device   *device  // the backend, of a machine whose loop decodes
	onDevice *Machine // that machine, once a run has needed it
}

// Open loads a model by the name that the registry knows.
func Open(name string) (m *Machine, err error) {
	m = &Machine{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
			m = nil
		}
	}()
	if m.Entry, err = registry.Open(name); err != nil {
		return m, err
	}
	if m.Entry.Tokenizer == nil {
		return m, fmt.Errorf("model %s has no tokenizer; trials need prompts of text", name)
	}
	prompts, err := m.Entry.Prompts()
	if err != nil {
		return m, err
	}
	for _, p := range prompts {
		if ids := m.Entry.Tokenizer.Encode(p.Text, false); len(ids) >= minPrompt {
			m.pool = append(m.pool, ids)
		}
	}
	if len(m.pool) < 8 {
		return m, fmt.Errorf("model %s brings %d prompts of %d tokens; trials need 8", name, len(m.pool), minPrompt)
	}
	m.Tokens = vocabulary(m.Entry)
	be, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		return m, err
	}
	m.Backend = be
	m.Model, err = model.Load(be, m.Entry.Source, model.Options{MaxTokens: Context, MTP: true})
	return m, err
}

// Close frees the model.
func (m *Machine) Close() error {
	var err error
	if m.Backend != nil {
		err = m.Backend.Close()
	}
	if m.onDevice != nil {
		err = errors.Join(err, m.onDevice.Backend.Close())
	}
	if m.Entry != nil {
		err = errors.Join(err, m.Entry.Close())
	}
	return err
}

// minPrompt is the length of the shortest prompt that trials cut theirs from.
const minPrompt = 64

// vocabulary returns the bytes of an entry's tokens, special ones without any.
func vocabulary(e *registry.Entry) *grammar.Vocabulary {
	text := make([][]byte, e.Vocab())
	for id := range text {
		if t := e.Tokenizer; t.Known(int32(id)) && !t.IsSpecial(int32(id)) {
			text[id] = t.TokenBytes(int32(id))
		}
	}
	return grammar.NewVocabulary(text, e.Source.Config().EOS)
}

// Strategies that are not the name of a drafter.
const (
	// SampledMTP is mtp that draws its drafts.
	SampledMTP = "mtp sampled"
	// Known lets mtp do its work and proposes in the place of its drafts what
	// plain decoding will say.
	Known = "known"
)

// Drafter makes the drafter of a strategy: a name of package draft, SampledMTP or
// Known. plain gives the continuation of a sequence's prompt, for Known.
func (m *Machine) Drafter(name string, plain func(*engine.Sequence) []int32) (engine.Drafter, error) {
	base := name
	if name == SampledMTP || name == Known {
		base = "mtp"
	}
	st, err := draft.New(base)
	if err != nil {
		return nil, err
	}
	if c, ok := st.(*draft.MTP); ok {
		c.Sample = name == SampledMTP
	}
	d, err := st.Provision(draft.Env{Backend: m.Backend, Model: m.Model, Vocab: m.Entry.Vocab(), Tokenizer: m.Entry.Tokenizer})
	if err == nil && name == Known {
		d = knowing(d, plain)
	}
	return d, err
}
