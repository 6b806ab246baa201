package experiments

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Sections of an experiment file that are about the file: its parser sees a file
// without them.
const (
	sectionSmall = "small"
	sectionSweep = "sweep"
)

// Document is an experiment file before it is parsed: YAML whose keys can be set.
// The form of the experiment does not matter.
type Document struct {
	name string
	text []byte // of which the section's lines are empty
	body yaml.MapSlice
	// small are the keys that the small variant sets.
	small yaml.MapSlice
	sweep any
}

// ParseDocument reads a file's outline: the sections small and sweep, and the rest,
// which is not looked at. Errors are of one line and name the file.
func ParseDocument(name string, text []byte) (*Document, error) {
	if err := checkSize(name, text); err != nil {
		return nil, err
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, yamlError(name, text, err)
	}
	d := &Document{name: name, text: text}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return d, nil // whoever parses the text says what is wrong
	}
	root, ok := file.Docs[0].Body.(*ast.MappingNode)
	if !ok {
		return d, nil
	}
	if m := mistyped(root, anything); m != nil {
		return nil, placed(name, m.line, m.key, m.what)
	}
	if err := yaml.UnmarshalWithOptions(text, &d.body, yaml.UseOrderedMap()); err != nil {
		return nil, yamlError(name, text, err)
	}
	for _, section := range []string{sectionSmall, sectionSweep} {
		d.blank(root, section)
	}
	if v, there := d.take(sectionSmall); there {
		if d.small, ok = v.(yaml.MapSlice); !ok {
			return nil, fmt.Errorf("%s: %s: want a mapping of keys to values", name, sectionSmall)
		}
	}
	d.sweep, _ = d.take(sectionSweep)
	return d, nil
}

// blank empties the lines of a top-level section, so that the lines of the rest keep
// their numbers.
func (d *Document) blank(root *ast.MappingNode, section string) {
	lines := bytes.SplitAfter(d.text, []byte("\n"))
	for i, pair := range root.Values {
		if pair.Key.GetToken().Value != section {
			continue
		}
		from, to := pair.Key.GetToken().Position.Line-1, len(lines)
		if i+1 < len(root.Values) {
			to = root.Values[i+1].Key.GetToken().Position.Line - 1
		}
		kept := slices.Clone(lines)
		for n := from; n < to && n < len(kept); n++ {
			kept[n] = []byte("\n")
		}
		d.text = bytes.Join(kept, nil)
	}
}

// take takes a section out of the body.
func (d *Document) take(section string) (any, bool) {
	for i, item := range d.body {
		if item.Key == section {
			d.body = slices.Delete(d.body, i, i+1)
			return item.Value, true
		}
	}
	return nil, false
}

// Name is that of the file, for messages.
func (d *Document) Name() string { return d.name }

// Text is the experiment: the file without its sections small and sweep.
func (d *Document) Text() []byte { return d.text }

// whole is the file again: the experiment, and its section sweep.
func (d *Document) whole() ([]byte, error) {
	if d.sweep == nil {
		return d.text, nil
	}
	return yaml.Marshal(append(slices.Clone(d.body), yaml.MapItem{Key: sectionSweep, Value: d.sweep}))
}

// Small sets the keys of the section small, sweep among them, or says that there is
// none.
func (d *Document) Small() error {
	if d.small == nil {
		return fmt.Errorf("%s: has no small variant; a section %q says which keys it sets", d.name, sectionSmall)
	}
	body := d.body
	for _, item := range d.small {
		key, ok := item.Key.(string)
		if !ok {
			return fmt.Errorf("%s: %s: %v is not a key of an experiment", d.name, sectionSmall, item.Key)
		}
		if key == sectionSweep {
			d.sweep = item.Value
			continue
		}
		var err error
		if body, err = setKey(body, key, item.Value); err != nil {
			return fmt.Errorf("%s: %s: %w", d.name, sectionSmall, err)
		}
	}
	return d.replace(body)
}

// replace makes body the document's.
func (d *Document) replace(body yaml.MapSlice) (err error) {
	d.body = body
	d.text, err = yaml.Marshal(body)
	return err
}

// keyPath takes a key such as strategies[1].config.head apart: names are strings,
// places in lists ints.
func keyPath(key string) ([]any, error) {
	var path []any
	for _, part := range strings.Split(key, ".") {
		name, places, indexed := strings.Cut(part, "[")
		if name == "" {
			return nil, fmt.Errorf("%q is not a key; keys are like engine.chunk and strategies[0].k", key)
		}
		path = append(path, name)
		for indexed {
			var digits string
			digits, places, indexed = strings.Cut(places, "]")
			n, err := strconv.Atoi(digits)
			if err != nil || !indexed || n < 0 {
				return nil, fmt.Errorf("%q is not a key; a place in a list is a number in brackets", key)
			}
			path = append(path, n)
			if places == "" {
				break
			}
			if places, indexed = strings.CutPrefix(places, "["); !indexed {
				return nil, fmt.Errorf("%q is not a key; behind a place comes a dot or another place", key)
			}
		}
	}
	return path, nil
}

// setKey returns the body with a value at a key. Mappings on the way are made where
// there is nothing; places in lists must be there.
func setKey(body yaml.MapSlice, key string, value any) (yaml.MapSlice, error) {
	path, err := keyPath(key)
	if err != nil {
		return nil, err
	}
	out, err := setAt(body, path, value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return out.(yaml.MapSlice), nil
}

func setAt(at any, path []any, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	if n, ok := path[0].(int); ok {
		list, ok := at.([]any)
		if !ok || n >= len(list) {
			return nil, fmt.Errorf("there is no place %d in the file's list of %d", n, len(list))
		}
		v, err := setAt(list[n], path[1:], value)
		list = slices.Clone(list)
		list[n] = v
		return list, err
	}
	m, ok := at.(yaml.MapSlice)
	if !ok && at != nil {
		return nil, fmt.Errorf("%v is not a mapping that could have a key %v", at, path[0])
	}
	m = slices.Clone(m)
	i := slices.IndexFunc(m, func(item yaml.MapItem) bool { return item.Key == path[0] })
	if i < 0 {
		i, m = len(m), append(m, yaml.MapItem{Key: path[0]})
	}
	v, err := setAt(m[i].Value, path[1:], value)
	m[i].Value = v
	return m, err
}

// valueAt returns the value at a key, and whether the body has it.
func valueAt(body yaml.MapSlice, key string) (any, bool) {
	path, err := keyPath(key)
	var at any = body
	for _, step := range path {
		switch v := at.(type) {
		case yaml.MapSlice:
			i := slices.IndexFunc(v, func(item yaml.MapItem) bool { return item.Key == step })
			if i < 0 {
				return nil, false
			}
			at = v[i].Value
		case []any:
			n, ok := step.(int)
			if !ok || n >= len(v) {
				return nil, false
			}
			at = v[n]
		default:
			return nil, false
		}
	}
	return at, err == nil
}

// plain turns ordered mappings into maps, for JSON and for comparisons.
func plain(v any) any {
	switch v := v.(type) {
	case yaml.MapSlice:
		out := map[string]any{}
		for _, item := range v {
			out[fmt.Sprint(item.Key)] = plain(item.Value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	}
	return v
}

// same reports whether two values of a file are equal.
func same(a, b any) bool { return reflect.DeepEqual(plain(a), plain(b)) }
