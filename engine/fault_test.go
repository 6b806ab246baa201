package engine_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// broken is the greedy rule until a position, and wrong from there on.
type broken struct {
	engine.Verifier
	from int
	how  func(v *engine.Verification, good engine.Verdict) (engine.Verdict, error)
}

func (b *broken) Name() string { return "broken" }

func (b *broken) Verify(v *engine.Verification) (engine.Verdict, error) {
	good, err := b.Verifier.Verify(v)
	if err != nil || v.Position < b.from {
		return good, err
	}
	return b.how(v, good)
}

var errBroken = errors.New("the rule broke")

// A sequence whose rule fails ends alone, with what was decided before; the
// others, in the same batches, go on exactly.
func TestBrokenRuleEndsItsOwnSequence(t *testing.T) {
	m := tinyCPU(t)
	reqs := []engine.Request{
		{ID: "a", Prompt: prompt(61, 5), MaxNew: 30, Drafter: "ngram", K: 3},
		{ID: "bad", Prompt: prompt(60, 6), MaxNew: 30, Drafter: "mtp", K: 2},
		{ID: "c", Prompt: prompt(64, 7), MaxNew: 30, Drafter: "mtp", K: 3},
		{ID: "d", Prompt: prompt(10, 9), MaxNew: 15},
	}
	want := plain(t, m, reqs...)
	for _, c := range []struct {
		name string
		how  func(*engine.Verification, engine.Verdict) (engine.Verdict, error)
		want string
	}{
		{"errs", func(*engine.Verification, engine.Verdict) (engine.Verdict, error) { return engine.Verdict{}, errBroken },
			"request bad: rule broken: the rule broke"},
		{"accepts more than proposed", func(v *engine.Verification, g engine.Verdict) (engine.Verdict, error) {
			return engine.Verdict{Accepted: engine.Accepted(len(v.Draft.Tokens) + 1), Next: 7, Kind: engine.NextBonus}, nil
		}, "request bad: rule broken accepted 3 of 2 drafts with next token 7"},
		{"accepts less than none", func(*engine.Verification, engine.Verdict) (engine.Verdict, error) {
			return engine.Verdict{Accepted: -1, Next: 7, Kind: engine.NextCorrection}, nil
		}, "request bad: rule broken accepted -1 of 2 drafts with next token 7"},
		{"an id outside the vocabulary", func(*engine.Verification, engine.Verdict) (engine.Verdict, error) {
			return engine.Verdict{Next: vocab, Kind: engine.NextCorrection}, nil
		}, "request bad: rule broken accepted 0 of 2 drafts with next token 61"},
		{"a negative id", func(*engine.Verification, engine.Verdict) (engine.Verdict, error) {
			return engine.Verdict{Next: -1, Kind: engine.NextCorrection}, nil
		}, "request bad: rule broken accepted 0 of 2 drafts with next token -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, m, engine.Config{MaxSequences: 4}, strategy(t, m, "ngram"), strategy(t, m, "mtp"))
			for _, q := range reqs {
				if q.ID == "bad" {
					q.Rule = &broken{rule(t, "greedy"), 66, c.how}
				}
				r.submit(q)
			}
			r.close()
			bad := r.out["bad"]
			require.Equal(t, engine.FinishError, bad.seq.Finish())
			require.EqualError(t, bad.seq.Err(), c.want)
			require.GreaterOrEqual(t, len(bad.tokens), 6, "what was decided before stays")
			require.Equal(t, want["bad"].tokens[:len(bad.tokens)], bad.seq.Output())
			require.Equal(t, bad.tokens, bad.seq.Output())
			obeys(t, bad)
			for _, id := range []string{"a", "c", "d"} {
				same(t, want[id], r.out[id])
			}
		})
	}
}

// The first token comes from the prompt's last row: a rule can fail there too.
func TestBrokenRuleAtThePrompt(t *testing.T) {
	m := tinyCPU(t)
	r := newRig(t, m, engine.Config{MaxSequences: 2})
	s := r.submit(engine.Request{ID: "bad", Prompt: prompt(5, 1), MaxNew: 4, Rule: &broken{
		rule(t, "greedy"), 0, func(*engine.Verification, engine.Verdict) (engine.Verdict, error) { return engine.Verdict{}, errBroken },
	}})
	r.close()
	require.ErrorIs(t, s.Err(), errBroken)
	require.Empty(t, s.Output())
	require.Empty(t, r.out["bad"].records)
}

