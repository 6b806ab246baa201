package fakedev

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// capture is the queue that the body of Queue.Capture records on.
type capture struct {
	kernels.Capturing
	recorder
	commands []command
}

func newCapture(be *Backend) *capture {
	c := &capture{}
	c.recorder = recorder{be: be, add: func(cmd command, err error) {
		if err != nil {
			c.Fail(fmt.Errorf("%s: %w", cmd.name, err))
			return
		}
		c.commands = append(c.commands, cmd)
	}}
	return c
}
