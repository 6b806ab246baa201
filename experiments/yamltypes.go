package experiments

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Bounds of a configuration file: far above any experiment, and low enough that
// a parser of nested text can't be made to work for long.
const (
	maxConfigBytes = 64 << 10
	maxNesting     = 32
)

// checkSize refuses text that is too long or nests too deep to be parsed.
func checkSize(name string, text []byte) error {
	if len(text) > maxConfigBytes {
		return fmt.Errorf("%s: %d bytes; a configuration has at most %d", name, len(text), maxConfigBytes)
	}
	depth := 0
	for i, line := range bytes.Split(text, []byte("\n")) {
		deepest := depth
		for j, c := range line {
			switch c {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(0, depth-1)
			case '-', '?': // of "- - - x", which nests too
				if len(bytes.Trim(line[:j], " \t-?")) == 0 {
					deepest++
				}
			}
			deepest = max(deepest, depth)
		}
		if deepest > maxNesting {
			return fmt.Errorf("%s:%d: nested more than %d deep", name, i+1, maxNesting)
		}
	}
	return nil
}

// typeMistake is a value of another type than its key takes.
type typeMistake struct {
	line      int
	key, what string
}

// mistyped looks for the first value in a document that is not of the type that
// it is to be decoded into, where the YAML library would convert it in silence:
// 1.5 to 1, "4" to 4, 12 to "12", nothing to 0. It also refuses anchors, aliases
// and tags. Keys that t does not have are passed over.
func mistyped(n ast.Node, t reflect.Type) *typeMistake {
	if t.Kind() == reflect.Pointer && n.Type() != ast.NullType {
		t = t.Elem()
	}
	switch v := n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return mistake(n, "anchors, aliases and tags are not taken here")
	case *ast.MappingNode:
		if k := t.Kind(); k != reflect.Struct && k != reflect.Map && k != reflect.Interface {
			return mistake(n, "want %s, not a mapping", wanted(t))
		}
		for _, pair := range v.Values {
			if m := mistyped(pair.Value, fieldType(t, pair.Key.GetToken().Value)); m != nil {
				return m
			}
		}
		return nil
	case *ast.SequenceNode:
		if k := t.Kind(); k != reflect.Slice && k != reflect.Interface {
			return mistake(n, "want %s, not a list", wanted(t))
		}
		for _, e := range v.Values {
			if m := mistyped(e, elemType(t)); m != nil {
				return m
			}
		}
		return nil
	}
	if have := scalarName(n); !takes(t, n) {
		return mistake(n, "want %s, not %s", wanted(t), have)
	}
	return nil
}

func mistake(n ast.Node, format string, args ...any) *typeMistake {
	m := &typeMistake{key: strings.TrimPrefix(strings.TrimPrefix(n.GetPath(), "$"), "."), what: fmt.Sprintf(format, args...)}
	if t := n.GetToken(); t != nil && t.Position != nil {
		m.line = t.Position.Line
	}
	return m
}

// anything is the type of keys that are unknown, and of the elements of any.
var anything = reflect.TypeFor[any]()

func fieldType(t reflect.Type, key string) reflect.Type {
	if t.Kind() == reflect.Struct {
		for f := range t.Fields() {
			name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if name == key {
				return f.Type
			}
			if option == "inline" {
				if inner := fieldType(f.Type, key); inner != anything {
					return inner
				}
			}
		}
	}
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	return anything
}

func elemType(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return anything
}

// takes reports whether a scalar is of type t. Nothing may stand for a section,
// but not for one that has a meaning by being there, which is a pointer.
func takes(t reflect.Type, n ast.Node) bool {
	switch n.(type) {
	case *ast.NullNode:
		return t.Kind() == reflect.Struct || t.Kind() == reflect.Map || t == anything
	}
	switch t.Kind() {
	case reflect.Int, reflect.Uint64:
		return n.Type() == ast.IntegerType
	case reflect.Float32, reflect.Float64:
		return n.Type() == ast.IntegerType || n.Type() == ast.FloatType || n.Type() == ast.NanType || n.Type() == ast.InfinityType
	case reflect.Bool:
		return n.Type() == ast.BoolType
	case reflect.String:
		return n.Type() == ast.StringType || n.Type() == ast.LiteralType
	}
	return t == anything
}

// wanted names a type for users.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Int, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	}
	return "text"
}

// scalarName names the value that is there, as it is written.
func scalarName(n ast.Node) string {
	if n.Type() == ast.NullType {
		return "nothing"
	}
	const most = 40
	s := oneLine(n.String())
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return s
}
