package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
)

// A stop token in the middle of an accepted draft cuts there, although the rule
// accepted, and the caches kept, what comes after it.
func TestStopInsideAcceptedDraft(t *testing.T) {
	m := tinyCPU(t)
	req := engine.Request{ID: "a", Prompt: prompt(60, 2), MaxNew: 40, Drafter: "knowing", K: 6}
	want := plain(t, m, req)["a"]

	// The drafter knows everything, so decode steps emit 7 tokens each after
	// the first. Stop at the first occurrence of a token that is in the
	// middle of a step.
	at := -1
	for i := 9; i < 35; i++ {
		if in := (i - 1) % 7; in >= 1 && in <= 4 && slices.Index(want.tokens, want.tokens[i]) == i {
			at = i
			break
		}
	}
	require.Positive(t, at, "no token of %v can serve", want.tokens)
	req.Stop = []int32{want.tokens[at]}

	r := newRig(t, m, engine.Config{MaxSequences: 1}, knowing(outputs(map[string]*outcome{"a": want}), 0))
	s := r.submit(req)
	r.close()
	got := r.out["a"]
	require.Equal(t, engine.FinishStop, s.Finish())
	require.NoError(t, s.Err())
	require.Equal(t, want.tokens[:at+1], s.Output(), "the stop token is the last")
	require.Equal(t, want.hashes[:at+1], got.hashes)
	obeys(t, got)

	last := got.records[len(got.records)-1]
	require.EqualValues(t, 6, last.Accepted, "the rule's verdict stands in the record")
	require.Equal(t, engine.NextBonus, last.NextKind)
	require.EqualValues(t, (at-1)%7+1, last.Emitted(), "cut")
	require.Len(t, last.Hashes, 7)
	require.Equal(t, []string{"a"}, r.finished)

	// With IgnoreStop the same request runs to its length.
	req.IgnoreStop = true
	r = newRig(t, m, engine.Config{MaxSequences: 1}, knowing(outputs(map[string]*outcome{"a": want}), 0))
	r.submit(req)
	r.close()
	same(t, want, r.out["a"])
}

// The length limit, and the end of the context, cut inside an accepted draft.
func TestLengthCuts(t *testing.T) {
	m := tinyCPU(t)
	req := engine.Request{ID: "a", Prompt: prompt(60, 4), MaxNew: 60, Drafter: "knowing", K: 5}
	want := plain(t, m, req)["a"]
	know := outputs(map[string]*outcome{"a": want})
	for _, c := range []struct{ maxNew, maxTokens, n int }{
		{1, context, 1}, {2, context, 2}, {9, context, 9}, {20, context, 20},
		{60, 61, 1}, {60, 64, 4}, {60, 65, 5}, {60, 70, 10}, {60, 79, 19},
	} {
		t.Run(fmt.Sprintf("max_new %d in a context of %d", c.maxNew, c.maxTokens), func(t *testing.T) {
			r := newRig(t, m, engine.Config{MaxSequences: 1, MaxTokens: c.maxTokens}, knowing(know, 0))
			req.MaxNew = c.maxNew
			s := r.submit(req)
			r.close()
			require.Equal(t, engine.FinishLength, s.Finish())
			require.Equal(t, want.tokens[:c.n], s.Output())
			require.Equal(t, want.hashes[:c.n], r.out["a"].hashes)
			obeys(t, r.out["a"])
		})
	}
}

// A cancelled sequence ends at once, its slot serves another, and the others
// never notice.
func TestCancelBetweenSteps(t *testing.T) {
	m := tinyCPU(t)
	reqs := []engine.Request{
		{ID: "a", Prompt: prompt(40, 5), MaxNew: 40, Drafter: "ngram", K: 3},
		{ID: "b", Prompt: prompt(63, 6), MaxNew: 40, Drafter: "mtp", K: 2},
		{ID: "c", Prompt: prompt(64, 7), MaxNew: 20},
		{ID: "d", Prompt: prompt(30, 8), MaxNew: 20, Drafter: "mtp", K: 3},
	}
	want := plain(t, m, reqs...)
	r := newRig(t, m, engine.Config{MaxSequences: 2}, strategy(t, m, "ngram"), strategy(t, m, "mtp"))
	a, b := r.submit(reqs[0]), r.submit(reqs[1])
	r.submit(reqs[2])
	d := r.submit(reqs[3])
	for range 6 {
		more, err := r.e.Step()
		require.NoError(t, err)
		require.True(t, more)
	}
	require.Empty(t, a.Finish())
	r.e.Cancel(a) // running
	r.e.Cancel(d) // waiting: both slots were taken until now
	require.Equal(t, engine.FinishCancel, a.Finish())
	require.Equal(t, engine.FinishCancel, d.Finish())
	require.Equal(t, 2, r.e.Active())
	require.Equal(t, -1, a.Slot())
	n := len(a.Output())
	r.e.Cancel(a) // again: nothing
	r.close()
	require.Positive(t, n)
	require.Len(t, a.Output(), n, "no token after the cancellation")
	require.Equal(t, want["a"].tokens[:n], a.Output())
	require.Empty(t, d.Output())
	same(t, want["b"], r.out["b"])
	same(t, want["c"], r.out["c"])
	require.Equal(t, engine.FinishLength, b.Finish())
	require.Equal(t, []string{"a", "d"}, r.finished[:2])
	require.ElementsMatch(t, []string{"a", "b", "c", "d"}, r.finished, "each is told of once")
}

// A listener may cancel the very sequence that it is told of, even with its last
// record.
func TestCancelFromListener(t *testing.T) {
	m := tinyCPU(t)
	for _, after := range []int{1, 3, 5} {
		var e *engine.Engine
		ended := 0
		e, err := engine.New(m, engine.Config{MaxSequences: 1}, nil, rule(t, "greedy"), nil, engine.Listener{
			Emitted: func(s *engine.Sequence, _ *engine.Record) {
				if len(s.Output()) == after {
					e.Cancel(s)
				}
			},
			Finished: func(*engine.Sequence) { ended++ },
		})
		require.NoError(t, err)
		s, err := e.Submit(engine.Request{ID: "a", Prompt: prompt(10, 1), MaxNew: 5, IgnoreStop: true})
		require.NoError(t, err)
		require.NoError(t, e.Run(nil))
		require.NoError(t, e.Close())
		require.Len(t, s.Output(), after)
		require.Equal(t, engine.FinishCancel, s.Finish())
		require.Equal(t, 1, ended)
	}
}

func TestRunStops(t *testing.T) {
	r := newRig(t, tinyCPU(t), engine.Config{MaxSequences: 1})
	s := r.submit(engine.Request{ID: "a", Prompt: prompt(10, 1), MaxNew: 30, IgnoreStop: true})
	require.NoError(t, r.e.Run(func() bool { return len(s.Output()) == 7 }))
	require.Len(t, s.Output(), 7)
	require.Equal(t, 1, r.e.Active())
	r.close()
	require.Len(t, s.Output(), 30)
}
