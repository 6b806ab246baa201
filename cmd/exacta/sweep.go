package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/experiments"
)

// runFlags are the flags of exacta run.
type runFlags struct {
	dir, resume string
	pack        bool
	loop, trace string
	share       float64 // of --gpu-memory
	small       bool
	dryRun      bool
	slurm       bool
	devices     []string
	sbatch      []string
	point       int
}

const runSweepHelp = `
A file with a section sweep is run once for each point of the sweep (experiments/sweep.go
says how points are made), each in a process of its own; finished points are never run
again: --resume DIR goes on with a sweep that was interrupted or killed, and merges.
--dry-run lists the points with what they will take. --devices runs points side by side,
each with one device to itself: cuda:0,cuda:1 or cpu:0-3. --slurm submits them as an
array job and waits for it. --small sets what the file's section small says: the variant
that runs in a minute.

--json then prints {dir, points: [{point, hash, set: [{key, value}], dir, status: {hash,
summary_sha256, exit, version, device, started, seconds}, deterministic, summary}], left,
exact, simulated, lossy, versions}: summary is the point's summary.json, and deterministic
a hash of its outputs and acceptance, which another machine's must equal. With --dry-run it
is {points: [{point, hash, set, dir, finished, cost: {requests, prompt_tokens,
output_tokens, passes, weight_bytes, seconds}}], seconds, basis}.
`

func (f *runFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dir, "dir", "", "run directory (default runs/NAME-TIME)")
	addLoop(cmd, &f.loop)
	addTrace(cmd, &f.trace)
	addGPUMemory(cmd, &f.share)
	cmd.Flags().BoolVar(&f.pack, "pack-cache", false, packUsage)
	cmd.Flags().BoolVar(&f.small, "small", false, "the file's small variant")
	cmd.Flags().StringVar(&f.resume, "resume", "", "go on with the sweep in this directory")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "list the points and what they will take; run nothing")
	cmd.Flags().StringArrayVar(&f.devices, "devices", nil, "run points side by side, each on one of these: cuda:N or cpu:CORES; repeat it for more")
	cmd.Flags().BoolVar(&f.slurm, "slurm", false, "run the points as tasks of a Slurm array job")
	cmd.Flags().StringArrayVar(&f.sbatch, "sbatch", nil, "an argument for sbatch, such as --partition=gpu; repeat it for more")
	cmd.Flags().IntVar(&f.point, "point", -1, "with --resume: run this point only")
	cmd.MarkFlagsMutuallyExclusive("resume", "dir")
	cmd.MarkFlagsMutuallyExclusive("resume", "small")
	cmd.MarkFlagsMutuallyExclusive("slurm", "devices")
	cmd.MarkFlagsMutuallyExclusive("slurm", "point")
}

// sweeps reports whether the experiment is run as a sweep.
func (f *runFlags) sweeps(d *experiments.Document) bool {
	return d == nil || d.HasSweep() || f.dryRun || f.slurm || len(f.devices) > 0
}

// document reads the file, or the quickstart, as its flags ask for; nil where a
// sweep is resumed.
func (f *runFlags) document(args []string) (*experiments.Document, error) {
	if f.resume != "" {
		if len(args) > 0 {
			return nil, errors.New("--resume takes no file: the directory has the one that the sweep began with")
		}
		return nil, nil
	}
	if f.point >= 0 {
		return nil, errors.New("--point is for --resume")
	}
	name, text := "quickstart.yaml", experiments.QuickstartText()
	if len(args) == 1 {
		var err error
		name = args[0]
		if text, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
	}
	d, err := experiments.ParseDocument(name, text)
	if err == nil && f.small {
		err = d.Small()
	}
	return d, err
}

// runSweep runs, resumes or plans a sweep; d is nil where it is resumed.
func runSweep(cmd *cobra.Command, o *options, f *runFlags, d *experiments.Document) error {
	out := cmd.OutOrStdout()
	if f.dryRun && d != nil {
		points, err := d.Points(experiments.CheckConfig)
		if err != nil {
			return err
		}
		return planSweep(cmd.Context(), out, o, points, "")
	}
	var s *experiments.SweepDir
	var err error
	if d == nil {
		s, err = experiments.OpenSweep(f.resume)
	} else {
		s, err = experiments.CreateSweep(f.dir, d)
	}
	if err != nil {
		return err
	}
	if f.dryRun {
		return planSweep(cmd.Context(), out, o, s.Points, s.Dir)
	}
	if err := runPoints(cmd, f, s); err != nil || f.point >= 0 {
		return err
	}
	res, err := s.Result()
	if err != nil {
		return err
	}
	if o.json {
		err = printJSON(out, res)
	} else {
		err = res.Table(out)
	}
	if err == nil && !res.Exact {
		err = errFalse
	}
	return err
}

// runPoints runs what is not finished.
func runPoints(cmd *cobra.Command, f *runFlags, s *experiments.SweepDir) error {
	p := newProgress(cmd.ErrOrStderr())
	var mu sync.Mutex
	show := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		p.show(text)
	}
	defer p.clear()
	var args []string
	if f.pack {
		args = append(args, "--pack-cache")
	}
	if f.slurm {
		return s.RunSlurm(cmd.Context(), experiments.SlurmOptions{Sbatch: f.sbatch, Args: args, Progress: show})
	}
	o := experiments.SweepOptions{Args: args, Devices: f.devices, Version: version(), Progress: show}
	if f.point >= 0 {
		o.Only = []int{f.point}
	}
	return s.Run(cmd.Context(), o)
}

func planSweep(ctx context.Context, out io.Writer, o *options, points []experiments.SweepPoint, dir string) error {
	plan, err := experiments.PlanSweep(ctx, points, dir)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(out, plan)
	}
	return plan.Table(out)
}
