package experiments

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// yamlError turns an error of the YAML library, which prints several lines of
// source, into one line: place, key, what is wrong.
func yamlError(name string, text []byte, err error) error {
	line, key, what := describe(text, err)
	return placed(name, line, key, what)
}

// placed is an error at a line, unless that is 0, and a key, unless that is "".
func placed(name string, line int, key, what string) error {
	if line > 0 {
		name = fmt.Sprintf("%s:%d", name, line)
	}
	if key != "" {
		name += ": " + oneLine(key)
	}
	return fmt.Errorf("%s: %s", name, what)
}

// describe takes an error of the YAML library apart: the line, or 0; the path
// of the key, or ""; what is wrong.
func describe(text []byte, err error) (line int, key, what string) {
	var e yaml.Error
	if !errors.As(err, &e) {
		return 0, "", oneLine(err.Error())
	}
	if t := e.GetToken(); t != nil && t.Position != nil {
		line, key = t.Position.Line, keyAt(text, t)
	}
	var wrong *yaml.TypeError
	if errors.As(err, &wrong) && wrong.DstType != nil && wrong.SrcType != nil {
		return line, key, fmt.Sprintf("want %s, not %s", wrong.DstType, wrong.SrcType)
	}
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		return line, key, "unknown key"
	}
	return line, key, oneLine(e.GetMessage())
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// keyAt returns the path of the key, or of the value, at a token, or "" where
// the text is not YAML or nothing is there.
func keyAt(text []byte, t *token.Token) string {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return ""
	}
	f := &finder{at: t.Position}
	for _, doc := range file.Docs {
		if doc != nil && doc.Body != nil {
			ast.Walk(f, doc.Body)
		}
	}
	return strings.TrimPrefix(strings.TrimPrefix(f.path, "$"), ".")
}

// finder is an ast.Visitor that looks for the innermost node at a position.
type finder struct {
	at   *token.Position
	path string
}

// Visit implements ast.Visitor.
func (f *finder) Visit(n ast.Node) ast.Visitor {
	if t := n.GetToken(); t != nil && t.Position != nil && t.Position.Line == f.at.Line && t.Position.Column == f.at.Column {
		if p := n.GetPath(); len(p) >= len(f.path) {
			f.path = p
		}
	}
	return f
}
