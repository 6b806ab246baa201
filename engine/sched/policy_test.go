package sched

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// arrival is a request that arrives before the step of its number.
type arrival struct {
	step int
	Request
}

// admissions runs requests of one output token through one slot, and returns
// their ids in order of admission.
func admissions(t *testing.T, cfg Config, arrivals ...arrival) (order []int64) {
	t.Helper()
	cfg.Slots, cfg.Pages, cfg.SlotPages, cfg.MaxBatchTokens, cfg.Chunk = 1, 64, 32, 4096, 4096
	c := newCore(t, cfg)
	for step := 0; len(arrivals) > 0 || c.Len() > 0; step++ {
		for len(arrivals) > 0 && arrivals[0].step <= step {
			r := arrivals[0].Request
			r.MaxLen = len(r.Prompt) + 1
			require.NoError(t, c.Submit(r))
			arrivals = arrivals[1:]
		}
		var results []Result
		for _, it := range c.Plan().Items {
			order = append(order, it.ID)
			results = append(results, Result{ID: it.ID, Kept: it.Rows, Tokens: []int32{1}})
		}
		require.NoError(t, c.Commit(results))
	}
	return order
}

func ask(step int, id int64, prompt int) arrival {
	return arrival{step, Request{ID: id, Prompt: make([]int32, prompt)}}
}

func TestPolicies(t *testing.T) {
	require.Equal(t, []string{"fcfs", "shortest-prefill", "session"}, Policies())
	burst := []arrival{ask(0, 1, 60), ask(0, 2, 30), ask(0, 3, 20), ask(0, 4, 30)}
	require.Equal(t, []int64{1, 2, 3, 4}, admissions(t, Config{}, burst...))
	require.Equal(t, []int64{3, 2, 4, 1}, admissions(t, Config{Policy: "shortest-prefill"}, burst...))
}

// TestShortestPrefillAges: a long prompt is overtaken by shorter ones until it
// has waited a step for each page that it is longer, and then never again.
func TestShortestPrefillAges(t *testing.T) {
	arrivals := []arrival{ask(0, 0, 10), ask(0, 1, 10+5*ageing)}
	for step := range 20 {
		arrivals = append(arrivals, ask(step, int64(100+step), 10))
	}
	order := admissions(t, Config{Policy: "shortest-prefill"}, arrivals...)
	require.Equal(t, []int64{0, 100, 101, 102, 103, 104, 1, 105}, order[:8])
}

// TestShortestPrefillLooksUp: what the prefix cache has is not computed, and
// not counted.
func TestShortestPrefillLooksUp(t *testing.T) {
	long := make([]int32, 8*kernels.PageTokens+9)
	fresh := make([]int32, 20)
	for i := range fresh {
		fresh[i] = 7
	}
	seen, hit := arrival{0, Request{ID: 1, Prompt: long}}, arrival{1, Request{ID: 3, Prompt: long}}
	other := arrival{1, Request{ID: 2, Prompt: fresh}}
	cfg := Config{Policy: "shortest-prefill", PrefixCache: true}
	require.Equal(t, []int64{1, 3, 2}, admissions(t, cfg, seen, other, hit))
	cfg.PrefixCache = false
	require.Equal(t, []int64{1, 2, 3}, admissions(t, cfg, seen, other, hit))
}

// TestSessionPolicy: the next turn of a session goes before newer sessions.
func TestSessionPolicy(t *testing.T) {
	of := func(session string, a arrival) arrival { a.Session = session; return a }
	turns := []arrival{
		of("a", ask(0, 1, 70)), of("b", ask(0, 2, 70)), ask(0, 3, 70), of("a", ask(1, 4, 70)), of("b", ask(1, 5, 70)),
	}
	cfg := Config{Policy: "session", PrefixCache: true}
	require.Equal(t, []int64{1, 4, 2, 5, 3}, admissions(t, cfg, turns...))
	cfg.Policy = "fcfs"
	require.Equal(t, []int64{1, 2, 3, 4, 5}, admissions(t, cfg, turns...))
}

func TestPriorities(t *testing.T) {
	of := func(priority int, a arrival) arrival { a.Priority = priority; return a }
	require.Equal(t, []int64{3, 5, 1, 4, 2}, admissions(t, Config{},
		ask(0, 1, 10), of(-1, ask(0, 2, 10)), of(2, ask(0, 3, 10)), ask(0, 4, 10), of(1, ask(1, 5, 10))))
}
