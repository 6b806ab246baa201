package experiments

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"exacta.dev/exacta/engine/chat"
	"exacta.dev/exacta/engine/registry"
)

// Prompt is a prompt ready to run.
type Prompt struct {
	ID    string  `json:"id"`
	Class string  `json:"class"`
	IDs   []int32 `json:"prompt_ids"`
}

// promptLine is a line of a prompt file: exacta's own, or a question of
// Spec-Bench and MT-Bench.
type promptLine struct {
	ID         string   `json:"id"`
	QuestionID any      `json:"question_id"`
	Class      string   `json:"class"`
	Category   string   `json:"category"`
	Prompt     *string  `json:"prompt"`
	Turns      []string `json:"turns"`
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
	return parsePrompts(p.File, text)
}

// parsePrompts reads a JSONL file of prompts.
func parsePrompts(name string, text []byte) ([]registry.Prompt, error) {
	var out []registry.Prompt
	seen := map[string]int{} // line by id
	for i, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("%s:%d: not valid UTF-8", name, i+1)
		}
		var l promptLine
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		q := registry.Prompt{ID: l.ID, Class: l.Class}
		switch {
		case l.Prompt != nil:
			q.Text = *l.Prompt
		case len(l.Turns) > 0:
			q.Text = l.Turns[0]
		default:
			return nil, fmt.Errorf("%s:%d: neither \"prompt\" nor \"turns\" is there", name, i+1)
		}
		if q.Text == "" {
			return nil, fmt.Errorf("%s:%d: the prompt is empty", name, i+1)
		}
		if q.ID == "" && l.QuestionID != nil {
			q.ID = fmt.Sprint(l.QuestionID)
		}
		if q.ID == "" {
			q.ID = fmt.Sprintf("line-%d", i+1)
		}
		if at := seen[q.ID]; at > 0 {
			return nil, fmt.Errorf("%s:%d: id %q is that of line %d; each prompt needs its own", name, i+1, q.ID, at)
		}
		seen[q.ID] = i + 1
		if q.Class == "" {
			q.Class = l.Category
		}
		out = append(out, q)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no prompts", name)
	}
	return out, nil
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
