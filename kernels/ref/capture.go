package ref

import (
	"exacta.dev/exacta/kernels"
)

// capture is the queue that the body of Queue.Capture records on: its list
// becomes the program.
type capture struct {
	kernels.Capturing
	recorder
	ops []op
}

func newCapture(be *Backend) *capture {
	c := &capture{recorder: recorder{be: be}}
	c.add = func(name string, build builder) {
		o, err := be.build(name, build)
		if err != nil {
			c.Fail(err)
			return
		}
		c.ops = append(c.ops, o)
	}
	return c
}
