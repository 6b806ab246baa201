package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// The files that hold templates.
const (
	configFile   = "tokenizer_config.json"
	templateFile = "chat_template.jinja"
	templateDir  = "additional_chat_templates"
)

// The names of templates that have a meaning of their own.
const (
	defaultName = "default"
	toolsName   = "tool_use" // used by itself where there are tools
)

// maxConfig is the most that is read of a file, in bytes.
const maxConfig = 32 << 20

// ErrNone says that a model has no chat template.
var ErrNone = errors.New("the model has no chat template")

// Set is the chat templates of a model.
type Set struct{ templates map[string]*Template }

// NewSet is a set of one template.
func NewSet(t *Template) *Set { return &Set{map[string]*Template{defaultName: t}} }

// tokenizerConfig is what is read of tokenizer_config.json.
type tokenizerConfig struct {
	ChatTemplate json.RawMessage `json:"chat_template"`
}

// Files are the files of a model. An error for one that is not there satisfies
// errors.Is(err, fs.ErrNotExist). Where they can be listed (fs.ReadDirFS),
// templates in a folder of their own are found too.
type Files interface {
	ReadFile(name string) ([]byte, error)
}

// Load finds the templates of a model's folder: chat_template.jinja and
// additional_chat_templates/NAME.jinja, or else chat_template in
// tokenizer_config.json, which is one text or a list of named ones. A folder
// without any gives an error that is ErrNone.
func Load(files Files) (*Set, error) {
	config, err := readFile(files, configFile)
	if err != nil {
		return nil, err
	}
	tokens, err := specialTokens(config)
	if err != nil {
		return nil, err
	}
	sources, err := fileSources(files)
	if err == nil && len(sources) == 0 {
		sources, err = configSources(config)
	}
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, ErrNone
	}
	s := &Set{map[string]*Template{}}
	for name, source := range sources {
		if s.templates[name], err = Parse(name, source, tokens); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// readFile gives a file's text; "" where there is none.
func readFile(files Files, name string) (string, error) {
	text, err := files.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case len(text) > maxConfig:
		return "", fmt.Errorf("%s: it has %d bytes; at most %d are read", name, len(text), maxConfig)
	}
	return string(text), nil
}

// fileSources gives the templates that are files of their own.
func fileSources(files Files) (map[string]string, error) {
	out := map[string]string{}
	text, err := readFile(files, templateFile)
	if err != nil {
		return nil, err
	}
	if text != "" {
		out[defaultName] = text
	}
	listed, ok := files.(fs.ReadDirFS)
	if !ok {
		return out, nil
	}
	entries, err := listed.ReadDir(templateDir)
	if err != nil {
		return out, nil // no such folder
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".jinja")
		if !ok || e.IsDir() {
			continue
		}
		if out[name], err = readFile(files, path.Join(templateDir, e.Name())); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// configSources gives the templates in tokenizer_config.json.
func configSources(config string) (map[string]string, error) {
	if config == "" {
		return nil, nil
	}
	var c tokenizerConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	if len(c.ChatTemplate) == 0 || string(c.ChatTemplate) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(c.ChatTemplate, &one) == nil {
		return map[string]string{defaultName: one}, nil
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(c.ChatTemplate, &list); err != nil {
		return nil, fmt.Errorf("%s: chat_template must be a text, or a list of objects with name and template", configFile)
	}
	out := map[string]string{}
	for i, t := range list {
		if t.Name == "" || t.Template == "" {
			return nil, fmt.Errorf("%s: chat_template[%d] must have a name and a template", configFile, i)
		}
		out[t.Name] = t.Template
	}
	return out, nil
}

// SpecialTokens gives the special tokens in a model's tokenizer_config.json, by
// their keys: bos_token and so on.
func SpecialTokens(files Files) (map[string]string, error) {
	config, err := readFile(files, configFile)
	if err != nil {
		return nil, err
	}
	return specialTokens(config)
}

// specialTokens reads the special tokens of tokenizer_config.json: keys that
// end in _token, texts or objects with a content.
func specialTokens(config string) (map[string]string, error) {
	out := map[string]string{}
	if config == "" {
		return out, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(config), &all); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	for name, raw := range all {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		var object struct {
			Content *string `json:"content"`
		}
		var text *string
		if json.Unmarshal(raw, &text) == nil && text != nil {
			out[name] = *text
		} else if json.Unmarshal(raw, &object) == nil && object.Content != nil {
			out[name] = *object.Content
		}
	}
	return out, nil
}

// Names lists the templates, sorted.
func (s *Set) Names() []string {
	var out []string
	for name := range s.templates {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Pick gives the template of a name. Without a name it is the one for tools
// where there are tools and such a template, else the default.
func (s *Set) Pick(name string, tools bool) (*Template, error) {
	if name == "" {
		name = defaultName
		if _, ok := s.templates[toolsName]; ok && tools {
			name = toolsName
		}
	}
	t, ok := s.templates[name]
	if !ok {
		return nil, fmt.Errorf("there is no chat template %q; the model has %s", name, strings.Join(s.Names(), ", "))
	}
	return t, nil
}
