package experiments

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"exacta.dev/exacta/engine/chat"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/experiments/workload"
)

// Prompt is a prompt ready to run.
type Prompt struct {
	ID    string  `json:"id"`
	Class string  `json:"class"`
	IDs   []int32 `json:"prompt_ids"`
}

// Kinds of prompts.
const (
	kindText       = "text"
	kindRepetitive = "repetitive"
	kindRandom     = "random"
)

// LoadPrompts reads, filters and tokenises the prompts of an experiment.
func LoadPrompts(p Prompts, e *registry.Entry) ([]Prompt, error) {
	if len(p.Sets) == 0 {
		return loadSet(p, e)
	}
	var out []Prompt
	seen := map[string]bool{}
	for i, s := range p.Sets {
		set, err := loadSet(s, e)
		if err != nil {
			return nil, fmt.Errorf("prompts.sets[%d]: %w", i, err)
		}
		for _, q := range set {
			if seen[q.ID] {
				return nil, fmt.Errorf("prompts.sets[%d]: prompt %q is in a set before it; each prompt needs its own id", i, q.ID)
			}
			seen[q.ID] = true
			out = append(out, q)
		}
	}
	return out, nil
}

func loadSet(p Prompts, e *registry.Entry) ([]Prompt, error) {
	switch p.Kind {
	case kindRandom:
		return randomPrompts(p, e.Vocab()), nil
	case kindRepetitive:
		return repetitivePrompts(p, e)
	}
	return textPrompts(p, e)
}

// repeated is the length of what a repetitive prompt repeats, in tokens;
// promptTokens that of prompts which are made, where nothing else is asked for.
const repeated, promptTokens = 24, 128

// repetitivePrompts makes prompts that repeat the end of a text.
func repetitivePrompts(p Prompts, e *registry.Entry) ([]Prompt, error) {
	length := p.MaxTokens
	if length == 0 {
		length = promptTokens
	}
	p.MaxTokens = repeated
	texts, err := textPrompts(p, e)
	if err != nil {
		return nil, err
	}
	for i := range texts {
		t := &texts[i]
		t.ID, t.Class = kindRepetitive+"-"+t.ID, kindRepetitive
		part := t.IDs
		t.IDs = make([]int32, length)
		for j := range t.IDs {
			t.IDs[j] = part[j%len(part)]
		}
	}
	return texts, nil
}

func textPrompts(p Prompts, e *registry.Entry) ([]Prompt, error) {
	texts, err := promptTexts(p, e)
	if err != nil {
		return nil, err
	}
	if e.Tokenizer == nil && texts == nil {
		return randomPrompts(p, e.Vocab()), nil
	}
	if e.Tokenizer == nil {
		return nil, fmt.Errorf("prompts.file: model %s has no tokenizer, so its prompts can't be text; leave prompts.file out for random ids", e.Name)
	}
	encode, err := encoder(p, e)
	if err != nil {
		return nil, err
	}
	var out []Prompt
	for _, t := range texts {
		if len(p.Classes) > 0 && !slices.Contains(p.Classes, t.Class) {
			continue
		}
		if p.Limit > 0 && len(out) == p.Limit {
			break
		}
		if !utf8.ValidString(t.Text) {
			return nil, fmt.Errorf("prompt %s is not valid UTF-8", t.ID)
		}
		ids, err := encode(t.Text)
		if err != nil {
			return nil, fmt.Errorf("prompt %s: %w", t.ID, err)
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("prompt %s is empty", t.ID)
		}
		if p.MaxTokens > 0 && len(ids) > p.MaxTokens {
			ids = ids[len(ids)-p.MaxTokens:]
		}
		out = append(out, Prompt{ID: t.ID, Class: t.Class, IDs: ids})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("prompts: none is left of %d after the filter classes %v", len(texts), p.Classes)
	}
	return out, nil
}

// ChatClock is the time in chat templates of experiments.
var ChatClock = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// encoder gives what makes ids of a prompt's text: the tokenizer, or with chat the
// model's chat template before it.
func encoder(p Prompts, e *registry.Entry) (func(text string) ([]int32, error), error) {
	if !p.Chat {
		return func(text string) ([]int32, error) { return e.Tokenizer.Encode(text, true), nil }, nil
	}
	set, err := e.Chat()
	if err != nil {
		return nil, fmt.Errorf("prompts.chat: %w", err)
	}
	t, err := set.Pick("", false)
	if err != nil {
		return nil, fmt.Errorf("prompts.chat: %w", err)
	}
	return func(text string) ([]int32, error) {
		rendered, err := t.Render(chat.NewMessages(chat.Message{Role: "user", Content: text}), chat.Options{
			AddGenerationPrompt: true, Now: func() time.Time { return ChatClock },
		})
		// The template has the special tokens itself.
		return e.Tokenizer.Encode(rendered, false), err
	}, nil
}

func promptTexts(p Prompts, e *registry.Entry) ([]registry.Prompt, error) {
	if p.File == "" {
		return e.Prompts()
	}
	text, err := os.ReadFile(p.File)
	if err != nil {
		return nil, fmt.Errorf("prompts.file: %w", err)
	}
	return workload.ParsePrompts(p.File, text, workload.Formats["exacta"])
}

// randomPrompts makes prompts of random ids.
func randomPrompts(p Prompts, vocab int) []Prompt {
	n, length := p.Limit, p.MaxTokens
	if n == 0 {
		n = 8
	}
	if length == 0 {
		length = promptTokens
	}
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]Prompt, n)
	for i := range out {
		out[i] = Prompt{ID: fmt.Sprintf("%s-%d", kindRandom, i), Class: kindRandom}
		for range length {
			out[i].IDs = append(out[i].IDs, int32(r.IntN(vocab)))
		}
	}
	return out
}
