package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/internal/faults/honest"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/internal/mutants/runs"
)

// judge audits what mutants left, on the honest engine.
type judge struct {
	m   *trial.Machine
	lab audit.Lab
}

// withJudge opens a machine and its laboratory for body.
func withJudge(model string, memo *honest.Memo, body func(*judge) error) (err error) {
	m, err := trial.Open(model)
	if err != nil {
		return err
	}
	lab, closeLab := honest.Lab(m, memo)
	defer func() { err = errors.Join(err, closeLab(), m.Close()) }()
	return body(&judge{m, lab})
}

// todo makes the requests of the runs.
func (j *judge) todo(ctx context.Context) ([]runs.Todo, error) {
	var out []runs.Todo
	for i, s := range runs.Setups() {
		reqs := j.m.Requests(s, uint64(i))
		if s.Stops {
			if err := honest.Stop(ctx, j.lab, reqs, uint64(i)); err != nil {
				return nil, err
			}
		}
		out = append(out, runs.Todo{Setup: s, Requests: reqs})
	}
	return out, nil
}

// judge returns the audits that fail on any of the runs, with what the first of
// them says; "" if none does.
func (j *judge) judge(ctx context.Context, got []*trial.Result) (by, evidence string, err error) {
	var failed []string
	for _, a := range []struct {
		name string
		run  func(context.Context, *audit.Case, func(string)) (*audit.Report, error)
	}{{"tokens", audit.Tokens}, {"counts", audit.Counts}, {"work", audit.Work}} {
		for i, res := range got {
			rep, err := a.run(ctx, res.Case("mutant", j.lab), func(string) {})
			if err != nil {
				return "", "", fmt.Errorf("%s audit of run %d: %w", a.name, i, err)
			}
			if rep.Verdict == audit.Fail {
				failed = append(failed, a.name)
				if evidence == "" {
					evidence = rep.Why
				}
				break
			}
		}
	}
	if len(failed) == 0 {
		for _, res := range got {
			if res.Err != "" { // the run said itself that it failed
				return "error", res.Err, nil
			}
		}
	}
	return strings.Join(failed, "+"), evidence, nil
}

// Run tries mutants, and returns what became of each, in their order.
func Run(ctx context.Context, model string, o Options) ([]Result, error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	memo := honest.NewMemo()
	var s *suite
	err = withJudge(model, memo, func(j *judge) (err error) {
		s, err = prepare(ctx, o.Root, dir, j)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]Result, len(o.Mutants))
	next := make(chan int, len(o.Mutants))
	for i := range o.Mutants {
		next <- i
	}
	close(next)
	workers := o.Workers
	if workers == 0 {
		workers = 2
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	done := 0
	for range workers {
		wg.Go(func() {
			err := withJudge(model, memo, func(j *judge) error {
				for i := range next {
					r, err := s.try(ctx, i, o.Mutants[i], j)
					if err != nil {
						return fmt.Errorf("%v: %w", o.Mutants[i], err)
					}
					mu.Lock()
					out[i] = r
					done++
					if o.Progress != nil {
						o.Progress(done, len(out), r)
					}
					mu.Unlock()
				}
				return nil
			})
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
		})
	}
	wg.Wait()
	return out, failed
}
