package experiments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"exacta.dev/exacta/internal/disk"
)

// SlurmOptions say how the points of a sweep become tasks of a Slurm job.
type SlurmOptions struct {
	// Sbatch are further arguments of sbatch, such as --partition=gpu.
	Sbatch []string
	// Args are further arguments of exacta run for every point.
	Args []string
	// Poll is how often the job is looked at; 0 is every two seconds.
	Poll time.Duration
	// Progress is told what is being done; may be nil.
	Progress func(text string)
}

// slurmFile is the script of the array's tasks, in the sweep's directory.
const slurmFile = "slurm.sh"

// slurmEnvironment are the variables that tasks get from the environment of the
// submitting process; others stay behind.
var slurmEnvironment = []string{"PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "EXACTA_CACHE", "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE"}

// RunSlurm runs the points that are not finished as an array job, a task each, and
// waits for it. The directory must be one that the nodes share, and the program one
// that they have. A task that is requeued, because its node went away or the job was
// preempted, begins its point again. If ctx ends the job goes on, and the error,
// ErrInterrupted, names it.
func (s *SweepDir) RunSlurm(ctx context.Context, o SlurmOptions) error {
	left := s.Left()
	if len(left) == 0 {
		return nil
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Poll == 0 {
		o.Poll = 2 * time.Second
	}
	job, err := s.submit(ctx, left, o)
	if err != nil {
		return err
	}
	for {
		o.Progress(fmt.Sprintf("Slurm job %s: %d points of %d are left", job, len(s.Left()), len(s.Points)))
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; Slurm job %s goes on, and exacta run --resume %s merges what it finds", ErrInterrupted, job, s.Dir)
		case <-time.After(o.Poll):
		}
		if running, err := queued(ctx, job); err != nil {
			return err
		} else if !running {
			break
		}
	}
	if left = s.Left(); len(left) > 0 {
		name := fmt.Sprintf("slurm-%s_%d.log", job, left[0])
		return fmt.Errorf("job %s of Slurm ended without points %v; of the first: %s", job, left, lastLine(filepath.Join(s.Dir, name)))
	}
	return nil
}

// submit hands the job to sbatch, and returns its id.
func (s *SweepDir) submit(ctx context.Context, points []int, o SlurmOptions) (string, error) {
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return "", err
	}
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	script := filepath.Join(dir, slurmFile)
	if err := disk.WriteWhole(script, slurmScript(program, dir, o.Args)); err != nil {
		return "", fmt.Errorf("run directory: %w", err)
	}
	tasks := make([]string, len(points))
	for i, p := range points {
		tasks[i] = strconv.Itoa(p)
	}
	args := append([]string{
		"--parsable", "--requeue", "--export=NONE", "--open-mode=append", "--job-name=exacta", "--array=" + strings.Join(tasks, ","),
		"--output=" + filepath.Join(dir, "slurm-%A_%a.log"),
	}, o.Sbatch...)
	out, err := slurm(ctx, "sbatch", append(args, script)...)
	if err != nil {
		return "", err
	}
	job, _, _ := strings.Cut(strings.TrimSpace(out), ";") // behind it, the cluster
	if _, err := strconv.ParseUint(job, 10, 64); err != nil {
		return "", fmt.Errorf("sbatch printed %q; it should be the number of a job", out)
	}
	return job, nil
}

// slurmScript is what a task runs.
func slurmScript(program, dir string, args []string) []byte {
	var b bytes.Buffer
	b.WriteString("#!/bin/sh\n# A task of the array runs the point of its number.\n")
	for _, name := range slurmEnvironment {
		if value, ok := os.LookupEnv(name); ok {
			fmt.Fprintf(&b, "export %s=%s\n", name, quoted(value))
		}
	}
	if here, err := os.Getwd(); err == nil {
		fmt.Fprintf(&b, "cd %s || exit 2\n", quoted(here))
	}
	fmt.Fprintf(&b, "exec %s run --resume %s --point \"$SLURM_ARRAY_TASK_ID\"", quoted(program), quoted(dir))
	for _, a := range args {
		b.WriteString(" " + quoted(a))
	}
	b.WriteString("\n")
	return b.Bytes()
}

// quoted is a word for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// queued reports whether tasks of a job wait or run.
func queued(ctx context.Context, job string) (bool, error) {
	out, err := slurm(ctx, "squeue", "--noheader", "--format=%T", "--jobs="+job)
	if err != nil && strings.Contains(err.Error(), "Invalid job id") {
		return false, nil // it ended a while ago
	}
	return strings.TrimSpace(out) != "", err
}

// slurm runs a command of Slurm.
func slurm(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w: Slurm is not installed here", err)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, oneLine(errs.String()))
	}
	return out.String(), nil
}
