package mutants

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/internal/mutants/runs"
)

// Outcomes of a mutant.
const (
	Unbuilt = "does not compile"
	Equal   = "no change"
	Caught  = "caught"
	Missed  = "missed"
)

// Result is what became of a mutant.
type Result struct {
	Mutant  Mutant
	Outcome string
	// By says what caught it: audits, "crash", "hang" or "error".
	By string
	// Evidence is what was said first.
	Evidence string
}

// Options of Run.
type Options struct {
	// Root is the module's root folder.
	Root string
	// Mutants are to be tried.
	Mutants []Mutant
	// Workers try mutants side by side. Default 2.
	Workers int
	// Progress is told of each result; may be nil.
	Progress func(done, of int, r Result)
}

// suite is what all workers share: the honest runs.
type suite struct {
	root, dir, requests string
	honest              []*trial.Result
	todo                []runs.Todo
}

// prepare makes the requests and the honest runs, by the same program that
// mutants are compiled into.
func prepare(ctx context.Context, root, dir string, j *judge) (*suite, error) {
	s := &suite{root: root, dir: dir, requests: filepath.Join(dir, "requests")}
	var err error
	if s.todo, err = j.todo(ctx); err != nil {
		return nil, err
	}
	f, err := os.Create(s.requests)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(gob.NewEncoder(f).Encode(s.todo), f.Close()); err != nil {
		return nil, err
	}
	bin := filepath.Join(dir, "honest")
	if text, err := s.build(ctx, "", bin); err != nil {
		return nil, fmt.Errorf("mutants: the honest program: %w: %s", err, text)
	}
	honest, why, text := s.play(ctx, bin)
	if why != "" {
		return nil, fmt.Errorf("mutants: the honest program: %s: %s", why, text)
	}
	s.honest = honest
	return s, nil
}

// build compiles the runner, with a file replaced as overlay says.
func (s *suite) build(ctx context.Context, overlay, bin string) (string, error) {
	args := []string{"build", "-tags", "noembed", "-ldflags", "-s -w", "-o", bin}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./internal/mutants/runner")...)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// limit is how long a program may run; the honest one needs a few seconds.
const limit = 30 * time.Second

// play runs a program and returns its results, or why there are none.
func (s *suite) play(ctx context.Context, bin string) (got []*trial.Result, why, text string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out := bin + ".out"
	defer os.Remove(out)
	// A mutant may want all memory that there is.
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 8000000; exec "$0" "$@"`, bin, filepath.Join(s.root, "engine", "embedded"), s.requests, out)
	var said strings.Builder
	cmd.Stderr = &said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, "hang", fmt.Sprintf("no end after %v", limit)
	case err != nil && strings.Contains(said.String(), "goroutine "):
		line, _, _ := strings.Cut(said.String(), "\n")
		return nil, "crash", line
	case err != nil:
		return nil, "error", strings.TrimSpace(said.String())
	}
	f, err := os.Open(out)
	if err != nil {
		return nil, "error", err.Error()
	}
	defer f.Close()
	if err := gob.NewDecoder(f).Decode(&got); err != nil {
		return nil, "error", err.Error()
	}
	return got, "", ""
}

// try compiles, runs and judges a mutant.
func (s *suite) try(ctx context.Context, n int, m Mutant, j *judge) (Result, error) {
	r := Result{Mutant: m}
	dir := filepath.Join(s.dir, fmt.Sprint(n))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	source, overlay, bin := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "runner")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(s.root, m.File): source}})
	if err != nil {
		return r, err
	}
	if err := errors.Join(os.WriteFile(source, m.Source, 0o644), os.WriteFile(overlay, text, 0o644)); err != nil {
		return r, err
	}
	if said, err := s.build(ctx, overlay, bin); err != nil {
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		r.Outcome, r.Evidence = Unbuilt, said
		return r, nil
	}
	got, why, said := s.play(ctx, bin)
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case why != "":
		r.Outcome, r.By, r.Evidence = Caught, why, said
		return r, nil
	case same(s.honest, got):
		r.Outcome = Equal
		return r, nil
	}
	r.By, r.Evidence, err = j.judge(ctx, got)
	r.Outcome = Caught
	if r.By == "" {
		r.Outcome, r.Evidence = Missed, differs(s.honest, got)
	}
	return r, err
}

// timeless is a copy of a record without its times.
func timeless(r *engine.Record) engine.Record {
	c := *r
	c.DraftNs, c.VerifyNs, c.TotalNs = 0, 0, 0
	return c
}
