package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// decode reads the body of a request into v: JSON of bounded size and depth, in
// UTF-8, with no field that can't be honoured.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, v any) error {
	if t := r.Header.Get("Content-Type"); t != "" {
		if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" {
			return failure(http.StatusUnsupportedMediaType, badRequest, "", "", "the body is %q; it must be application/json", t)
		}
	}
	limit := s.cfg.Limits.Body
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return failure(http.StatusRequestEntityTooLarge, badRequest, "", "", "the body has more than %d bytes", limit)
	case err != nil:
		return failure(http.StatusBadRequest, badRequest, "", "", "the body could not be read")
	}
	// The server's time for reading requests ends here: it would end the
	// request's context while the answer is made. Some writers, of tests say,
	// have no deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return decodeBody(body, s.cfg.Limits.Depth, v)
}

// decodeBody is decode of bytes.
func decodeBody(body []byte, depth int, v any) error {
	if !utf8.Valid(body) {
		return invalid("", "the body is not valid UTF-8, at byte %d", firstInvalid(body))
	}
	if at := tooDeep(body, depth); at >= 0 {
		return invalid("", "the body is nested more than %d deep, at byte %d", depth, at)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return invalid("", "the body is no JSON object%s", because(err))
	}
	for name, value := range fields {
		if what, ok := refused[name]; ok && !slices.Contains(empty, string(value)) {
			return invalid(name, "%s: %s", name, what)
		}
	}
	err := json.Unmarshal(body, v)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		field := strings.ReplaceAll(kind.Field, "common.", "")
		return invalid(field, "%s: it is a JSON %s; it must be %s", field, kind.Value, wanted(kind.Type.Kind().String()))
	case err != nil:
		return invalid("", "%v", err)
	}
	return nil
}

// wanted names a kind of Go value for users.
func wanted(kind string) string {
	switch kind {
	case "slice":
		return "a list"
	case "struct", "map":
		return "an object"
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	}
	return "a number that fits " + kind
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf(": %v", err)
}

func firstInvalid(text []byte) int {
	at := 0
	for at < len(text) {
		r, n := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

// tooDeep returns the byte at which JSON text is nested more than depth deep, or -1.
func tooDeep(text []byte, depth int) int {
	open := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			if open++; open > depth {
				return i
			}
		case ']', '}':
			open--
		}
	}
	return -1
}

// rawNull says whether a field is missing or null.
func rawNull(m json.RawMessage) bool { return len(m) == 0 || bytes.Equal(m, []byte("null")) }
