package experiments

import (
	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// follower is a rule that commits what a request received, step for step, and
// keeps its own decision beside it.
type follower struct {
	engine.Verifier
	req *audit.Request
}

// Verify implements engine.Verifier. Where nothing is left to follow, or the
// request received nothing, the rule itself decides.
func (f *follower) Verify(v *engine.Verification) (engine.Verdict, error) {
	real, err := f.Verifier.Verify(v)
	if err != nil {
		return real, err
	}
	at := v.Position + 1 - len(f.req.Prompt)
	if at < 0 || at >= len(f.req.Received) {
		return real, nil
	}
	left := f.req.Received[at:]
	if cut(v, &real, left) {
		return real, nil
	}
	most := min(len(left), f.req.StepLength(v.Position, int(real.Accepted)+1)) - 1
	row, path := 0, []int32(nil)
	for len(path) < most {
		i := v.Draft.Child(row, left[len(path)])
		if i < 0 {
			break
		}
		row, path = i+1, append(path, int32(i))
	}
	n := len(path)
	if n == int(real.Accepted) && left[n] == real.Next {
		return real, nil
	}
	return engine.Verdict{
		Accepted: engine.Accepted(n), Path: path, Next: left[n], Kind: real.Kind, Targets: real.Targets,
		Simulation: &engine.Simulation{Spec: "follow", Real: real.Accepted, RealNext: real.Next},
	}, nil
}

// cut says that what is left to follow ends within what the rule decides about a
// tree: the step then is the run's own, and the request ends with it.
func cut(v *engine.Verification, real *engine.Verdict, left []int32) bool {
	if v.Draft.Parents == nil || len(left) > int(real.Accepted) || len(real.Path) != int(real.Accepted) {
		return false
	}
	for j, id := range left {
		if v.Draft.Tokens[real.Path[j]] != id {
			return false
		}
	}
	return true
}

// TargetNoise says whether drafts are drawn with the target's own noise, as the
// run's rule said.
func (f *follower) TargetNoise() bool {
	noise, ok := f.Verifier.(interface{ TargetNoise() bool })
	return ok && noise.TargetNoise()
}

// follow makes a drafter ask for as many drafts in each step as the run planned
// there.
func follow(d engine.Drafter, r *audit.Request) engine.Drafter {
	switch d := d.(type) {
	case nil:
		return nil
	case engine.DeviceDrafter:
		return &followingDevice{d, r}
	}
	return &followingHost{d, r}
}

type followingHost struct {
	engine.Drafter
	req *audit.Request
}

// Propose implements engine.Drafter.
func (d *followingHost) Propose(q kernels.Queue, asks []*engine.Ask) error {
	return d.Drafter.Propose(q, planned(asks, d.req))
}

type followingDevice struct {
	engine.DeviceDrafter
	req *audit.Request
}

// Propose implements engine.Drafter.
func (d *followingDevice) Propose(q kernels.Queue, asks []*engine.Ask) error {
	return d.DeviceDrafter.Propose(q, planned(asks, d.req))
}

// planned lowers the asks to what the run planned, and leaves out those that
// have nothing to ask for.
func planned(asks []*engine.Ask, r *audit.Request) []*engine.Ask {
	var out []*engine.Ask
	for _, a := range asks {
		a.K = min(a.K, r.StepDrafts(a.Seq.Length(), a.K))
		if a.K > 0 {
			out = append(out, a)
		}
	}
	return out
}
