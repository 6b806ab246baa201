package strategytest

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// spy stands between the engine and a drafter and keeps the first breach of the
// contract.
type spy struct {
	engine.Drafter
	vocab  int
	guide  *guide   // may be nil
	asked  asked    // of guided requests
	drafts []string // all drafts of the drafter itself, in order
	err    error
}

// deviceSpy is a spy on a drafter with caches behind the seam.
type deviceSpy struct {
	engine.DeviceDrafter
	spy *spy
}

var (
	_ engine.Drafter       = (*spy)(nil)
	_ engine.DeviceDrafter = deviceSpy{}
)

// watch wraps a drafter, keeping its kind.
func watch(d engine.Drafter, vocab int, g *guide) (engine.Drafter, *spy) {
	s := &spy{Drafter: d, vocab: vocab, guide: g, asked: asked{}}
	if dd, ok := d.(engine.DeviceDrafter); ok {
		return deviceSpy{dd, s}, s
	}
	return s, s
}

// Propose implements engine.Drafter.
func (d deviceSpy) Propose(q kernels.Queue, asks []*engine.Ask) error { return d.spy.Propose(q, asks) }

// Committed implements engine.Drafter.
func (d deviceSpy) Committed(s *engine.Step) error { return d.spy.Committed(s) }

// Committed implements engine.Drafter.
func (s *spy) Committed(step *engine.Step) error {
	return s.unchanged("Committed", sequences(step), func() error { return s.Drafter.Committed(step) })
}

// Propose implements engine.Drafter.
func (s *spy) Propose(q kernels.Queue, asks []*engine.Ask) error {
	seqs := make([]*engine.Sequence, len(asks))
	ks := make([]int, len(asks))
	for i, a := range asks {
		seqs[i], ks[i] = a.Seq, a.K
	}
	if err := s.unchanged("Propose", seqs, func() error { return s.Drafter.Propose(q, asks) }); err != nil {
		return err
	}
	for i, a := range asks {
		if a.Seq != seqs[i] || a.K != ks[i] {
			s.breach(seqs[i], "Propose changed the ask")
			continue
		}
		s.check(a)
		s.drafts = append(s.drafts, fmt.Sprintf("%s at %d: %v %v", a.Seq.Request().ID, len(a.Seq.Tokens()), a.Draft.Tokens, a.Draft.Parents))
		if s.guide != nil && s.err == nil {
			s.guide.replace(a, s.asked, s.vocab)
		}
	}
	return nil
}

// unchanged calls f and sees that the sequences' tokens stay as they were.
func (s *spy) unchanged(call string, seqs []*engine.Sequence, f func() error) error {
	before := make([][]int32, len(seqs))
	for i, q := range seqs {
		before[i] = slices.Clone(q.Tokens())
	}
	err := f()
	for i, q := range seqs {
		if !slices.Equal(before[i], q.Tokens()) {
			s.breach(q, "%s changed the sequence's tokens", call)
		}
	}
	return err
}

// check looks at one draft.
func (s *spy) check(a *engine.Ask) {
	d := a.Draft
	if len(d.Tokens) > a.K {
		s.breach(a.Seq, "a draft of %d tokens where at most %d were asked for", len(d.Tokens), a.K)
	}
	for i, id := range d.Tokens {
		if id < 0 || int(id) >= s.vocab {
			s.breach(a.Seq, "draft %d is id %d; the vocabulary is 0..%d", i, id, s.vocab-1)
		}
	}
	if d.Parents != nil && len(d.Parents) != len(d.Tokens) {
		s.breach(a.Seq, "%d parents for %d tokens; it is one each, or none", len(d.Parents), len(d.Tokens))
		return
	}
	for i, p := range d.Parents {
		if p < -1 || int(p) >= i {
			s.breach(a.Seq, "draft %d follows draft %d; it follows one before it, or -1", i, p)
		}
		if j := d.Child(int(p)+1, d.Tokens[i]); s.err == nil && d.Probs == nil && j < i {
			s.breach(a.Seq, "drafts %d and %d are the same token after the same tokens", j, i)
		}
	}
	if d.Probs == nil || s.err != nil {
		return
	}
	if len(d.Probs) != len(d.Tokens) {
		s.breach(a.Seq, "%d distributions for %d tokens; it is one each, or none", len(d.Probs), len(d.Tokens))
		return
	}
	for i, q := range d.Probs {
		if q != nil {
			s.checkProbs(a, i, q)
		}
	}
}

func (s *spy) checkProbs(a *engine.Ask, i int, q []float32) {
	if len(q) != s.vocab {
		s.breach(a.Seq, "the distribution of draft %d has %d entries; the vocabulary has %d", i, len(q), s.vocab)
		return
	}
	for id, p := range q {
		if !(p >= 0) {
			s.breach(a.Seq, "the distribution of draft %d has %v at token %d", i, p, id)
		}
	}
	if q[a.Draft.Tokens[i]] == 0 {
		s.breach(a.Seq, "the distribution of draft %d gives nothing to its token %d", i, a.Draft.Tokens[i])
	}
}

// breach keeps the first breach.
func (s *spy) breach(q *engine.Sequence, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("drafter %s, request %s of %d tokens: %s", s.Name(), q.Request().ID, len(q.Tokens()), fmt.Sprintf(format, args...))
	}
}

func sequences(step *engine.Step) []*engine.Sequence {
	var out []*engine.Sequence
	for _, sp := range step.Spans {
		out = append(out, sp.Seq)
	}
	return out
}
