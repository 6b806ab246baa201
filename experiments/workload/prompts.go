package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"exacta.dev/exacta/engine/registry"
)

func init() {
	RegisterSource(Info[Source]{"prompts", "the prompts of a JSONL file, by a mapping of its fields, or those that come with the model", func() Source {
		return &Prompts{Format: "exacta", Output: 128}
	}})
}

// Mapping says where the lines of a JSONL file have what. Id and class are paths
// into the object: names and indices joined by dots (turns.0), alternatives joined
// by | of which the first that is there is taken. Prompt is a text with such paths
// in braces.
type Mapping struct {
	ID     string `yaml:"id"`
	Class  string `yaml:"class"`
	Prompt string `yaml:"prompt"`
	// Until, if not empty, ends the prompt behind its first occurrence.
	Until string `yaml:"until"`
}

// Formats are the mappings that have names.
var Formats = map[string]Mapping{
	"exacta":     {ID: "id|question_id", Class: "class|category", Prompt: "{prompt|turns.0}"},
	"spec-bench": {ID: "question_id", Class: "category", Prompt: "{turns.0}"},
	"mt-bench":   {ID: "question_id", Class: "category", Prompt: "{turns.0}"},
	"humaneval":  {ID: "task_id", Prompt: "{prompt}"},
	"gsm8k":      {Prompt: "{question}"},
	"dolly":      {Class: "category", Prompt: "{context}\n\n{instruction}"},
	"longbench":  {ID: "_id", Class: "dataset", Prompt: "{context}\n\n{input}"},
	"math":       {ID: "unique_id", Class: "subject", Prompt: "{problem}"},
	"glaive":     {Prompt: "{system}\n\n{chat}", Until: "ASSISTANT:"},
	"sharegpt":   {ID: "id", Prompt: "{conversations.0.value}"},
	"bfcl":       {ID: "id", Prompt: "{question.0.0.content}"},
}

// Prompts is the source of prompt sets.
type Prompts struct {
	// File is a JSONL file; empty takes the prompts that come with the model.
	File string `yaml:"file"`
	// Format names a mapping of Formats; Fields, if its prompt is not empty,
	// is the mapping itself.
	Format string  `yaml:"format"`
	Fields Mapping `yaml:"fields"`
	// Classes keeps prompts of these classes; empty keeps all.
	Classes []string `yaml:"classes"`
	// Sessions is the number of requests: more than there are prompts ask them
	// again. 0 asks each once.
	Sessions int `yaml:"sessions"`
	// Shuffle asks in an order that the seed decides.
	Shuffle bool `yaml:"shuffle"`
	// Chat puts each to the model as what a user says.
	Chat bool `yaml:"chat"`
	// MaxInput cuts prompts to their last so many tokens; 0 does not.
	MaxInput int `yaml:"max_input"`
	// Output is the number of tokens of each answer; with Stop they may be
	// fewer, where the model ends its text.
	Output int  `yaml:"output"`
	Stop   bool `yaml:"stop"`
}

// Validate implements Source.
func (s *Prompts) Validate() error {
	switch _, known := Formats[s.Format]; {
	case !known && s.Fields.Prompt == "":
		return fmt.Errorf("format %q is not known; it is one of %s, or give fields", s.Format, strings.Join(formats(), ", "))
	case s.Sessions < 0 || s.Sessions > maxSessions:
		return fmt.Errorf("sessions is %d; it is 0 to %d", s.Sessions, maxSessions)
	case s.Output < 1 || s.Output > maxTokens:
		return fmt.Errorf("output is %d; it is 1 to %d tokens", s.Output, maxTokens)
	case s.MaxInput < 0:
		return fmt.Errorf("max_input is %d; it is not negative", s.MaxInput)
	case s.Chat && s.MaxInput > 0:
		return errors.New("max_input would cut off what the chat template begins with; leave it out with chat")
	}
	return nil
}

