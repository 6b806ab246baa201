package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// token reads the next JSON token; the end of the text is an error, as every
// caller stands inside a value.
func token(d *json.Decoder) (json.Token, error) {
	t, err := d.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return t, err
}

// object reads a JSON object from d, calling value at each key with d standing
// before the value.
func object(d *json.Decoder, value func(key string) error) error {
	t, err := token(d)
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("found %s where an object must be", describe(t))
	}
	for d.More() {
		t, err := token(d)
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return fmt.Errorf("found %s where a key must be", describe(t))
		}
		if err := value(key); err != nil {
			return err
		}
	}
	_, err = token(d)
	return err
}

// numbers reads a JSON array of at most limit non-negative integers.
func numbers(d *json.Decoder, key string, limit int) ([]int64, error) {
	t, err := token(d)
	if err != nil {
		return nil, err
	}
	if t != json.Delim('[') {
		return nil, fmt.Errorf("%s is %s; it must be an array of integers", key, describe(t))
	}
	var out []int64
	for d.More() {
		t, err := token(d)
		if err != nil {
			return nil, err
		}
		n, ok := t.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%s holds %s; it must hold integers", key, describe(t))
		}
		v, err := strconv.ParseInt(n.String(), 10, 64)
		if err != nil || v < 0 {
			return nil, fmt.Errorf("%s holds %s; it must hold integers from 0 to 2^63-1", key, n)
		}
		if len(out) == limit {
			return nil, fmt.Errorf("%s has more than %d numbers", key, limit)
		}
		out = append(out, v)
	}
	_, err = token(d)
	return out, err
}

// describe names a JSON token for an error.
func describe(t json.Token) string {
	switch t := t.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(t)
	case json.Delim:
		return strconv.Quote(t.String())
	}
	return fmt.Sprint(t)
}

// jsonError says of which text an error of the JSON decoder speaks, and leaves
// errors of our own as they are.
func jsonError(what string, err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s is not valid JSON: %w", what, err)
	}
	return err
}
