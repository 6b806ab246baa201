package sched

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// pick returns one of its arguments.
func pick[T any](rng *rand.Rand, v ...T) T { return v[rng.IntN(len(v))] }

func randomConfig(rng *rand.Rand) Config {
	cfg := Config{
		Slots: 1 + rng.IntN(6), SlotPages: 1 + rng.IntN(8),
		MaxBatchTokens: pick(rng, 1, 2, 3, 8, 40, 64, 200, 1000), Chunk: pick(rng, 1, 7, 64, 65, 512),
		Lookahead: pick(rng, 0, 0, 1, 5), PrefixCache: rng.IntN(3) > 0, Recurrent: rng.IntN(2) > 0,
		Snapshots: rng.IntN(5), Policy: pick(rng, Policies()...), PrefillShare: rng.IntN(101),
		Expect: pick(rng, 0, -1, -1, 30), Sessions: rng.IntN(4),
	}
	cfg.Pages = 1 + rng.IntN(cfg.SlotPages*cfg.Slots)
	if rng.IntN(3) == 0 {
		cfg.Pages += 20
	}
	cfg.MaxSpans = rng.IntN(cfg.Slots + 1)
	return cfg
}

// saturate makes memory the bottleneck: many slots, and pages for little more
// than one sequence.
func saturate(rng *rand.Rand, cfg Config) Config {
	cfg.Slots, cfg.MaxSpans = 6, 0
	cfg.SlotPages = 5 + rng.IntN(4)
	cfg.Pages = cfg.SlotPages + rng.IntN(8)
	cfg.MaxBatchTokens = max(cfg.MaxBatchTokens, 8)
	return cfg
}

// documents are what prompts begin with.
func documents(rng *rand.Rand) [][]int32 {
	docs := make([][]int32, 3)
	for i := range docs {
		if i == 2 { // leaves the first one somewhere
			docs[i] = append(docs[i], docs[0][:rng.IntN(300)]...)
		}
		for len(docs[i]) < 400 {
			docs[i] = append(docs[i], int32(rng.IntN(vocab)))
		}
	}
	return docs
}

func randomRequest(rng *rand.Rand, id int64, docs [][]int32, limit int) Request {
	n := pick(rng, 1, 2, 63, 64, 65, 127, 128, 129, 1+rng.IntN(limit), 1+rng.IntN(limit))
	n = min(n, limit-1)
	prompt := append([]int32(nil), pick(rng, docs...)[:min(n, 400)]...)
	for i := 0; i < rng.IntN(40); i++ {
		prompt[len(prompt)-1-i%len(prompt)] = int32(rng.IntN(vocab))
	}
	return Request{
		ID: id, Prompt: prompt, MaxLen: min(limit, len(prompt)+1+rng.IntN(pick(rng, 100, 400))),
		K: rng.IntN(9), Space: pick(rng, "", "", "mtp"), Session: pick(rng, "", "", "a", "b", "c", "d"),
		Priority: pick(rng, 0, 0, 0, 1, -1), Fixed: rng.IntN(4) == 0,
	}
}

// program runs a random program of requests, arrivals, cancellations and
// failures, and checks every step and every output.
func program(seed uint64) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := randomConfig(rng)
	arrive := 4
	if rng.IntN(3) == 0 {
		cfg, arrive = saturate(rng, cfg), 1
	}
	w, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	accuracy, trouble := rng.IntN(4), rng.IntN(2)
	w.accept = func(_ int64, k int) int {
		if accuracy == 3 {
			return k
		}
		return rng.IntN(k + 1)
	}
	w.execute = func(_ int64, k int) int { return pick(rng, k, k, rng.IntN(k+1)) }
	w.fail = func(int64) bool { return trouble == 1 && rng.IntN(1500) == 0 }
	w.inFlight = func(p Plan) {
		if len(p.Items) > 0 && trouble == 1 && rng.IntN(400) == 0 {
			w.seen.cancelledInFlight += btoi(w.cancel(p.Items[rng.IntN(len(p.Items))].ID))
		}
	}
	docs, all := documents(rng), map[int64]Request{}
	total, steps := int64(1+rng.IntN(25)), 0
	for next := int64(0); next < total || w.core.Len() > 0; steps++ {
		for next < total && rng.IntN(arrive) == 0 {
			r := randomRequest(rng, next, docs, cfg.Context())
			if arrive == 1 {
				r.Prompt = r.Prompt[:min(len(r.Prompt), 1+rng.IntN(100))]
				r.MaxLen = cfg.Context()
			}
			if err := w.submit(r); err != nil {
				return w, err
			}
			all[next], next = r, next+1
		}
		if trouble == 1 && next > 0 && rng.IntN(400) == 0 {
			w.cancel(rng.Int64N(next))
		}
		if trouble != 0 {
			if err := w.redraft(rng); err != nil {
				return w, err
			}
		}
		if _, err := w.step(); err != nil {
			return w, fmt.Errorf("step %d: %w", steps, err)
		}
		if steps > 200_000 {
			return w, fmt.Errorf("no end: %d requests are left", w.core.Len())
		}
	}
	for id, got := range w.done {
		r := all[id]
		if want := oracle(r.Prompt, r.MaxLen); fmt.Sprint(got) != fmt.Sprint(want) {
			return w, fmt.Errorf("request %d: %v, want %v", id, got, want)
		}
	}
	if n := len(w.done) + w.seen.cancelled + w.seen.failed; n < int(total) {
		return w, fmt.Errorf("%d of %d requests ended", n, total)
	}
	if used := w.core.pages.Used(); used > 0 {
		return w, fmt.Errorf("%d pages leaked", used)
	}
	return w, nil
}

// TestRandomPrograms: every request finishes with the tokens that it has alone,
// no page leaks, the limits of a step hold, and a replay of the trace makes the
// same plans.
func TestRandomPrograms(t *testing.T) {
	programs := uint64(400)
	if os.Getenv("EXACTA_SOAK") == "1" {
		programs = 20_000
	}
	var seen coverage
	for seed := range programs {
		w, err := program(seed)
		require.NoErrorf(t, err, "seed %d, config %+v", seed, w.cfg)
		seen.add(w.seen)
		require.NoError(t, w.core.Err())
		plans, err := Replay(bytes.NewReader(w.trace.Bytes()))
		require.NoErrorf(t, err, "seed %d", seed)
		require.Equal(t, w.seen.steps, plans, "seed %d", seed)
	}
	t.Logf("%+v", seen)
	for _, field := range strings.Fields(strings.Trim(fmt.Sprintf("%+v", seen), "{}")) {
		require.NotRegexp(t, ":0$", field, "a case that the suite never met")
	}
	require.Equal(t, 64, kernels.PageTokens, "documents and lengths are chosen around it")
}
