package engine_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// after ends an output with its n-th token.
type after struct {
	n    int
	told []int32
}

func (a *after) Push(ids []int32) (int, bool) {
	n := min(len(ids), a.n-len(a.told))
	a.told = append(a.told, ids[:n]...)
	return n, len(a.told) == a.n
}

// Until cuts at any token of any step, is told of each token once, preemptions and
// all, and loses to the end of text and the length where they come first.
func TestUntil(t *testing.T) {
	m := tinyCPU(t)
	req := engine.Request{ID: "a", Prompt: prompt(60, 2), MaxNew: 20, Drafter: "knowing", K: 6}
	want := plain(t, m, req)["a"]
	know := outputs(map[string]*outcome{"a": want})
	for n := 1; n <= 20; n++ {
		r := newRig(t, m, engine.Config{MaxSequences: 1}, knowing(know, 0))
		u := &after{n: n}
		req.Until = u
		s := r.submit(req)
		r.close()
		require.Equal(t, engine.FinishText, s.Finish())
		require.Equal(t, want.tokens[:n], s.Output())
		require.Equal(t, want.tokens[:n], u.told)
		obeys(t, r.out["a"])
	}
	u := &after{n: 21}
	req.Until = u
	r := newRig(t, m, engine.Config{MaxSequences: 1}, knowing(know, 0))
	s := r.submit(req)
	r.close()
	require.Equal(t, engine.FinishLength, s.Finish())
	require.Equal(t, want.tokens, u.told)

	stop := want.tokens[5]
	at := slices.Index(want.tokens, stop) + 1
	req.Stop, req.Until = []int32{stop}, &after{n: at + 1}
	r = newRig(t, m, engine.Config{MaxSequences: 1}, knowing(know, 0))
	s = r.submit(req)
	r.close()
	require.Equal(t, engine.FinishStop, s.Finish())
	require.Len(t, s.Output(), at)
}

// Observe sees, for every token of the output, the row that it is the argmax of,
// whether it came by a draft or not, and the same row whatever the drafts.
func TestObserve(t *testing.T) {
	m := tinyCPU(t)
	req := engine.Request{ID: "a", Prompt: prompt(60, 4), MaxNew: 30}
	type row struct {
		id     int32
		logits []float32
	}
	see := func(drafter string, k int, p sample.Params, drafters ...engine.Drafter) (rows []row, out []int32) {
		q := req
		q.Drafter, q.K, q.Params = drafter, k, p
		q.Rule = rule(t, "coupled")
		q.Observe = func(id int32, logits []float32) { rows = append(rows, row{id, slices.Clone(logits)}) }
		r := newRig(t, m, engine.Config{MaxSequences: 2, Chunk: 16}, drafters...)
		s := r.submit(q)
		r.submit(engine.Request{ID: "b", Prompt: prompt(30, 5), MaxNew: 40})
		r.close()
		return rows, s.Output()
	}
	greedy, out := see("", 0, sample.Params{})
	require.Len(t, greedy, 30)
	for i, x := range greedy {
		require.Equal(t, out[i], x.id)
		require.Len(t, x.logits, vocab)
		require.Equal(t, slices.Index(x.logits, slices.Max(x.logits)), int(x.id))
	}
	for _, d := range []engine.Drafter{strategy(t, m, "mtp"), strategy(t, m, "ngram"), strategy(t, m, "medusa")} {
		rows, _ := see(d.Name(), 4, sample.Params{}, d)
		require.Equal(t, greedy, rows, d.Name())
	}
	p := sample.Params{Temperature: 1, RepetitionPenalty: 1.3, Seed: 9}
	sampled, _ := see("", 0, p)
	d := strategy(t, m, "mtp")
	rows, _ := see("mtp", 4, p, d)
	require.Equal(t, sampled, rows)
}

// ObservePrompt sees, for every place of a prompt but the first, the row that a request
// with the prompt up to there is decided by, whatever the chunks and neighbours, and
// again after preemptions.
func TestObservePrompt(t *testing.T) {
	m := tinyCPU(t)
	ids := prompt(150, 4)
	for _, cfg := range []engine.Config{{MaxSequences: 2, Chunk: 16}, {MaxSequences: 3, Chunk: 100, BatchTokens: 120}, {MaxSequences: 3, MaxTokens: 256, Pages: 5, ExpectedOutput: -1}} {
		cfg.PromptLogits = true
		r := newRig(t, m, cfg)
		seen := map[int][]float32{}
		see := func(at int, logits []float32) {
			if old := seen[at]; old != nil {
				require.Equal(t, old, logits)
			}
			seen[at] = slices.Clone(logits)
		}
		var own []float32
		r.submit(engine.Request{ID: "b", Prompt: prompt(60, 5), MaxNew: 90})
		r.submit(engine.Request{ID: "a", Prompt: ids, MaxNew: 3, ObservePrompt: see, Observe: func(_ int32, l []float32) { own = slices.Clone(l) }})
		r.submit(engine.Request{ID: "c", Prompt: prompt(60, 6), MaxNew: 90})
		r.close()
		require.Len(t, seen, 149)
		require.Len(t, own, vocab)
		for _, at := range []int{1, 2, 15, 16, 17, 64, 101, 149} {
			var alone []float32
			r := newRig(t, m, engine.Config{MaxSequences: 1})
			r.submit(engine.Request{ID: "x", Prompt: ids[:at], MaxNew: 1, Observe: func(_ int32, l []float32) { alone = slices.Clone(l) }})
			r.close()
			require.Equal(t, alone, seen[at], "position %d", at)
		}
	}
}

// Load counts what waits and what runs; all is free again in the end.
func TestLoad(t *testing.T) {
	m := tinyCPU(t)
	r := newRig(t, m, engine.Config{MaxSequences: 2})
	for _, id := range []string{"a", "b", "c"} {
		r.submit(engine.Request{ID: id, Prompt: prompt(70, 4), MaxNew: 5})
	}
	l := r.e.Load()
	require.Equal(t, 3, l.Waiting)
	require.Equal(t, l.Pages, l.FreePages)
	_, err := r.e.Step()
	require.NoError(t, err)
	l = r.e.Load()
	require.Equal(t, 1, l.Waiting)
	require.Equal(t, 2, l.Running)
	require.Equal(t, l.Pages-4, l.FreePages)
	r.close()
	l = r.e.Load()
	require.Zero(t, l.Waiting+l.Running)
	require.Equal(t, l.Pages, l.FreePages)
}

// Prompts with one salt share pages, with another they don't.
func TestSalt(t *testing.T) {
	m := tinyCPU(t)
	r := newRig(t, m, engine.Config{MaxSequences: 1, PrefixCache: true})
	cached := func(id, salt string) int32 {
		r.submit(engine.Request{ID: id, Prompt: prompt(200, 4), MaxNew: 5, Salt: salt})
		require.NoError(t, r.e.Run(nil))
		return r.out[id].records[0].Cached
	}
	require.Zero(t, cached("a", "x"))
	require.EqualValues(t, 192, cached("b", "x"))
	require.Zero(t, cached("c", "y"))
	require.Zero(t, cached("d", ""))
	r.close()
}