// A drafter may propose anything: ids that are no tokens, too many, none.
func TestGarbageDraftsChangeNothing(t *testing.T) {
	m := tinyCPU(t)
	reqs := []engine.Request{
		{ID: "a", Prompt: prompt(50, 5), MaxNew: 50, Drafter: "garbage", K: 4},
		{ID: "b", Prompt: prompt(63, 6), MaxNew: 50, Drafter: "garbage", K: 1},
		{ID: "s", Prompt: prompt(63, 7), MaxNew: 50, Drafter: "garbage", K: 3, Rule: rule(t, "coupled"), Params: sample.Params{Temperature: 0.9, Seed: 4}},
	}
	want := plain(t, m, reqs...)
	n := 0
	garbage := [][]int32{{-1}, {vocab}, {1 << 30, 3, 3}, {2, -7, 2, 2}, nil, {}, {0, 0, 0, 0, 0, 0, 0, 0, 0}, {vocab - 1, vocab}}
	d := &scripted{name: "garbage", propose: func(*engine.Ask) ([]int32, error) { n++; return garbage[n%len(garbage)], nil }}
	r := newRig(t, m, engine.Config{MaxSequences: 3}, d)
	for _, q := range reqs {
		r.submit(q)
	}
	r.close()
	cut := false
	for id, o := range r.out {
		same(t, want[id], o)
		for _, rec := range o.records {
			cut = cut || rec.KExecuted == 1 && rec.KPlanned > 1
		}
	}
	require.True(t, cut, "a draft was cut before an id that is no token")
	require.ElementsMatch(t, []string{"a", "b", "s"}, d.released)
}

// A drafter that errs ends the sequences that asked it, and no others.
func TestDrafterErrors(t *testing.T) {
	m := tinyCPU(t)
	reqs := []engine.Request{
		{ID: "bad", Prompt: prompt(50, 5), MaxNew: 50, Drafter: "failing", K: 4},
		{ID: "b", Prompt: prompt(63, 6), MaxNew: 30, Drafter: "ngram", K: 2},
		{ID: "c", Prompt: prompt(62, 7), MaxNew: 30, Drafter: "mtp", K: 2},
	}
	want := plain(t, m, reqs...)
	full := errors.New("out of ideas")
	for _, c := range []struct {
		name string
		d    *scripted
	}{
		{"propose", &scripted{name: "failing", propose: func(a *engine.Ask) ([]int32, error) {
			if len(a.Seq.Output()) > 5 {
				return nil, full
			}
			return []int32{1, 2}, nil
		}}},
		{"committed", &scripted{name: "failing", propose: func(*engine.Ask) ([]int32, error) { return nil, nil }, committed: func(s *engine.Step) error {
			if len(s.Spans[0].Seq.Output()) > 5 {
				return full
			}
			return nil
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, m, engine.Config{MaxSequences: 4}, c.d, strategy(t, m, "ngram"), strategy(t, m, "mtp"))
			for _, q := range reqs {
				r.submit(q)
			}
			// The same drafter's sequence that does not ask goes on.
			quiet := reqs[0]
			quiet.ID, quiet.K = "quiet", 0
			if c.name == "propose" {
				r.submit(quiet)
			}
			r.close()
			bad := r.out["bad"]
			require.ErrorIs(t, bad.seq.Err(), full)
			require.EqualError(t, bad.seq.Err(), "request bad: drafter failing: out of ideas")
			require.Equal(t, engine.FinishError, bad.seq.Finish())
			require.Equal(t, want["bad"].tokens[:len(bad.tokens)], bad.seq.Output())
			require.NotEmpty(t, bad.tokens)
			same(t, want["b"], r.out["b"])
			same(t, want["c"], r.out["c"])
			if c.name == "propose" {
				require.Equal(t, want["bad"].tokens, r.out["quiet"].tokens)
			}
		})
	}
}

// Without records a run proves nothing, so a recorder that fails ends it.
func TestRecorderErrorEndsTheEngine(t *testing.T) {
	m := tinyCPU(t)
	full := errors.New("no space left on device")
	n := 0
	rec := engine.RecorderFunc(func(*engine.Record) error {
		if n++; n == 5 {
			return full
		}
		return nil
	})
	e, err := engine.New(m, engine.Config{MaxSequences: 1}, nil, rule(t, "greedy"), rec, engine.Listener{})
	require.NoError(t, err)
	_, err = e.Submit(engine.Request{ID: "a", Prompt: prompt(10, 1), MaxNew: 30, IgnoreStop: true})
	require.NoError(t, err)
	err = e.Run(nil)
	require.ErrorIs(t, err, full)
	require.EqualError(t, err, "engine step 4: record of request a: no space left on device")
	more, again := e.Step()
	require.False(t, more)
	require.Equal(t, err, again, "the engine has ended")
	require.Equal(t, 5, n)
	_, refused := e.Submit(engine.Request{ID: "b", Prompt: prompt(10, 1), MaxNew: 3})
	require.EqualError(t, refused, "request b: engine step 4: record of request a: no space left on device")
	require.NoError(t, e.Close())
}
