package outside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// maxEvent bounds one event of a stream, in bytes.
const maxEvent = 16 << 20

// events reads server-sent events. Events that come in one read have one time.
type events struct {
	r    io.Reader
	now  func() time.Duration
	buf  []byte
	at   time.Duration
	left int64 // bytes that may still come
	err  error

	// base is the memory that buf lies in, used again when buf is empty.
	base    []byte
	scanned int // bytes of buf in which no block ends
}

// next returns the next event, io.EOF behind the last. An event that the end of
// the stream cuts is io.ErrUnexpectedEOF.
func (e *events) next() (Event, error) {
	for {
		if data, ok := e.take(); ok {
			if data == nil {
				continue
			}
			return Event{data, e.at}, nil
		}
		if e.err != nil {
			if errors.Is(e.err, io.EOF) && len(bytes.TrimSpace(e.buf)) > 0 {
				return Event{}, io.ErrUnexpectedEOF
			}
			return Event{}, e.err
		}
		e.read()
	}
}

func (e *events) read() {
	if len(e.buf) > maxEvent {
		e.err = fmt.Errorf("an event has more than %d bytes", maxEvent)
		return
	}
	if len(e.buf) == 0 {
		e.buf = e.base
	}
	if cap(e.buf)-len(e.buf) < 1<<10 {
		more := make([]byte, len(e.buf), 4<<10+2*len(e.buf))
		copy(more, e.buf)
		e.buf, e.base = more, more[:0]
	}
	n, err := e.r.Read(e.buf[len(e.buf):cap(e.buf)])
	e.at = e.now()
	e.buf = e.buf[:len(e.buf)+n]
	e.err = err
	if e.left -= int64(n); e.left < 0 && err == nil {
		e.err = errors.New("the stream is longer than a body may be")
	}
}

// take cuts the first whole event off the buffer: the joined data lines of a
// block, nil for a block that has none (comments, ids). They are overwritten by the
// next read.
func (e *events) take() (data []byte, ok bool) {
	from := max(0, e.scanned-3) // an end may lie across two reads
	end, skip := blockEnd(e.buf[from:])
	if end < 0 {
		e.scanned = len(e.buf)
		return nil, false
	}
	end += from
	block := e.buf[:end]
	e.buf, e.scanned = e.buf[end+skip:], 0
	for line := range bytes.SplitSeq(block, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		rest, found := bytes.CutPrefix(line, []byte("data:"))
		if !found {
			continue
		}
		rest = bytes.TrimPrefix(rest, []byte(" "))
		switch {
		case len(rest) == 0 && data == nil:
		case data == nil:
			data = rest // the usual case: nothing is copied
		default:
			data = slices.Concat(data, []byte("\n"), rest)
		}
	}
	return data, true
}

// blockEnd finds the empty line behind a block: where the block ends and how
// many bytes end it.
func blockEnd(b []byte) (end, skip int) {
	lf, crlf := bytes.Index(b, []byte("\n\n")), bytes.Index(b, []byte("\r\n\r\n"))
	switch {
	case crlf >= 0 && (lf < 0 || crlf < lf):
		return crlf, 4
	case lf >= 0:
		return lf, 2
	}
	return -1, 0
}

// done is the data of the event that ends a stream.
var done = []byte("[DONE]")

// Event is one server-sent event: its data, which the next event overwrites, and the
// time at which its last byte was read.
type Event struct {
	Data []byte
	At   time.Duration
}

// Stream makes a call (a body that is a json.RawMessage is sent as it is) and hands
// out its events, timed by now, until the one that ends it. A body that isn't a
// stream of events is an error; ended is false where the stream ended without its
// last event.
func (c *Client) Stream(ctx context.Context, path string, body any, now func() time.Duration, each func(Event) error) (ended bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Total, fmt.Errorf("the stream lasted longer than %v", c.Total))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	quiet := fmt.Errorf("nothing came for %v", c.Timeout)
	idle := time.AfterFunc(c.Timeout, func() { stop(quiet) })
	defer idle.Stop()
	resp, err := c.send(ctx, post, path, body)
	if err != nil {
		return false, causeOf(ctx, err)
	}
	defer resp.Body.Close()
	es := events{r: resp.Body, now: now, left: 8 * c.MaxBody}
	for seen := 0; ; seen++ {
		ev, err := es.next()
		idle.Reset(c.Timeout)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF) && seen == 0:
			if looksHTML(es.buf) {
				return false, fmt.Errorf("%s: the body is an HTML page, not a stream of events", path)
			}
			return false, fmt.Errorf("%s: the body is no stream of events: %s", path, short(string(bytes.TrimSpace(es.buf))))
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, causeOf(ctx, fmt.Errorf("%s: the stream was cut off: %w", path, err))
		case bytes.Equal(bytes.TrimSpace(ev.Data), done):
			return true, nil
		}
		if err := each(ev); err != nil {
			return false, fmt.Errorf("%s: %w", path, err)
		}
	}
}
