package jinja

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Undefined is the value of a name or key that is not there. Printed it is
// empty; it is false and has no elements; what else is done to it is an error
// that names it.
type Undefined struct{ Name string }

// List is a Python list, or a tuple.
type List struct {
	Items []any
	Tuple bool
}

// Dict is a Python dict: it keeps the order in which keys came.
type Dict struct {
	index map[any]int
	keys  []any
	vals  []any
}

// NewDict makes an empty Dict.
func NewDict() *Dict { return &Dict{index: map[any]int{}} }

// Set enters a value under a string, a number, a bool or nil; a key that is
// there keeps its place.
func (d *Dict) Set(key, val any) {
	k := hashable(key)
	if i, ok := d.index[k]; ok {
		d.vals[i] = val
		return
	}
	d.index[k] = len(d.keys)
	d.keys, d.vals = append(d.keys, key), append(d.vals, val)
}

// Get returns the value under a key.
func (d *Dict) Get(key any) (any, bool) {
	k := hashable(key)
	if k == nil && key != nil {
		return nil, false
	}
	i, ok := d.index[k]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

// Keys are the keys in order.
func (d *Dict) Keys() []any { return slices.Clone(d.keys) }

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// hashable maps equal keys to one Go value (1, 1.0 and True are one key); nil
// for what can be no key, and for None.
func hashable(key any) any {
	switch k := key.(type) {
	case bool:
		if k {
			return int64(1)
		}
		return int64(0)
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<62 {
			return int64(k)
		}
		return k
	case string, int64:
		return k
	}
	return nil
}

// namespace is what namespace() gives: the one value that a template changes.
type namespace struct{ vars *Dict }

// function is a macro, a global or a bound method.
type function struct {
	name string
	call func(r *render, a args) (any, error)
}

// args are the arguments of a call, a filter or a test.
type args struct {
	pos []any
	kw  *Dict // nil for none
}

// typeName is the name that Python has for a value's type.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, bigInt:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		if v.Tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case Undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	}
	return "function"
}

// bigInt is an integer of a message that does not fit int64: it can be printed
// and nothing else.
type bigInt string

func truthy(v any) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return v.Len() > 0
	}
	return true
}

// maxData is how deep data may be nested where it is printed or compared.
const maxData = 200

// str is Python's str(v), within the limits of r.
func (r *render) str(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case Undefined:
		return "", nil
	}
	var b strings.Builder
	err := r.repr(&b, v, 0)
	return b.String(), err
}

// repr writes Python's repr(v).
func (r *render) repr(b *strings.Builder, v any, depth int) error {
	if depth > maxData {
		return fmt.Errorf("a value is nested deeper than %d", maxData)
	}
	if err := r.step(2); err != nil {
		return err
	}
	from := b.Len()
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{false: "False", true: "True"}[v])
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case bigInt:
		b.WriteString(string(v))
	case float64:
		b.WriteString(floatText(v))
	case string:
		writeQuoted(b, v)
	case Undefined:
		b.WriteString("Undefined")
	case *List:
		return r.reprList(b, v, depth)
	case *Dict:
		return r.reprDict(b, v, depth)
	case *namespace:
		b.WriteString("<Namespace ")
		if err := r.reprDict(b, v.vars, depth); err != nil {
			return err
		}
		b.WriteString(">")
	case *function:
		fmt.Fprintf(b, "<function %s>", v.name)
	}
	return r.made(b.Len() - from)
}

func (r *render) reprList(b *strings.Builder, l *List, depth int) error {
	open, end := "[", "]"
	if l.Tuple {
		open, end = "(", ")"
		if len(l.Items) == 1 {
			end = ",)"
		}
	}
	b.WriteString(open)
	for i, x := range l.Items {
		if i > 0 {
			b.WriteString(", ")
		}
		if err := r.repr(b, x, depth+1); err != nil {
			return err
		}
	}
	b.WriteString(end)
	return r.made(len(l.Items))
}

func (r *render) reprDict(b *strings.Builder, d *Dict, depth int) error {
	b.WriteString("{")
	for i, k := range d.keys {
		if i > 0 {
			b.WriteString(", ")
		}
		if err := r.repr(b, k, depth+1); err != nil {
			return err
		}
		b.WriteString(": ")
		if err := r.repr(b, d.vals[i], depth+1); err != nil {
			return err
		}
	}
	b.WriteString("}")
	return r.made(d.Len())
}

// floatText is Python's repr of a float.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// writeQuoted writes Python's repr of a string.
func writeQuoted(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b.WriteRune('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(b, `\u%04x`, c)
		default:
			fmt.Fprintf(b, `\U%08x`, c)
		}
	}
	b.WriteRune(quote)
}
