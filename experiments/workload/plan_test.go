package workload

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shared finds a file of the published data, or skips the test.
func shared(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("EXACTA_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s: EXACTA_DATA names the directory", path)
	}
	return path
}

func env(seed uint64) Env {
	return Env{Seed: seed, Vocab: 5000, Plain: func(id int32) bool { return id >= 100 }}
}

// What a seed gives is the same each time, whatever else is asked for, and another
// seed gives something else.
func TestSeeds(t *testing.T) {
	make := func(seed uint64, s Source, a Arrival) *Plan {
		p, err := Make(s, a, env(seed))
		require.NoError(t, err)
		return p
	}
	random := func() Source { return &Random{Lengths{Input: 20, Output: 5, Spread: 0.5, Sessions: 30}} }
	a := make(1, random(), &Gamma{PerSecond: 2, Burstiness: 0.5})
	require.Equal(t, a, make(1, random(), &Gamma{PerSecond: 2, Burstiness: 0.5}))
	require.Equal(t, a.Hash(), make(1, random(), &Gamma{PerSecond: 2, Burstiness: 0.5}).Hash())
	other := make(2, random(), &Gamma{PerSecond: 2, Burstiness: 0.5})
	require.NotEqual(t, a.Hash(), other.Hash())
	require.NotEqual(t, a.Sessions[0].Requests[0].Tokens, other.Sessions[0].Requests[0].Tokens)
	closed := make(1, random(), &Closed{Count: 4})
	require.NotEqual(t, a.Hash(), closed.Hash())
	for i := range a.Sessions {
		require.Equal(t, a.Sessions[i].Requests, closed.Sessions[i].Requests, "arrivals don't move requests")
	}
	shorter := make(1, &Random{Lengths{Input: 20, Output: 5, Spread: 0.5, Sessions: 10}}, &Closed{Count: 4})
	require.Equal(t, closed.Sessions[:10], shorter.Sessions, "fewer requests are the first of more")
	for i := range a.Sessions {
		for _, id := range a.Sessions[i].Requests[0].Tokens {
			require.GreaterOrEqual(t, id, int32(100))
		}
	}
}

func TestExactLengths(t *testing.T) {
	p, err := Make(&Random{Lengths{Input: 1024, Output: 128, Sessions: 3}}, &Closed{Count: 2}, env(1))
	require.NoError(t, err)
	require.Equal(t, 3, p.Requests())
	require.Equal(t, 1152, p.Longest())
	for _, s := range p.Sessions {
		require.Len(t, s.Requests[0].Tokens, 1024)
		require.Equal(t, 128, s.Requests[0].MaxTokens)
		require.True(t, s.Requests[0].Exact)
	}
	p, err = Make(&SharedPrefix{Lengths: Lengths{Input: 8, Output: 2, Sessions: 6}, Prefix: 32, Groups: 3}, &Closed{Count: 2}, env(1))
	require.NoError(t, err)
	for i, s := range p.Sessions {
		require.Len(t, s.Requests[0].Tokens, 40)
		for j, o := range p.Sessions[:i] {
			require.Equal(t, i%3 == j%3, slices.Equal(s.Requests[0].Tokens[:32], o.Requests[0].Tokens[:32]))
			require.NotEqual(t, s.Requests[0].Tokens[32:], o.Requests[0].Tokens[32:])
		}
	}
}

// times gives the starts of n sessions in seconds.
func times(t *testing.T, a Arrival, n int) []float64 {
	t.Helper()
	require.NoError(t, a.Validate())
	s := make([]Session, n)
	require.NoError(t, a.Schedule(s, rand.New(rand.NewPCG(7, forArrivals))))
	out := make([]float64, n)
	for i := range s {
		out[i] = s[i].At.Seconds()
	}
	require.True(t, slices.IsSorted(out))
	return out
}

