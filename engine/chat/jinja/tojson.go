package jinja

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// jsonWriter writes JSON as Python's json.dumps does.
type jsonWriter struct {
	r           *render
	b           strings.Builder
	ascii       bool
	sorts       bool
	indent      string
	lines       bool
	item, colon string
}

// filterToJSON is tojson as transformers defines it: in the order of the keys,
// with spaces behind separators, and nothing escaped that need not be.
func filterToJSON(r *render, v any, a args) (any, error) {
	p, err := args{append([]any{v}, a.pos...), a.kw}.bind("x", "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	w := &jsonWriter{r: r, ascii: truthy(given(p[1], false)), sorts: truthy(given(p[4], false)), item: ", ", colon: ": "}
	switch in := given(p[2], nil).(type) {
	case nil:
	case string:
		w.lines, w.indent, w.item = true, in, ","
	default:
		n, ok := integer(in)
		if !ok || n > 100 {
			return nil, errors.New("indent must be text or a number up to 100")
		}
		w.lines, w.indent, w.item = true, strings.Repeat(" ", int(max(n, 0))), ","
	}
	if seps := given(p[3], nil); seps != nil {
		l, ok := seps.(*List)
		if !ok || len(l.Items) != 2 {
			return nil, errors.New("separators must be two texts")
		}
		item, ok1 := l.Items[0].(string)
		colon, ok2 := l.Items[1].(string)
		if !ok1 || !ok2 {
			return nil, errors.New("separators must be two texts")
		}
		w.item, w.colon = item, colon
	}
	if err := w.value(v, 0); err != nil {
		return nil, err
	}
	return w.b.String(), nil
}

func (w *jsonWriter) value(v any, depth int) error {
	if depth > maxData {
		return fmt.Errorf("a value is nested deeper than %d", maxData)
	}
	if err := w.r.step(2); err != nil {
		return err
	}
	from := w.b.Len()
	switch v := v.(type) {
	case nil:
		w.b.WriteString("null")
	case bool:
		w.b.WriteString(strconv.FormatBool(v))
	case int64:
		w.b.WriteString(strconv.FormatInt(v, 10))
	case bigInt:
		w.b.WriteString(string(v))
	case float64:
		w.b.WriteString(jsonFloat(v))
	case string:
		w.text(v)
	case *List:
		return w.list(v, depth)
	case *Dict:
		return w.dict(v, depth)
	default:
		return fmt.Errorf("%s has no JSON", what(v))
	}
	return w.r.made(w.b.Len() - from)
}

func jsonFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case math.IsNaN(f):
		return "NaN"
	}
	return floatText(f)
}

// line begins a line at a depth, where there is an indent.
func (w *jsonWriter) line(depth int) error {
	if !w.lines {
		return nil
	}
	w.b.WriteByte('\n')
	for range depth {
		w.b.WriteString(w.indent)
	}
	return w.r.made(1 + depth*len(w.indent))
}

func (w *jsonWriter) list(l *List, depth int) error {
	if len(l.Items) == 0 {
		w.b.WriteString("[]")
		return w.r.made(2)
	}
	w.b.WriteByte('[')
	for i, x := range l.Items {
		if i > 0 {
			w.b.WriteString(w.item)
		}
		err := w.line(depth + 1)
		if err == nil {
			err = w.value(x, depth+1)
		}
		if err == nil {
			err = w.r.made(2 + len(w.item))
		}
		if err != nil {
			return err
		}
	}
	err := w.line(depth)
	w.b.WriteByte(']')
	return err
}

func (w *jsonWriter) dict(d *Dict, depth int) error {
	if d.Len() == 0 {
		w.b.WriteString("{}")
		return w.r.made(2)
	}
	pairs, err := items(w.r, d)
	if err != nil {
		return err
	}
	list := pairs.(*List).Items
	if w.sorts {
		if list, err = sorted(w.r, list, func(x any) (any, error) { return x.(*List).Items[0], nil }, true, false); err != nil {
			return err
		}
	}
	w.b.WriteByte('{')
	for i, p := range list {
		if i > 0 {
			w.b.WriteString(w.item)
		}
		pair := p.(*List).Items
		err := w.line(depth + 1)
		if err == nil {
			err = w.key(pair[0])
		}
		w.b.WriteString(w.colon)
		if err == nil {
			err = w.value(pair[1], depth+1)
		}
		if err == nil {
			err = w.r.made(4 + len(w.item) + len(w.colon))
		}
		if err != nil {
			return err
		}
	}
	err = w.line(depth)
	w.b.WriteByte('}')
	return err
}

// key writes a key, which JSON has as text.
func (w *jsonWriter) key(k any) error {
	switch k := k.(type) {
	case string:
		return w.value(k, 0)
	case nil:
		return w.value("null", 0)
	case bool:
		return w.value(strconv.FormatBool(k), 0)
	case int64:
		return w.value(strconv.FormatInt(k, 10), 0)
	case float64:
		return w.value(jsonFloat(k), 0)
	}
	return fmt.Errorf("%s can't be a key in JSON", what(k))
}

func (w *jsonWriter) text(s string) {
	w.b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			w.b.WriteByte('\\')
			w.b.WriteRune(c)
		case c == '\n':
			w.b.WriteString(`\n`)
		case c == '\r':
			w.b.WriteString(`\r`)
		case c == '\t':
			w.b.WriteString(`\t`)
		case c == '\b':
			w.b.WriteString(`\b`)
		case c == '\f':
			w.b.WriteString(`\f`)
		case c < 0x20 || w.ascii && c >= 0x7f && c < 0x10000 && c != 0x7f:
			fmt.Fprintf(&w.b, `\u%04x`, c)
		case w.ascii && c >= 0x10000:
			c -= 0x10000
			fmt.Fprintf(&w.b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			w.b.WriteRune(c)
		}
	}
	w.b.WriteByte('"')
}
