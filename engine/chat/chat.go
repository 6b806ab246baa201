// Package chat turns messages into the prompt that a model was trained on, by
// the chat template that comes with it: a Jinja template in
// tokenizer_config.json, in chat_template.jinja or in a GGUF file. The texts are
// those of apply_chat_template of Hugging Face transformers.
//
// [Load] finds the templates of a model's folder; [Parse] takes one from
// anywhere else. Templates are untrusted: package jinja bounds what they do.
package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"exacta.dev/exacta/engine/chat/jinja"
)

// Template is a chat template with the special tokens of its tokenizer. It does
// not change and is safe for concurrent use.
type Template struct {
	name     string
	template *jinja.Template
	tokens   map[string]string
	source   string
}

// Parse parses a template. The name is for errors. The tokens are the special
// tokens that a template may name, such as "bos_token": "<s>".
func Parse(name, source string, tokens map[string]string) (*Template, error) {
	t, err := jinja.Parse(name, source)
	if err != nil {
		return nil, fmt.Errorf("chat %w", err)
	}
	return &Template{name, t, tokens, source}, nil
}

// Name is the name that the template was parsed under.
func (t *Template) Name() string { return t.name }

// Source is the template's own text.
func (t *Template) Source() string { return t.source }

// Options say how messages are rendered. The zero value renders them as they
// are.
type Options struct {
	// AddGenerationPrompt ends the prompt with the beginning of an answer.
	AddGenerationPrompt bool
	// Continue leaves the last message open, so that the model goes on with it.
	Continue bool
	// Tools and Documents are what the model may use.
	Tools     Tools
	Documents Documents
	// Variables are further variables of the template, such as
	// enable_thinking.
	Variables Variables
	// Now is the clock of strftime_now; nil is the time of day, in local time.
	Now func() time.Time
	// Limits bound the work; zero fields take jinja's defaults.
	Limits jinja.Limits
}

// ErrTemplate is what an error of Render is, where the template itself refused
// the messages (by raise_exception).
var ErrTemplate = errors.New("the chat template refuses the messages")

// Render gives the prompt. Its special tokens are in the text: it is to be
// encoded without adding others.
func (t *Template) Render(m Messages, o Options) (string, error) {
	list := m.list
	if o.Continue {
		var err error
		if list, err = opened(list); err != nil {
			return "", err
		}
	}
	if list == nil {
		list = &jinja.List{}
	}
	vars := jinja.NewDict()
	vars.Set("messages", list)
	vars.Set("tools", orNone(o.Tools.list))
	vars.Set("documents", orNone(o.Documents.list))
	vars.Set("add_generation_prompt", o.AddGenerationPrompt)
	for name, text := range t.tokens {
		vars.Set(name, text)
	}
	for _, v := range o.Variables.list {
		vars.Set(v.name, v.val)
	}
	now := o.Now
	if now == nil {
		now = time.Now
	}
	text, err := t.template.Render(vars, o.Limits, now)
	if raised := (*jinja.Raised)(nil); errors.As(err, &raised) {
		return "", fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	if err != nil {
		return "", fmt.Errorf("chat %w", err)
	}
	if o.Continue {
		return t.cut(text, m)
	}
	return text, nil
}

func orNone(l *jinja.List) any {
	if l == nil {
		return nil
	}
	return l
}

// mark ends the last message while it is rendered, so that what the template
// puts behind it can be cut off.
const mark = "CONTINUE_FINAL_MESSAGE_TAG "

// opened is a copy of the messages whose last one ends in the mark.
func opened(l *jinja.List) (*jinja.List, error) {
	last, text, err := lastText(l)
	if err != nil {
		return nil, err
	}
	changed := jinja.NewDict()
	for _, k := range last.Keys() {
		v, _ := last.Get(k)
		changed.Set(k, v)
	}
	changed.Set("content", text+mark)
	items := append([]any{}, l.Items...)
	items[len(items)-1] = changed
	return &jinja.List{Items: items}, nil
}

func lastText(l *jinja.List) (*jinja.Dict, string, error) {
	if l == nil || len(l.Items) == 0 {
		return nil, "", errors.New("there is no last message to continue")
	}
	last := l.Items[len(l.Items)-1].(*jinja.Dict)
	content, _ := last.Get("content")
	text, ok := content.(string)
	if !ok {
		return nil, "", errors.New("the last message can't be continued: its content is no text")
	}
	return last, text, nil
}

// cut takes the mark and what follows it off.
func (t *Template) cut(text string, m Messages) (string, error) {
	_, final, err := lastText(m.list)
	if err != nil {
		return "", err
	}
	at := strings.LastIndex(text, strings.TrimSpace(mark))
	if at < 0 || !strings.Contains(text, strings.TrimSpace(final)) {
		return "", fmt.Errorf("chat template %s: the last message can't be continued: it does not appear in the prompt as it is", t.name)
	}
	if strings.HasPrefix(text[at:], mark) {
		return text[:at], nil
	}
	return strings.TrimRight(text[:at], " \t\r\n"), nil // the template trims messages
}
