package server

import (
	"encoding/json"
	"strings"

	"exacta.dev/exacta/engine/chat"
)

// family is how the models of a family write reasoning and tool calls.
type family struct {
	name string
	// thinkOpen and thinkClose enclose reasoning; empty where there is none.
	thinkOpen, thinkClose string
	// callOpen and callClose enclose a tool call; without callOpen an answer
	// that is a JSON object is one.
	callOpen, callClose string
	// around are marks around all calls, which are no text.
	around []string
	// special says that the marks are special tokens.
	special bool
	// parse reads a call. It reports false where it is none.
	parse func(body string, kinds argumentKinds) (name string, arguments string, ok bool)
	// write is a pattern of a call, given patterns of name and arguments;
	// nil where calls can't be forced.
	write func(name, arguments string) string
}

// families, the more telling first: a family is that of the first whose mark is in
// the template.
var families = []struct {
	mark string
	family
}{
	{"<｜tool▁calls▁begin｜>", family{
		name: "deepseek", callOpen: "<｜tool▁call▁begin｜>", callClose: "<｜tool▁call▁end｜>", special: true,
		around: []string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}, parse: parseDeepseek,
	}},
	{"<arg_key>", family{name: "glm", callOpen: "<tool_call>", callClose: "</tool_call>", parse: parseGLM}},
	{"<function=", family{name: "qwen3_coder", callOpen: "<tool_call>", callClose: "</tool_call>", parse: parseXML}},
	{"<tool_call>", family{name: "hermes", callOpen: "<tool_call>", callClose: "</tool_call>", parse: parseJSONCall, write: writeHermes}},
	{"<|python_tag|>", family{name: "llama3_json", around: []string{"<|python_tag|>"}, special: true, parse: parseJSONCall, write: writeLlama}},
	{"\"parameters\"", family{name: "llama3_json", parse: parseJSONCall, write: writeLlama}},
}

// familyOf finds the family by what is in the template.
func familyOf(t *chat.Template) family {
	f := family{name: "none"}
	for _, known := range families {
		if strings.Contains(t.Source(), known.mark) {
			f = known.family
			break
		}
	}
	if strings.Contains(t.Source(), "</think>") {
		f.thinkOpen, f.thinkClose = "<think>", "</think>"
	}
	return f
}

// argumentKinds are the JSON types of a tool's arguments, by tool and argument.
type argumentKinds map[string]map[string]string

// parseJSONCall reads {"name": ..., "arguments": {...}}, or "parameters".
func parseJSONCall(body string, _ argumentKinds) (string, string, bool) {
	var call struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal([]byte(strings.TrimSpace(body)), &call) != nil || call.Name == "" {
		return "", "", false
	}
	args := call.Arguments
	if len(args) == 0 {
		args = call.Parameters
	}
	var text string
	switch {
	case len(args) == 0 || string(args) == "null":
		return call.Name, "{}", true
	case json.Unmarshal(args, &text) == nil:
		return call.Name, text, true // JSON in a text
	}
	return call.Name, string(args), true
}

// parseXML reads <function=NAME> with <parameter=KEY>VALUE</parameter> inside.
func parseXML(body string, kinds argumentKinds) (string, string, bool) {
	_, rest, ok := strings.Cut(body, "<function=")
	name, rest, ok2 := strings.Cut(rest, ">")
	if !ok || !ok2 || name == "" {
		return "", "", false
	}
	rest, _, _ = strings.Cut(rest, "</function>")
	var args arguments
	for {
		_, after, found := strings.Cut(rest, "<parameter=")
		if !found {
			break
		}
		key, after, found := strings.Cut(after, ">")
		if !found {
			return "", "", false
		}
		value, after, _ := strings.Cut(after, "</parameter>")
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		args.add(key, value, kinds[name][key])
		rest = after
	}
	return name, args.json(), true
}

// parseGLM reads NAME and then pairs of <arg_key> and <arg_value>.
func parseGLM(body string, kinds argumentKinds) (string, string, bool) {
	name, _, _ := strings.Cut(body, "<arg_key>")
	name = strings.TrimSpace(name)
	if name == "" {
		return "", "", false
	}
	var args arguments
	for rest := body; ; {
		_, after, found := strings.Cut(rest, "<arg_key>")
		if !found {
			break
		}
		key, after, _ := strings.Cut(after, "</arg_key>")
		_, after, found = strings.Cut(after, "<arg_value>")
		if !found {
			return "", "", false
		}
		value, after, _ := strings.Cut(after, "</arg_value>")
		args.add(strings.TrimSpace(key), value, kinds[name][strings.TrimSpace(key)])
		rest = after
	}
	return name, args.json(), true
}

// parseDeepseek reads NAME<sep>JSON, or function<sep>NAME and JSON in a code block.
func parseDeepseek(body string, _ argumentKinds) (string, string, bool) {
	left, right, ok := strings.Cut(body, "<｜tool▁sep｜>")
	if !ok {
		return "", "", false
	}
	name, args := strings.TrimSpace(left), strings.TrimSpace(right)
	if name == "function" {
		if name, args, ok = strings.Cut(right, "\n"); !ok {
			return "", "", false
		}
		args = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(args), "```json"), "```")
	}
	args = strings.TrimSpace(args)
	if !json.Valid([]byte(args)) {
		return "", "", false
	}
	return strings.TrimSpace(name), args, true
}

// arguments gathers a JSON object in order.
type arguments struct{ text []byte }

// add adds an argument that was written as text. One of a kind other than string
// is taken as JSON, if it is any.
func (a *arguments) add(key, value, kind string) {
	if len(a.text) > 0 {
		a.text = append(a.text, ", "...)
	}
	k, _ := marshal(key)
	a.text = append(append(a.text, k...), ": "...)
	if trimmed := strings.TrimSpace(value); kind != "string" && json.Valid([]byte(trimmed)) {
		a.text = append(a.text, trimmed...)
		return
	}
	v, _ := marshal(value)
	a.text = append(a.text, v...)
}

func (a *arguments) json() string { return "{" + string(a.text) + "}" }

// writeHermes is the pattern of a call in <tool_call> marks.
func writeHermes(name, arguments string) string {
	return `<tool_call>\n\{"name": "` + name + `", "arguments": ` + arguments + `\}\n</tool_call>`
}

// writeLlama is the pattern of a call that is a JSON object.
func writeLlama(name, arguments string) string {
	return `\{"name": "` + name + `", "parameters": ` + arguments + `\}`
}
