package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// fields reads the keys of one JSON object. The first error stays and later
// reads return zero values, so that a parser is a list of keys; which keys
// were read is remembered.
type fields struct {
	file string
	path string // prefix of keys in errors, "" or "text_config."
	m    map[string]json.RawMessage
	used map[string]bool
	err  *error
}

func parseFields(file string, text []byte, err *error) *fields {
	f := &fields{file: file, used: map[string]bool{}, err: err}
	if e := json.Unmarshal(text, &f.m); e != nil {
		f.fail("", "", "the file must be one JSON object: "+e.Error())
	} else if f.m == nil {
		f.fail("", "null", "the file must be one JSON object")
	}
	return f
}

func (f *fields) fail(key, value, want string) {
	if *f.err == nil {
		if key != "" {
			key = f.path + key
		}
		*f.err = &ConfigError{File: f.file, Key: key, Value: value, Want: want}
	}
}

// raw returns the value of a key, nil where it is absent or null.
func (f *fields) raw(key string) json.RawMessage {
	f.used[key] = true
	v := f.m[key]
	if string(v) == "null" {
		return nil
	}
	return v
}

func (f *fields) has(key string) bool { return f.raw(key) != nil }

// decode reads a key into out and says whether it was there; wrong types fail.
func (f *fields) decode(key string, out any, want string) bool {
	v := f.raw(key)
	if v == nil {
		return false
	}
	if err := json.Unmarshal(v, out); err != nil {
		f.fail(key, string(v), "it must be "+want)
		return false
	}
	return true
}

// integer reads a required integer in [low, high].
func (f *fields) integer(key string, low, high int) int {
	v, ok := f.optInteger(key, low, high)
	if !ok {
		f.fail(key, "", fmt.Sprintf("it must be an integer from %d to %d", low, high))
	}
	return v
}

func (f *fields) optInteger(key string, low, high int) (int, bool) {
	want := fmt.Sprintf("an integer from %d to %d", low, high)
	var v int
	if !f.decode(key, &v, want) {
		return 0, false
	}
	if v < low || v > high {
		f.fail(key, strconv.Itoa(v), "it must be "+want)
		return 0, false
	}
	return v, true
}

// number reads a required number in (above, most].
func (f *fields) number(key string, above, most float64) float64 {
	v, ok := f.optNumber(key, above, most)
	if !ok {
		f.fail(key, "", fmt.Sprintf("it must be a number above %g, at most %g", above, most))
	}
	return v
}

func (f *fields) optNumber(key string, above, most float64) (float64, bool) {
	want := fmt.Sprintf("a number above %g, at most %g", above, most)
	var v float64
	if !f.decode(key, &v, want) {
		return 0, false
	}
	if math.IsNaN(v) || v <= above || v > most {
		f.fail(key, strconv.FormatFloat(v, 'g', -1, 64), "it must be "+want)
		return 0, false
	}
	return v, true
}

func (f *fields) boolean(key string, absent bool) bool {
	v := absent
	f.decode(key, &v, "true or false")
	return v
}

func (f *fields) text(key, absent string) string {
	v := absent
	f.decode(key, &v, "a string")
	return v
}

// object returns a nested object, nil where it is absent or null.
func (f *fields) object(key string) *fields {
	sub := &fields{file: f.file, path: f.path + key + ".", used: map[string]bool{}, err: f.err}
	if !f.decode(key, &sub.m, "an object") {
		return nil
	}
	return sub
}

// ids reads a key that holds an id, a list of ids, or null.
func (f *fields) ids(key string) []int32 {
	v := f.raw(key)
	if v == nil {
		return nil
	}
	var list []int32
	if v[0] != '[' {
		list = make([]int32, 1)
		if json.Unmarshal(v, &list[0]) == nil {
			return list
		}
	} else if json.Unmarshal(v, &list) == nil {
		return list
	}
	f.fail(key, string(v), "it must be a token id or a list of token ids")
	return nil
}

// unread lists the keys that were neither read nor are in known.
func (f *fields) unread(known map[string]bool) []string {
	var out []string
	for key := range f.m {
		if !f.used[key] && !known[key] && !strings.HasPrefix(key, "_") {
			out = append(out, f.path+key)
		}
	}
	slices.Sort(out)
	return out
}
