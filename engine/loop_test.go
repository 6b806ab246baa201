package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/embedded"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/fakedev"
)

const (
	loopK     = 3
	loopSteps = 40
)

// looped reads the prompts with Step, and then runs a loop of the drafter.
func looped(t *testing.T, m *model.Model, drafter engine.Drafter, reqs []engine.Request) (first [][]int32, steps [][]engine.LoopStep) {
	t.Helper()
	r := newRig(t, m, engine.Config{MaxSequences: 2, MaxTokens: context}, drafter)
	var seqs []*engine.Sequence
	for _, q := range reqs {
		seqs = append(seqs, r.submit(q))
	}
	more, err := r.e.Step()
	require.NoError(t, err)
	require.True(t, more)
	for _, s := range seqs {
		first = append(first, append([]int32(nil), s.Output()...))
	}
	l, err := r.e.NewLoop(seqs, loopK, loopSteps)
	require.NoError(t, err)
	_, err = r.e.Step()
	require.EqualError(t, err, "engine: 2 sequences run in a loop; cancel them before the next step")
	// In two runs: the second goes on where the first ended.
	each := func(step int, s []engine.LoopStep) {
		require.Equal(t, len(steps), step)
		steps = append(steps, s)
	}
	require.NoError(t, l.Run(7, each))
	require.NoError(t, l.Run(loopSteps-7, each))
	require.EqualError(t, l.Run(1, each), "engine: loop of 40 steps asked for step 41")
	require.Len(t, steps, loopSteps)
	for _, s := range seqs {
		r.e.Cancel(s)
	}
	require.ErrorContains(t, l.Run(0, each), "has ended (cancelled); its loop can't go on")
	r.close()
	return first, steps
}

// loopIsStep compares a loop on be with what Step gives on the CPU, step by step,
// and returns the number of accepted drafts.
func loopIsStep(t *testing.T, be kernels.Backend, src model.Source, drafter string, reqs []engine.Request) int {
	t.Helper()
	m, dev := load(t, newCPU(t), src), load(t, be, src)
	r := newRig(t, m, engine.Config{MaxSequences: 2, MaxTokens: context}, strategy(t, m, drafter))
	for _, q := range reqs {
		r.submit(q)
	}
	r.close()
	want := r.out
	first, steps := looped(t, dev, strategy(t, dev, drafter), reqs)
	accepted := 0
	for i, q := range reqs {
		records := want[q.ID].records
		require.Equal(t, records[0].EmittedIDs, first[i])
		require.Greater(t, len(records), loopSteps)
		borders := 0
		for j := range loopSteps {
			rec, got := records[j+1], steps[j][i]
			require.Equal(t, q.ID, got.Seq.Request().ID)
			at := fmt.Sprintf("%s, step %d", q.ID, j)
			require.EqualValues(t, loopK, rec.KExecuted, at)
			require.Equal(t, rec.ProposedIDs, got.Drafts, at)
			require.Equal(t, rec.Accepted, got.Accepted, at)
			require.Equal(t, rec.NextID, got.Next, at)
			require.Equal(t, rec.Hashes, got.Hashes, at)
			accepted += int(got.Accepted)
			if int(rec.Position)/kernels.WindowTokens != (int(rec.Position)+loopK)/kernels.WindowTokens {
				borders++
			}
		}
		require.Positive(t, borders, "%s crosses no window border", q.ID)
	}
	return accepted
}

func loopRequests(vocabulary int32, drafter string) []engine.Request {
	a, b := prompt(50, 5), prompt(37, 6)
	for i := range b {
		b[i] %= vocabulary
	}
	return []engine.Request{
		{ID: "a", Prompt: a, MaxNew: 240, IgnoreStop: true, Drafter: drafter, K: loopK},
		{ID: "b", Prompt: b, MaxNew: 240, IgnoreStop: true, Drafter: drafter, K: loopK},
	}
}

// The loop decides what Step decides, on memory that the host can read and on a
// device where it can't.
func TestLoopIsStep(t *testing.T) {
	for _, d := range []string{"mtp", "eagle3", "medusa", "dflash", "layerskip", "model", "eagle", "dspark"} {
		t.Run(d+"/cpu", func(t *testing.T) { loopIsStep(t, newCPU(t), tiny(), d, loopRequests(vocab, d)) })
		t.Run(d+"/fakedev", func(t *testing.T) { loopIsStep(t, fakedev.New(newCPU(t)), tiny(), d, loopRequests(vocab, d)) })
	}
}

