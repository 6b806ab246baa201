package draft

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
)

func init() {
	Register(Info{
		Name:    "model",
		Summary: "a second language model, usually a smaller one of the same family and vocabulary, drafts token after token (Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318)",
		New:     func() Strategy { return &Model{} },
	})
}

// Model configures the strategy that drafts with a language model of its own caches.
// The number of drafts is the request's.
type Model struct {
	// Model is the model that drafts: a directory, embedded, random:SHAPE, or
	// random for random weights of half of the target's layers and its
	// vocabulary, to see what drafting costs. Empty takes the target itself,
	// which accepts every greedy draft and gains nothing: a check.
	Model string `yaml:"model" json:"model"`
	// Translate lets the draft model have another vocabulary: a token goes
	// over as the one of the same bytes. A token of the target that the draft
	// model lacks is read as the longest token that it ends in, one of the
	// draft model that the target lacks is drafted as the longest one that it
	// begins with.
	Translate bool `yaml:"translate" json:"translate"`
	// Sample draws drafts as MTP.Sample does.
	Sample bool `yaml:"sample" json:"sample"`
}

// Validate implements Strategy.
func (*Model) Validate() error { return nil }

// Provision implements Strategy. The draft model is loaded on the target's backend,
// once.
func (c *Model) Provision(env Env) (engine.Drafter, error) {
	t, err := c.trunk(env)
	if err != nil {
		return nil, fmt.Errorf("draft model: %w", err)
	}
	return newRecursive("model", t, env, c.Sample), nil
}

// trunk loads the draft model.
func (c *Model) trunk(env Env) (t trunk, err error) {
	whole := func(m *model.Model) trunk { return trunk{m: m, layers: len(m.Layers()), own: true} }
	target := env.Model
	switch c.Model {
	case "", target.Name:
		if env.Warn != nil {
			env.Warn("draft model: the target drafts for itself, which accepts every greedy draft and can't be faster; model: names another one")
		}
		return whole(target), nil
	case model.RandomHead:
		m, err := c.load(env, halved(target))
		if err != nil {
			return t, err
		}
		return whole(m), nil
	}
	entry, err := registry.Open(c.Model)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, entry.Close()) }()
	words, err := c.agree(env, entry)
	if err != nil {
		return t, err
	}
	m, err := c.load(env, entry.Source)
	if err != nil {
		return t, err
	}
	t = whole(m)
	t.inputs, t.outputs = words.inputs, words.outputs
	return t, nil
}

// load takes a draft model into the target's backend.
func (c *Model) load(env Env, src model.Source) (*model.Model, error) {
	context := env.Model.MaxTokens
	return env.Model.Companion(c.Model, func() (*model.Model, error) {
		if most := src.Config().MaxPositions; most < context {
			return nil, fmt.Errorf("%s reads at most %d tokens (max_position_embeddings), and the context of %s is %d; ask for a context of at most %d",
				src.Name(), most, env.Model.Name, context, most)
		}
		return model.Load(env.Model.Backend(), src, model.Options{MaxTokens: context})
	})
}

// halved is a model of random weights with every second layer of a target.
func halved(target *model.Model) model.Source {
	c := target.Config
	kinds := c.LayerTypes
	c.LayerTypes = nil
	for i := 1 - len(kinds)%2; i < len(kinds); i += 2 {
		c.LayerTypes = append(c.LayerTypes, kinds[i])
	}
	c.NumLayers = len(c.LayerTypes)
	return model.Random{ShapeName: target.Name + "/draft", Shape: c, Seed: 2}
}

// agree sees that the draft model's vocabulary is the target's, or translates.
func (c *Model) agree(env Env, entry *registry.Entry) (w words, err error) {
	mine, yours := vocabulary{entry.Tokenizer, entry.Vocab(), entry.Name}, vocabulary{env.Tokenizer, env.Vocab, env.Model.Name}
	most := entry.Source.Config().VocabSize
	other := mine.differs(yours)
	switch {
	case other == "":
		w = identity(env.Model.Config.VocabSize, most, min(mine.size, yours.size))
	case !c.Translate:
		err = fmt.Errorf("models %s and %s have different vocabularies: %s; name a model of the vocabulary of %s, or set translate: true",
			mine.name, yours.name, other, yours.name)
	case mine.tok == nil || yours.tok == nil:
		err = fmt.Errorf("translate: models %s and %s have different vocabularies: %s; translation needs tokenizer.json of both", mine.name, yours.name, other)
	default:
		w, err = translate(yours, mine, env.Model.Config.VocabSize)
	}
	return w, err
}
