package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// NamedServer is a server under the name that a table gives it.
type NamedServer struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// BenchServersOptions say what exacta bench servers measures.
type BenchServersOptions struct {
	// Servers are compared with the first of them.
	Servers []NamedServer
	// Concurrency are the numbers of clients, each asking one request at a time.
	Concurrency []int
	// Rounds of everything, each asking what no other asks; and the requests of a
	// client in each.
	Rounds, Each int
	// PromptTokens and NewTokens of a request.
	PromptTokens, NewTokens int
}

// BenchServers is what was measured.
type BenchServers struct {
	Servers      []NamedServer  `json:"servers"`
	Rounds       int            `json:"rounds"`
	PromptTokens int            `json:"prompt_tokens"`
	NewTokens    int            `json:"new_tokens"`
	Levels       []ServersLevel `json:"levels"`
}

// ServersLevel is a number of clients; by server, in the order of Servers.
type ServersLevel struct {
	Concurrency int `json:"concurrency"`
	// TokS are answer tokens per second, and TTFT milliseconds to the first of an
	// answer: medians over rounds, TTFT of the rounds' medians.
	TokS []float64 `json:"tok_s"`
	TTFT []float64 `json:"ttft_ms"`
	// Ratio is the first server's tokens per second over this one's: the median of
	// the rounds' ratios, and the least and the largest of them.
	Ratio [][3]float64 `json:"ratio"`
}

// RunBenchServers asks several servers of the same weights the same requests, at
// each number of clients, in rounds in which all take their turns. A request that
// fails is an error.
func RunBenchServers(ctx context.Context, o BenchServersOptions, progress func(string)) (*BenchServers, error) {
	if len(o.Servers) < 1 || len(o.Concurrency) < 1 || slices.Min(o.Concurrency) < 1 || o.Rounds < 1 || o.Each < 1 || o.PromptTokens < 1 || o.NewTokens < 1 {
		return nil, errors.New("bench servers: servers, concurrency, rounds, requests, prompt and new tokens must be at least 1")
	}
	res := &BenchServers{Servers: o.Servers, Rounds: o.Rounds, PromptTokens: o.PromptTokens, NewTokens: o.NewTokens}
	first := 0 // request that nobody was asked before
	for _, c := range o.Concurrency {
		speed, ttft := make([][]float64, len(o.Servers)), make([][]float64, len(o.Servers))
		for round := -1; round < o.Rounds; round++ { // the first warms up
			for turn := range o.Servers {
				i := (turn + max(0, round)) % len(o.Servers)
				s := o.Servers[i]
				progress(fmt.Sprintf("%d clients, round %d of %d: %s", c, round+1, o.Rounds, s.Name))
				b := BenchServeOptions{URL: s.URL, Requests: o.Each * c, Connections: c, PromptTokens: o.PromptTokens, NewTokens: o.NewTokens, first: first}
				if round < 0 {
					b.Requests, b.NewTokens = c, min(8, o.NewTokens)
				}
				r, err := RunBenchServe(ctx, b, func(string) {})
				switch {
				case err != nil:
					return nil, err
				case r.Errors > 0:
					return nil, fmt.Errorf("bench servers: %s: %d of %d requests failed: %s", s.Name, r.Errors, r.Requests, r.FirstError)
				case round >= 0:
					speed[i], ttft[i] = append(speed[i], r.TokS), append(ttft[i], r.TTFT[0])
				}
			}
			first += o.Each * c
		}
		res.Levels = append(res.Levels, serversLevel(c, speed, ttft))
	}
	return res, nil
}

// serversLevel works the figures of a level out, from those of each server by round.
func serversLevel(c int, speed, ttft [][]float64) ServersLevel {
	l := ServersLevel{Concurrency: c}
	for i := range speed {
		ratios := make([]float64, len(speed[i]))
		for round := range ratios {
			ratios[round] = speed[0][round] / speed[i][round]
		}
		l.Ratio = append(l.Ratio, [3]float64{median(ratios), slices.Min(ratios), slices.Max(ratios)})
		l.TokS, l.TTFT = append(l.TokS, median(speed[i])), append(l.TTFT, median(ttft[i]))
	}
	return l
}