func TestArrivals(t *testing.T) {
	require.InDeltaSlice(t, []float64{0, 0.25, 0.5}, times(t, &Rate{PerSecond: 4, constant: true}, 3), 1e-9)
	require.Equal(t, []float64{0, 0, 0, 2, 2, 2, 4}, times(t, &Burst{Size: 3, Every: 2}, 7))
	require.Equal(t, []float64{0, 0, 0}, times(t, &Burst{}, 3))
	const n = 40_000
	for _, b := range []float64{0.25, 1, 4} {
		at := times(t, &Gamma{PerSecond: 5, Burstiness: b}, n)
		require.InDelta(t, n/5.0, at[n-1], 1e-6, "the distances are scaled to add up")
		var sum, square float64
		for i := range at {
			gap := at[i]
			if i > 0 {
				gap -= at[i-1]
			}
			sum, square = sum+gap, square+gap*gap
		}
		mean := sum / n
		cv := math.Sqrt(square/n-mean*mean) / mean
		require.InEpsilon(t, 1/math.Sqrt(b), cv, 0.03, "burstiness %v", b)
	}
	for _, shape := range []string{linear, exponential} {
		at := times(t, &Ramp{From: 10, To: 100, Shape: shape}, n)
		require.InEpsilon(t, 10, 1000/(at[999]-at[0]), 0.15)
		require.InEpsilon(t, 100, 1000/(at[n-1]-at[n-1001]), 0.15)
	}
	s := []Session{{ID: "a", At: 5 * time.Second}, {ID: "b", At: 9 * time.Second}, {ID: "c", At: 6 * time.Second}}
	require.NoError(t, (&Trace{Speed: 2}).Schedule(s, nil))
	require.Equal(t, []time.Duration{0, 2 * time.Second, 500 * time.Millisecond}, []time.Duration{s[0].At, s[1].At, s[2].At})
}

func TestBadSettings(t *testing.T) {
	for want, v := range map[string]interface{ Validate() error }{
		"input is 0":               &Random{Lengths{Output: 1, Sessions: 1}},
		"output is 0":              &Random{Lengths{Input: 1, Sessions: 1}},
		"spread is 1":              &Random{Lengths{Input: 1, Output: 1, Spread: 1, Sessions: 1}},
		"sessions is 0":            &Random{Lengths{Input: 1, Output: 1}},
		"prefix and groups":        &SharedPrefix{},
		"lanes is 0":               &Closed{},
		"rate is NaN":              &Rate{PerSecond: math.NaN()},
		"rate is 0":                &Rate{},
		"burstiness is 0":          &Gamma{PerSecond: 1},
		"groups (size) come":       &Burst{Size: 3},
		"speed is 0":               &Trace{},
		"shape is \"\"":            &Ramp{From: 1, To: 1},
		"to is 0":                  &Ramp{From: 1, Shape: linear},
		"file is empty":            &Mooncake{Shrink: 1},
		"shrink is 3":              &Mooncake{File: "x", Shrink: 3},
		"path is empty":            &Weka{},
		"start is [0.5 0.2]":       &Weka{Path: "x", Shrink: 1, Start: []float64{0.5, 0.2}},
		"pauses is NaN":            &Weka{Path: "x", Shrink: 1, Pauses: math.NaN()},
		"format \"odd\"":           &Prompts{Format: "odd", Output: 1},
		"max_input would cut off":  &Prompts{Format: "math", Output: 1, Chat: true, MaxInput: 3},
		"output is 0; it is 1 to ": &Prompts{Format: "math"},
	} {
		require.ErrorContains(t, v.Validate(), want)
	}
	_, err := NewSource("odd")
	require.ErrorContains(t, err, `unknown source "odd"; known: mooncake, prompts, random, shared-prefix, weka`)
	_, err = NewArrival("odd")
	require.ErrorContains(t, err, `unknown arrival process "odd"; known: burst, closed, constant, gamma, poisson, ramp, trace`)
	_, err = Make(&Random{Lengths{Input: 1, Output: 1, Sessions: 1}}, &Closed{Count: 1}, Env{})
	require.ErrorIs(t, err, errNoTokens)
}

func TestPlanCheck(t *testing.T) {
	ok := Request{ID: "a", Text: "x", MaxTokens: 1}
	for want, p := range map[string]Plan{
		"the workload has no requests": {},
		"session s has no requests":    {Sessions: []Session{{ID: "s"}}},
		"request a is there twice":     {Sessions: []Session{{ID: "s", Requests: []Request{ok, ok}}}},
		"an empty prompt":              {Sessions: []Session{{ID: "s", Requests: []Request{{ID: "a", MaxTokens: 1}}}}},
		"asks for 0 tokens":            {Sessions: []Session{{ID: "s", Requests: []Request{{ID: "a", Text: "x"}}}}},
		"does not come before it":      {Sessions: []Session{{ID: "s", Requests: []Request{{ID: "a", Text: "x", MaxTokens: 1, After: []int{0}}}}}},
		"has a pause of -1ns":          {Sessions: []Session{{ID: "s", Requests: []Request{{ID: "a", Text: "x", MaxTokens: 1, Pause: -1}}}}},
	} {
		require.ErrorContains(t, p.check(), want)
	}
}
