package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/internal/faults/honest"
	"exacta.dev/exacta/internal/faults/trial"
)

// Options of Check.
type Options struct {
	// Model is the model's name in the registry.
	Model string
	// Seeds is the number of runs of each fault, Healthy that of healthy
	// runs.
	Seeds, Healthy int
	// Only keeps the faults of these classes; empty keeps all.
	Only []string
	// Workers make runs side by side, each on a model of its own. Default 2.
	Workers int
	// Progress is told how many of all runs are done; may be nil.
	Progress func(done, of int)
}

// Row is a fault's line of the matrix.
type Row struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Report string `json:"report"`
	// CaughtBy are the audits that failed in every run, AlsoBy those that
	// failed in some.
	CaughtBy []string `json:"caught_by"`
	AlsoBy   []string `json:"also_by,omitempty"`
	// Evidence is what the first audit of CaughtBy said of the first run.
	Evidence string `json:"evidence"`
	// Caught counts the runs in which any audit failed, of Runs.
	Caught int `json:"caught"`
	Runs   int `json:"runs"`
	// Outside says what an endpoint shows of it.
	Outside string   `json:"outside,omitempty"`
	Expect  []string `json:"expect"`
	// Setup is the run that provokes it.
	Setup string `json:"setup"`
}

// Alarm is a healthy run that an audit flagged.
type Alarm struct {
	Run      int    `json:"run"`
	Setup    string `json:"setup"`
	Audit    string `json:"audit"`
	Evidence string `json:"evidence"`
}

// Matrix is what Check found.
type Matrix struct {
	Faults      []Row   `json:"faults"`
	HealthyRuns int     `json:"healthy_runs"`
	FalseAlarms int     `json:"false_alarms"`
	Alarms      []Alarm `json:"alarms,omitempty"`
	// NotCheckable counts healthy runs by the audit that could not judge
	// them.
	NotCheckable map[string]int `json:"not_checkable,omitempty"`
	Seconds      float64        `json:"seconds"`
}

// Holds says whether every run of every fault was caught and no healthy run
// flagged.
func (m *Matrix) Holds() bool {
	for _, r := range m.Faults {
		if r.Caught < r.Runs {
			return false
		}
	}
	return m.FalseAlarms == 0
}

// job is one run: of a fault, or healthy.
type job struct {
	fault int // index, -1 for a healthy run
	seed  int
}

// outcome is what the audits said of a job.
type outcome struct {
	job     job
	reports map[string]*audit.Report
	ended   string // why the run ended early
}

// Check makes the runs and returns the matrix.
func Check(ctx context.Context, o Options) (*Matrix, error) {
	start := time.Now()
	var list []Fault
	for _, f := range All() {
		if len(o.Only) == 0 || slices.Contains(o.Only, f.ID) {
			list = append(list, f)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("faults: none of class %v; classes are %v", o.Only, Classes())
	}
	var jobs []job
	for seed := range o.Seeds {
		for i := range list {
			jobs = append(jobs, job{i, seed})
		}
	}
	for i := range o.Healthy {
		jobs = append(jobs, job{-1, i})
	}
	outcomes, err := labour(ctx, o, list, jobs)
	if err != nil {
		return nil, err
	}
	m := assemble(list, outcomes, o.Healthy)
	m.Seconds = time.Since(start).Seconds()
	return m, nil
}

// Classes lists the classes that there are.
func Classes() []string {
	var out []string
	for _, f := range All() {
		if !slices.Contains(out, f.ID) {
			out = append(out, f.ID)
		}
	}
	return out
}

// labour does the jobs, on as many workers as are asked for.
func labour(ctx context.Context, o Options, list []Fault, jobs []job) ([]outcome, error) {
	workers := max(1, o.Workers)
	if o.Workers == 0 {
		workers = 2
	}
	memo := honest.NewMemo()
	next := make(chan int)
	out := make([]outcome, len(jobs))
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	done := 0
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range workers {
		wg.Go(func() {
			err := worker(ctx, o.Model, memo, func(w *bench) error {
				for i := range next {
					got, err := w.do(ctx, list, jobs[i])
					if err != nil {
						return err
					}
					out[i] = got
					mu.Lock()
					done++
					if o.Progress != nil {
						o.Progress(done, len(jobs))
					}
					mu.Unlock()
				}
				return nil
			})
			if err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
				cancel()
			}
		})
	}
	for i := range jobs {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	wg.Wait()
	if failed == nil && ctx.Err() != nil {
		failed = ctx.Err()
	}
	return out, failed
}

// bench is a worker's machine with the honest laboratory beside it.
type bench struct {
	m   *trial.Machine
	lab audit.Lab
}

func worker(ctx context.Context, model string, memo *honest.Memo, body func(*bench) error) (err error) {
	m, err := trial.Open(model)
	if err != nil {
		return err
	}
	lab, closeLab := honest.Lab(m, memo)
	defer func() { err = errors.Join(err, closeLab(), m.Close()) }()
	return body(&bench{m, lab})
}

// do makes one run and has it audited.
func (w *bench) do(ctx context.Context, list []Fault, j job) (outcome, error) {
	if j.fault < 0 {
		return w.run(ctx, j, fmt.Sprintf("healthy %d", j.seed), Healthy(j.seed), nil)
	}
	f := list[j.fault]
	return w.run(ctx, j, fmt.Sprintf("%s %s, seed %d", f.ID, f.Name, j.seed), f.Setup, f.arm)
}

func (w *bench) run(ctx context.Context, j job, name string, s trial.Setup, arm func(*arming) trial.Wiring) (outcome, error) {
	seed := uint64(j.seed)
	reqs := w.m.Requests(s, seed)
	var plain map[string][]int32
	var err error
	if s.Drafter == trial.Known {
		if plain, err = honest.Reference(ctx, w.lab, reqs); err != nil {
			return outcome{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if s.Stops {
		if err := honest.Stop(ctx, w.lab, reqs, seed); err != nil {
			return outcome{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	wiring := trial.Wiring{}
	if arm != nil {
		wiring = arm(&arming{seed: seed, setup: s, plain: plain, machine: w.m})
	}
	res, err := w.m.Run(s, reqs, plain, wiring)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", name, err)
	}
	reports, err := examine(ctx, res, w.lab)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", name, err)
	}
	return outcome{job: j, reports: reports, ended: res.Err}, nil
}