func formats() []string {
	var names []string
	for name := range Formats {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Load implements Source.
func (s *Prompts) Load(env Env) ([]Session, error) {
	set, err := s.load(env)
	if err != nil {
		return nil, err
	}
	if len(s.Classes) > 0 {
		all := len(set)
		set = slices.DeleteFunc(set, func(p registry.Prompt) bool { return !slices.Contains(s.Classes, p.Class) })
		if len(set) == 0 {
			return nil, fmt.Errorf("none of %d prompts is of classes %v", all, s.Classes)
		}
	}
	if s.Shuffle {
		env.rand(forOrder).Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
	}
	n := s.Sessions
	if n == 0 {
		n = len(set)
	}
	made := make([]Request, min(n, len(set)))
	for i := range made {
		if made[i], err = s.request(&env, set[i]); err != nil {
			return nil, err
		}
	}
	out := make([]Session, n)
	for i := range out {
		r := made[i%len(made)]
		if round := i / len(made); round > 0 {
			r.ID = fmt.Sprintf("%s+%d", r.ID, round)
		}
		out[i] = Session{ID: r.ID, Requests: []Request{r}}
	}
	return out, nil
}

func (s *Prompts) load(env Env) ([]registry.Prompt, error) {
	if s.File == "" {
		if env.Prompts == nil {
			return nil, errors.New("no prompts come with the model; give a file")
		}
		set, err := env.Prompts()
		if err == nil && len(set) == 0 {
			err = errors.New("no prompts come with the model; give a file")
		}
		return set, err
	}
	text, err := os.ReadFile(s.File)
	if err != nil {
		return nil, fmt.Errorf("prompts: %w", err)
	}
	m := s.Fields
	if m.Prompt == "" {
		m = Formats[s.Format]
	}
	return ParsePrompts(s.File, text, m)
}

func (s *Prompts) request(env *Env, p registry.Prompt) (Request, error) {
	r := Request{ID: p.ID, Class: p.Class, MaxTokens: s.Output, Exact: !s.Stop}
	if env.Encode == nil {
		if s.Chat || s.MaxInput > 0 {
			return r, errors.New("chat and max_input need a model with a tokenizer")
		}
		r.Text = p.Text
		return r, nil
	}
	var err error
	if r.Tokens, err = env.Encode(p.Text, s.Chat); err != nil {
		return r, fmt.Errorf("prompt %s: %w", p.ID, err)
	}
	if s.MaxInput > 0 && len(r.Tokens) > s.MaxInput {
		r.Tokens = r.Tokens[len(r.Tokens)-s.MaxInput:]
	}
	return r, nil
}

// ParsePrompts reads a JSONL file of prompts by a mapping. Errors name file and
// line.
func ParsePrompts(name string, text []byte, m Mapping) ([]registry.Prompt, error) {
	var out []registry.Prompt
	seen := map[string]int{} // line by id
	for i, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		p, err := m.parse(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		if p.ID == "" {
			p.ID = fmt.Sprintf("line-%d", i+1)
		}
		if at := seen[p.ID]; at > 0 {
			return nil, fmt.Errorf("%s:%d: id %q is that of line %d; each prompt needs its own", name, i+1, p.ID, at)
		}
		seen[p.ID] = i + 1
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no prompts", name)
	}
	return out, nil
}

// parse reads a line.
func (m *Mapping) parse(line []byte) (p registry.Prompt, err error) {
	if !utf8.Valid(line) {
		return p, errors.New("not valid UTF-8")
	}
	var object map[string]any
	in := json.NewDecoder(bytes.NewReader(line))
	in.UseNumber()
	if err := in.Decode(&object); err != nil {
		return p, err
	}
	if in.More() {
		return p, errors.New("more than one JSON value in the line")
	}
	p.ID, _, err = lookUp(object, m.ID, true)
	if err == nil {
		p.Class, _, err = lookUp(object, m.Class, true)
	}
	if err == nil {
		p.Text, err = fill(object, m.Prompt)
	}
	if err != nil {
		return p, err
	}
	p.Text = strings.TrimLeft(p.Text, "\n") // of a field in front that is empty
	if m.Until != "" {
		before, _, found := strings.Cut(p.Text, m.Until)
		if !found {
			return p, fmt.Errorf("the prompt has no %q", m.Until)
		}
		p.Text = before + m.Until
	}
	if p.Text == "" {
		return p, errors.New("the prompt is empty")
	}
	return p, nil
}

// fill puts the fields of an object into a text.
func fill(object map[string]any, text string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		path, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", fmt.Errorf("mapping %q has a brace that is not closed", text)
		}
		v, there, err := lookUp(object, path, false)
		if err != nil {
			return "", err
		}
		if !there {
			return "", fmt.Errorf("%q is not there", strings.Split(path, "|"))
		}
		b.WriteString(v)
		text = after
	}
}

// lookUp finds the first of several paths that is there. Values are texts, or with
// numbers also numbers; null counts as not there.
func lookUp(object map[string]any, paths string, numbers bool) (text string, there bool, err error) {
	if paths == "" {
		return "", false, nil
	}
	for path := range strings.SplitSeq(paths, "|") {
		switch v := walk(object, path).(type) {
		case nil:
		case string:
			return v, true, nil
		case json.Number:
			if !numbers {
				return "", false, fmt.Errorf("%q is a number, not a text", path)
			}
			return v.String(), true, nil
		default:
			return "", false, fmt.Errorf("%q is neither a text nor a number", path)
		}
	}
	return "", false, nil
}

// walk follows a path; nil where it leads nowhere.
func walk(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[name]
		case []any:
			i := -1
			if _, err := fmt.Sscanf(name, "%d", &i); err != nil || i < 0 || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}
