package ref

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
)

// capture is the queue that the body of Queue.Capture records on: its list
// becomes the program.
type capture struct {
	recorder
	ops []op
	err error
}

func newCapture(be *Backend) *capture {
	c := &capture{recorder: recorder{be: be}}
	c.add = func(name string, build builder) {
		o, err := be.build(name, build)
		if err != nil {
			c.fail(err)
			return
		}
		c.ops = append(c.ops, o)
	}
	return c
}

func (c *capture) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

var errInCapture = errors.New("not allowed while a program is captured")

func (c *capture) Write(kernels.Buf, []byte) { c.fail(fmt.Errorf("write: %w", errInCapture)) }

func (c *capture) Read([]byte, kernels.Buf) kernels.Ticket {
	c.fail(fmt.Errorf("read: %w", errInCapture))
	return kernels.Ticket{Q: c}
}

func (c *capture) Run(kernels.Program) { c.fail(fmt.Errorf("run: %w", errInCapture)) }

func (c *capture) Capture(kernels.GraphKey, func(kernels.Queue)) (kernels.Program, error) {
	c.fail(fmt.Errorf("capture: %w", errInCapture))
	return kernels.Program{}, c.err
}

func (c *capture) Err() error { return c.WaitFor(0) }

func (c *capture) WaitFor(uint64) error {
	c.fail(fmt.Errorf("wait: %w", errInCapture))
	return c.err
}