// The same with trained weights, where most drafts stand.
func TestLoopIsStepEmbedded(t *testing.T) {
	if testing.Short() {
		t.Skip("the embedded model is too slow under the race detector")
	}
	entry, err := registry.Open(registry.Embedded)
	if errors.Is(err, embedded.ErrAbsent) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, entry.Close()) })
	reqs := loopRequests(vocab, "mtp")
	for i, text := range []string{"package main\n\nimport (\n\t\"fmt\"\n", "func (s *Server) handle(w http.ResponseWriter, r *http.Request) {\n\tif err := "} {
		// A few tokens before a border, so that it is crossed whatever the
		// weights accept.
		ids := entry.Tokenizer.Encode(strings.Repeat("// A line that says nothing.\n", 20)+text, true)
		reqs[i].Prompt = ids[len(ids)-(kernels.WindowTokens-6):]
	}
	accepted := loopIsStep(t, fakedev.New(newCPU(t)), entry.Source, "mtp", reqs)
	t.Logf("%d of %d drafts accepted", accepted, 2*loopSteps*loopK)
	require.Greater(t, accepted, loopSteps/2)
}

func TestLoopRefused(t *testing.T) {
	m := tinyCPU(t)
	r := newRig(t, m, engine.Config{MaxSequences: 8, MaxDraft: 4}, strategy(t, m, "mtp"), strategy(t, m, "ngram"))
	req := func(id, drafter string) engine.Request {
		return engine.Request{ID: id, Prompt: prompt(20, 1), MaxNew: 250, IgnoreStop: true, Drafter: drafter, K: 2}
	}
	a, b := r.submit(req("a", "mtp")), r.submit(req("b", "mtp"))
	none, host := r.submit(req("none", "")), r.submit(req("host", "ngram"))
	hot, short := req("hot", "mtp"), req("short", "mtp")
	hot.Params, hot.Rule = sample.Params{Temperature: 1}, rule(t, "coupled")
	short.MaxNew = 1
	hotSeq, ended := r.submit(hot), r.submit(short)
	refused := func(want string, k, steps int, seqs ...*engine.Sequence) {
		t.Helper()
		l, err := r.e.NewLoop(seqs, k, steps)
		require.EqualError(t, err, want)
		require.Nil(t, l)
	}
	refused("engine: request a has not read its prompt", 2, 10, a)
	_, err := r.e.Step()
	require.NoError(t, err)
	refused("engine: a loop of 0 sequences and k 2; it needs a sequence and k in 1..4", 2, 10)
	refused("engine: a loop of 1 sequences and k 0; it needs a sequence and k in 1..4", 0, 10, a)
	refused("engine: a loop of 1 sequences and k 5; it needs a sequence and k in 1..4", 5, 10, a)
	refused("engine: a loop of 0 steps; it must be 1..320 (max_tokens)", 2, 0, a)
	refused("engine: a loop of 321 steps; it must be 1..320 (max_tokens)", 2, 321, a)
	refused("engine: a loop needs sequences with a drafter", 2, 10, none)
	refused("engine: drafter ngram lives on the host; a loop needs one that can be recorded", 2, 10, host)
	refused("engine: the sequences of a loop share one drafter", 2, 10, a, host)
	refused("engine: request hot samples; a loop is greedy", 2, 10, a, hotSeq)
	refused("engine: request short has ended (length)", 2, 10, ended)
	refused("engine: request a is in a loop already", 2, 10, a, a)
	_, err = r.e.NewLoop([]*engine.Sequence{a}, 2, 300)
	require.ErrorContains(t, err, "engine: request a: ")
	require.ErrorContains(t, err, "too long for the context")

	// What was refused changed nothing, and the sequences go on.
	_, err = r.e.NewLoop([]*engine.Sequence{b}, 2, 10)
	require.NoError(t, err)
	refused("engine: request b is in a loop already", 2, 10, b)
	r.e.Cancel(b)
	r.close()
	same(t, plain(t, m, req("a", ""))["a"], r.out["a"])
}
