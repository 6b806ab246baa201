package chat

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/engine/chat/jinja"
)

// Messages is a conversation: objects with a role, and as a rule a content,
// with whatever else a template reads (tool_calls, reasoning_content and so on).
type Messages struct{ list *jinja.List }

// Message is a message of text.
type Message struct{ Role, Content string }

// NewMessages makes a conversation of texts.
func NewMessages(list ...Message) Messages {
	l := &jinja.List{}
	for _, m := range list {
		d := jinja.NewDict()
		d.Set("role", m.Role)
		d.Set("content", m.Content)
		l.Items = append(l.Items, d)
	}
	return Messages{l}
}

// Len is the number of messages.
func (m Messages) Len() int {
	if m.list == nil {
		return 0
	}
	return len(m.list.Items)
}

// ParseMessages reads a JSON list of messages, as chat completion requests have
// them; the order of keys and the kinds of numbers reach the template.
func ParseMessages(text []byte) (Messages, error) {
	l, err := objects(text, "messages")
	if err != nil {
		return Messages{}, err
	}
	if len(l.Items) == 0 {
		return Messages{}, errors.New("messages: the list is empty")
	}
	for i, m := range l.Items {
		role, _ := m.(*jinja.Dict).Get("role")
		if s, ok := role.(string); !ok || s == "" {
			return Messages{}, fmt.Errorf("messages[%d]: role is missing, or no text", i)
		}
	}
	return Messages{l}, nil
}

// Tools is a list of tools, each an object as in chat completion requests. The
// zero value is none.
type Tools struct{ list *jinja.List }

// ParseTools reads a JSON list of tools; null is none.
func ParseTools(text []byte) (Tools, error) {
	if string(text) == "null" {
		return Tools{}, nil
	}
	l, err := objects(text, "tools")
	return Tools{l}, err
}

// None reports whether there are no tools.
func (t Tools) None() bool { return t.list == nil || len(t.list.Items) == 0 }

// Documents is a list of documents, each an object. The zero value is none.
type Documents struct{ list *jinja.List }

// ParseDocuments reads a JSON list of documents; null is none.
func ParseDocuments(text []byte) (Documents, error) {
	if string(text) == "null" {
		return Documents{}, nil
	}
	l, err := objects(text, "documents")
	return Documents{l}, err
}

func objects(text []byte, name string) (*jinja.List, error) {
	v, err := jinja.ParseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l, ok := v.(*jinja.List)
	if !ok {
		return nil, fmt.Errorf("%s: it must be a list of objects", name)
	}
	for i, x := range l.Items {
		if _, ok := x.(*jinja.Dict); !ok {
			return nil, fmt.Errorf("%s[%d]: it must be an object", name, i)
		}
	}
	return l, nil
}

// Variables are variables for a template, in order. The zero value is none.
type Variables struct{ list []variable }

type variable struct {
	name string
	val  any
}

// Set adds a variable whose value is JSON, such as "enable_thinking" and
// "false".
func (v *Variables) Set(name string, value []byte) error {
	if name == "messages" || name == "" {
		return fmt.Errorf("variable %q: this name can't be set", name)
	}
	x, err := jinja.ParseJSON(value)
	if err != nil {
		return fmt.Errorf("variable %s: %w", name, err)
	}
	v.list = append(v.list, variable{name, x})
	return nil
}
