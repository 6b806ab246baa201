package trial

import (
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// Over replaces methods of a drafter; nil fields leave them.
type Over struct {
	Name      string
	Propose   func(inner engine.Drafter, q kernels.Queue, asks []*engine.Ask) error
	Committed func(inner engine.Drafter, s *engine.Step) error
}

// Wrap returns a drafter whose methods are replaced, on the device if d is.
func Wrap(d engine.Drafter, o Over) engine.Drafter {
	if dev, ok := d.(engine.DeviceDrafter); ok {
		return &deviceOver{dev, o}
	}
	return &hostOver{d, o}
}

type hostOver struct {
	engine.Drafter
	over Over
}

// Name implements engine.Drafter.
func (d *hostOver) Name() string { return d.over.name(d.Drafter) }

// Propose implements engine.Drafter.
func (d *hostOver) Propose(q kernels.Queue, asks []*engine.Ask) error {
	return d.over.propose(d.Drafter, q, asks)
}

// Committed implements engine.Drafter.
func (d *hostOver) Committed(s *engine.Step) error { return d.over.committed(d.Drafter, s) }

type deviceOver struct {
	engine.DeviceDrafter
	over Over
}

// Name implements engine.Drafter.
func (d *deviceOver) Name() string { return d.over.name(d.DeviceDrafter) }

// Propose implements engine.Drafter.
func (d *deviceOver) Propose(q kernels.Queue, asks []*engine.Ask) error {
	return d.over.propose(d.DeviceDrafter, q, asks)
}

// Committed implements engine.Drafter.
func (d *deviceOver) Committed(s *engine.Step) error { return d.over.committed(d.DeviceDrafter, s) }

func (o Over) name(d engine.Drafter) string {
	if o.Name == "" {
		return d.Name()
	}
	return o.Name
}

func (o Over) propose(d engine.Drafter, q kernels.Queue, asks []*engine.Ask) error {
	if o.Propose == nil {
		return d.Propose(q, asks)
	}
	return o.Propose(d, q, asks)
}

func (o Over) committed(d engine.Drafter, s *engine.Step) error {
	if o.Committed == nil {
		return d.Committed(s)
	}
	return o.Committed(d, s)
}

// knowing makes the drafter of Known out of that of mtp.
func knowing(d engine.Drafter, plain func(seq *engine.Sequence) []int32) engine.Drafter {
	return Wrap(d, Over{Name: Known, Propose: func(inner engine.Drafter, q kernels.Queue, asks []*engine.Ask) error {
		if err := inner.Propose(q, asks); err != nil {
			return err
		}
		for _, a := range asks {
			out, done := plain(a.Seq), len(a.Seq.Output())
			for i := range a.Draft.Tokens {
				if done+i < len(out) {
					a.Draft.Tokens[i] = out[done+i]
				}
			}
		}
		return nil
	}})
}
