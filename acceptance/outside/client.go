package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client talks to a server. Everything that it reads is bounded in size and
// time.
type Client struct {
	// HTTP sends the requests; its own time-out must be 0, since a stream may
	// last. The default follows no redirects.
	HTTP *http.Client
	// Key is sent as a bearer token if it is not empty.
	Key string
	// Timeout bounds a call that doesn't stream, and the wait for the next
	// byte of one that does (default 60 s).
	Timeout time.Duration
	// Total bounds a whole stream (default 10 minutes).
	Total time.Duration
	// MaxBody bounds a body in bytes (default 64 MiB); a stream may have eight
	// times as much, since some servers repeat the text so far in each event.
	MaxBody int64

	base string
}

// NewClient makes a client of the server at address, such as
// http://localhost:8000; a path /v1 at its end is left out.
func NewClient(address string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("endpoint %q is not an address like http://localhost:8000", address)
	}
	if u.User != nil {
		return nil, fmt.Errorf("endpoint: leave user and password out of the address of %s", u.Host)
	}
	u.RawQuery, u.Fragment = "", ""
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256
	transport.DisableCompression = true // a stream's pieces shall come as they are sent
	return &Client{
		HTTP:    &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Timeout: time.Minute, Total: 10 * time.Minute, MaxBody: 64 << 20,
		base: strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/v1"),
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.HTTP.CloseIdleConnections() }

// Address is the server's address without /v1.
func (c *Client) Address() string { return c.base }

// StatusError is an answer whose status is not 200.
type StatusError struct {
	Path   string
	Status int
	// Message is the server's error message, or the body's beginning.
	Message string
}

// Error names path, status and message.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: status %d %s", e.Path, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// missing reports whether a server doesn't have what was asked for.
func missing(err error) bool {
	var s *StatusError
	return errors.As(err, &s) && (s.Status == http.StatusNotFound || s.Status == http.StatusMethodNotAllowed || s.Status == http.StatusNotImplemented)
}

// send begins a call; a status other than 200 is an error.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var payload io.Reader
	if body != nil {
		text, made := body.(json.RawMessage) // as it is
		if !made {
			var err error
			if text, err = json.Marshal(body); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		payload = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	// A server may close a connection that idles as the next request comes: without
	// a byte of an answer it is sent again, on a new one. The empty list marks it so
	// for package net/http, and is not sent.
	req.Header["X-Idempotency-Key"] = []string{}
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, plain(err))
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return nil, &StatusError{Path: path, Status: resp.StatusCode, Message: message(text)}
}

// plain leaves method and address out of a transport's error: the path is named
// in front, and the address is the user's.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// message takes the message out of an error's body.
func message(body []byte) string {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &e) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		var text string
		switch {
		case json.Unmarshal(e.Error, &inner) == nil && inner.Message != "":
			return short(inner.Message)
		case json.Unmarshal(e.Error, &text) == nil && text != "":
			return short(text)
		case e.Message != "":
			return short(e.Message)
		}
	}
	if looksHTML(body) {
		return "an HTML page"
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return ""
	}
	return short(string(bytes.TrimSpace(body)))
}

func looksHTML(body []byte) bool {
	head := strings.ToLower(string(bytes.TrimSpace(body[:min(len(body), 256)])))
	return strings.HasPrefix(head, "<!doctype html") || strings.HasPrefix(head, "<html")
}

// text makes a call and returns its whole body.
func (c *Client) text(ctx context.Context, method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %v", c.Timeout))
	defer cancel()
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.MaxBody+1))
	if err != nil {
		return nil, causeOf(ctx, fmt.Errorf("%s: the body was cut off: %w", path, err))
	}
	if int64(len(text)) > c.MaxBody {
		return nil, fmt.Errorf("%s: the body has more than %d bytes", path, c.MaxBody)
	}
	return text, nil
}

// causeOf adds why a context ended to an error that came of it.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// Get reads a JSON object.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	text, err := c.text(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return decodeObject(path, text, into)
}

// decodeObject reads one JSON value and says what else it is.
func decodeObject(what string, text []byte, into any) error {
	switch err := json.Unmarshal(text, into); {
	case err == nil:
		return nil
	case looksHTML(text):
		return fmt.Errorf("%s: the body is an HTML page, not JSON", what)
	default:
		return fmt.Errorf("%s: the body is not the JSON that it should be: %w", what, err)
	}
}

// Metrics reads /metrics.
func (c *Client) Metrics(ctx context.Context) (Metrics, error) {
	text, err := c.text(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	if looksHTML(text) {
		return nil, errors.New("/metrics: the body is an HTML page, not metrics")
	}
	return ParseMetrics(string(text))
}
