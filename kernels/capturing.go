package kernels

import (
	"errors"
	"fmt"
)

var errInCapture = errors.New("not allowed while a program is captured")

// Capturing is the part of a queue on which a program is captured that is alike in
// all backends without graphs of their own: what would run, wait or reach the host
// fails the capture. Embed it; the zero value is ready.
type Capturing struct{ err error }

// Fail fails the capture. The first error stays.
func (c *Capturing) Fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// Failure returns the first error of the capture, or nil.
func (c *Capturing) Failure() error { return c.err }

// Write fails the capture.
func (c *Capturing) Write(Buf, []byte) { c.Fail(fmt.Errorf("write: %w", errInCapture)) }

// Read fails the capture.
func (c *Capturing) Read([]byte, Buf) Ticket {
	c.Fail(fmt.Errorf("read: %w", errInCapture))
	return Ticket{Q: c}
}

// Run fails the capture: programs don't nest.
func (c *Capturing) Run(Program) { c.Fail(fmt.Errorf("run: %w", errInCapture)) }

// Capture fails the capture around it.
func (c *Capturing) Capture(GraphKey, func(Queue)) (Program, error) {
	c.Fail(fmt.Errorf("capture: %w", errInCapture))
	return Program{}, c.err
}

// Err fails the capture: it would wait.
func (c *Capturing) Err() error { return c.WaitFor(0) }

// WaitFor fails the capture.
func (c *Capturing) WaitFor(uint64) error {
	c.Fail(fmt.Errorf("wait: %w", errInCapture))
	return c.err
}
