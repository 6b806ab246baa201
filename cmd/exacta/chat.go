package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/engine/chat"
)

// chatFlags say how a prompt is made of messages.
type chatFlags struct {
	chat                    bool
	system, messages, tools string
	template                string
	vars                    []string
}

func (f *chatFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.chat, "chat", false, "the prompt is what a user says; the model's chat template makes the prompt of it")
	cmd.Flags().StringVar(&f.system, "system", "", "with --chat: a system message before it")
	cmd.Flags().StringVar(&f.messages, "messages", "", "a JSON file with a list of messages, in the place of a prompt")
	cmd.Flags().StringVar(&f.tools, "tools", "", "with --chat or --messages: a JSON file with a list of tools")
	cmd.Flags().StringVar(&f.template, "chat-template", "", "the name of one of the model's templates, or a file (*.jinja)")
	cmd.Flags().StringArrayVar(&f.vars, "template-var", nil, "NAME=JSON, a variable for the template, such as enable_thinking=false; may be repeated")
}

// active reports whether messages are rendered.
func (f *chatFlags) active() bool { return f.chat || f.messages != "" }

// args is how many arguments there must be: a prompt, unless a file has it.
func (f *chatFlags) args(cmd *cobra.Command, args []string) error {
	if f.messages != "" {
		if len(args) > 0 {
			return errors.New("a prompt and --messages: give one of them")
		}
		return nil
	}
	return cobra.ExactArgs(1)(cmd, args)
}

// check names the first flag that has no use.
func (f *chatFlags) check() error {
	for name, set := range map[string]bool{
		"system": f.system != "", "tools": f.tools != "", "chat-template": f.template != "", "template-var": len(f.vars) > 0,
	} {
		if set && !f.active() {
			return fmt.Errorf("--%s without --chat or --messages", name)
		}
	}
	if f.system != "" && f.messages != "" {
		return errors.New("--system and --messages: put the system message into the file")
	}
	return nil
}

// render makes the prompt of a model.
func (f *chatFlags) render(l *loaded, prompt string) (string, error) {
	o := chat.Options{AddGenerationPrompt: true}
	messages, err := f.conversation(prompt)
	if err != nil {
		return "", err
	}
	if f.tools != "" {
		text, err := os.ReadFile(f.tools)
		if err == nil {
			o.Tools, err = chat.ParseTools(text)
		}
		if err != nil {
			return "", fmt.Errorf("--tools %s: %w", f.tools, err)
		}
	}
	for _, v := range f.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return "", fmt.Errorf("--template-var %q; it must be NAME=JSON", v)
		}
		if err := o.Variables.Set(name, []byte(value)); err != nil {
			return "", fmt.Errorf("--template-var %s: %w", v, err)
		}
	}
	t, err := f.pick(l, !o.Tools.None())
	if err != nil {
		return "", err
	}
	return t.Render(messages, o)
}

func (f *chatFlags) conversation(prompt string) (chat.Messages, error) {
	if f.messages == "" {
		list := []chat.Message{{Role: "user", Content: prompt}}
		if f.system != "" {
			list = append([]chat.Message{{Role: "system", Content: f.system}}, list...)
		}
		return chat.NewMessages(list...), nil
	}
	text, err := os.ReadFile(f.messages)
	if err != nil {
		return chat.Messages{}, fmt.Errorf("--messages: %w", err)
	}
	m, err := chat.ParseMessages(text)
	if err != nil {
		err = fmt.Errorf("--messages %s: %w", f.messages, err)
	}
	return m, err
}

// pick gives the template: the model's, or that of a file, which has the
// special tokens of the model all the same.
func (f *chatFlags) pick(l *loaded, tools bool) (*chat.Template, error) {
	if !strings.HasSuffix(f.template, ".jinja") {
		set, err := l.Chat()
		if errors.Is(err, chat.ErrNone) {
			return nil, fmt.Errorf("%w; give one by --chat-template FILE.jinja, or a prompt without --chat", err)
		}
		if err != nil {
			return nil, err
		}
		return set.Pick(f.template, tools)
	}
	text, err := os.ReadFile(f.template)
	if err != nil {
		return nil, fmt.Errorf("--chat-template: %w", err)
	}
	tokens, err := l.SpecialTokens()
	if err != nil {
		return nil, err
	}
	return chat.Parse(f.template, string(text), tokens)
}
