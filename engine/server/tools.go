package server

import (
	"encoding/json"
	"regexp"
	"strings"

	"exacta.dev/exacta/engine/grammar"
)

// tool is a function that the model may call.
type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// toolUse is which tools a request offers, and whether one must be called.
type toolUse struct {
	tools  []tool
	offer  bool     // they are shown to the model, and calls are looked for
	forced []string // names, one of which must be called
}

// toolsOf reads tools and tool_choice.
func toolsOf(q *chatRequest) (u toolUse, err error) {
	if !rawNull(q.Tools) {
		if err := json.Unmarshal(q.Tools, &u.tools); err != nil {
			return u, invalid("tools", "tools: it must be a list of {type: function, function: {name, parameters}}")
		}
	}
	for i, t := range u.tools {
		if t.Type != "function" || t.Function.Name == "" {
			return u, invalid("tools", "tools[%d]: it must be a function with a name", i)
		}
	}
	u.offer = len(u.tools) > 0
	var choice string
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	switch {
	case rawNull(q.ToolChoice):
	case json.Unmarshal(q.ToolChoice, &choice) == nil:
		switch choice {
		case "auto":
		case "none":
			u.offer = false
		case "required":
			for _, t := range u.tools {
				u.forced = append(u.forced, t.Function.Name)
			}
		default:
			return u, invalid("tool_choice", "tool_choice is %q; it must be none, auto, required or a function", short(choice))
		}
	case json.Unmarshal(q.ToolChoice, &named) == nil && named.Function.Name != "":
		u.forced = []string{named.Function.Name}
	default:
		return u, invalid("tool_choice", "tool_choice: it must be none, auto, required or {type: function, function: {name}}")
	}
	if !rawNull(q.ToolChoice) && choice != "none" && len(u.tools) == 0 {
		return u, invalid("tool_choice", "tool_choice without tools")
	}
	for _, name := range u.forced {
		if u.find(name) == nil {
			return u, invalid("tool_choice", "tool_choice names %q, which is not one of the tools", short(name))
		}
	}
	return u, nil
}

func (u *toolUse) find(name string) *tool {
	for i := range u.tools {
		if u.tools[i].Function.Name == name {
			return &u.tools[i]
		}
	}
	return nil
}

// pattern is what an answer must match so that it is a call of a forced tool.
func (u *toolUse) pattern(f family) (string, error) {
	if len(u.forced) == 0 {
		return "", nil
	}
	if f.write == nil {
		return "", invalid("tool_choice", "tool_choice: calls can't be forced on models of the family %s; use auto", f.name)
	}
	var calls []string
	for _, name := range u.forced {
		args := json.RawMessage(`{"type": "object"}`)
		if p := u.find(name).Function.Parameters; !rawNull(p) {
			args = p
		}
		pattern, err := grammar.SchemaPattern(args)
		if err != nil {
			return "", invalid("tools", "tools: function %s: parameters: %v", short(name), err)
		}
		quoted, _ := marshal(name)
		calls = append(calls, f.write(regexp.QuoteMeta(strings.Trim(string(quoted), `"`)), pattern))
	}
	return "(?:" + strings.Join(calls, "|") + ")", nil
}

// kinds are the types of the arguments of the tools.
func (u *toolUse) kinds() argumentKinds {
	out := argumentKinds{}
	for _, t := range u.tools {
		var schema struct {
			Properties map[string]struct {
				Type any `json:"type"`
			} `json:"properties"`
		}
		_ = json.Unmarshal(t.Function.Parameters, &schema) // of another shape: no types are known
		out[t.Function.Name] = map[string]string{}
		for name, p := range schema.Properties {
			if kind, ok := p.Type.(string); ok {
				out[t.Function.Name][name] = kind
			}
		}
	}
	return out
}
