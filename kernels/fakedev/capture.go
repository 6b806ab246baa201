package fakedev

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
)

// capture is the queue that the body of Queue.Capture records on.
type capture struct {
	recorder
	commands []command
	err      error // the first
}

func newCapture(be *Backend) *capture {
	c := &capture{}
	c.recorder = recorder{be: be, add: func(cmd command, err error) {
		if err != nil {
			c.fail(fmt.Errorf("%s: %w", cmd.name, err))
			return
		}
		c.commands = append(c.commands, cmd)
	}}
	return c
}

func (c *capture) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

var errInCapture = errors.New("not allowed while a program is captured")

// Write fails the capture.
func (c *capture) Write(kernels.Buf, []byte) { c.fail(fmt.Errorf("write: %w", errInCapture)) }

// Read fails the capture.
func (c *capture) Read([]byte, kernels.Buf) kernels.Ticket {
	c.fail(fmt.Errorf("read: %w", errInCapture))
	return kernels.Ticket{Q: c}
}

// Run fails the capture: programs don't nest.
func (c *capture) Run(kernels.Program) { c.fail(fmt.Errorf("run: %w", errInCapture)) }

// Capture fails the capture around it.
func (c *capture) Capture(kernels.GraphKey, func(kernels.Queue)) (kernels.Program, error) {
	c.fail(fmt.Errorf("capture: %w", errInCapture))
	return kernels.Program{}, c.err
}

// Err fails the capture: it would wait.
func (c *capture) Err() error { return c.WaitFor(0) }

// WaitFor fails the capture.
func (c *capture) WaitFor(uint64) error {
	c.fail(fmt.Errorf("wait: %w", errInCapture))
	return c.err
}
