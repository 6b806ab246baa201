package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Types of errors, as OpenAI names them.
const (
	badRequest   = "invalid_request_error"
	badKey       = "authentication_error"
	overLimit    = "rate_limit_error"
	serverError  = "server_error"
	overloaded   = "overloaded_error"
	statusClosed = 499 // in logs and metrics: the client went away
)

// apiError is an error as clients see it.
type apiError struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
	retry   time.Duration
}

// Error implements error.
func (e *apiError) Error() string { return e.Message }

// invalid is what is wrong with a field of the request; param may be empty.
func invalid(param, format string, args ...any) *apiError {
	return failure(http.StatusBadRequest, badRequest, "", param, format, args...)
}

func failure(status int, kind, code, param, format string, args ...any) *apiError {
	e := &apiError{status: status, Message: fmt.Sprintf(format, args...), Type: kind}
	if param != "" {
		e.Param = &param
	}
	if code != "" {
		e.Code = &code
	}
	return e
}

// asAPI is the error that a client sees of any error. What is not meant for it says
// nothing.
func asAPI(err error) *apiError {
	var e *apiError
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return failure(statusClosed, badRequest, "client_closed", "", "the client went away")
	case errors.Is(err, errDead):
		return failure(http.StatusServiceUnavailable, serverError, "engine_dead", "", "the engine has ended; the server must be started again")
	}
	return failure(http.StatusInternalServerError, serverError, "", "", "internal error")
}

// writeError answers with an error.
func writeError(w http.ResponseWriter, e *apiError) {
	if e.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(e.retry.Seconds()+1)))
	}
	if e.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, e.status, map[string]any{"error": e})
}

// writeJSON answers with a value. A client that is gone does not notice.
func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

// marshal writes JSON as it is sent: no HTML escapes.
func marshal(v any) ([]byte, error) {
	var b noEscape
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b[:len(b)-1], nil // the newline
}

// noEscape is a buffer.
type noEscape []byte

// Write implements io.Writer.
func (b *noEscape) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}
