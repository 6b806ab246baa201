package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/experiments"
)

// slurmCluster starts munged, slurmctld and slurmd of this one machine, or skips the
// test where they are not installed or may not be started.
func slurmCluster(t *testing.T) {
	t.Helper()
	for _, name := range []string{"munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no Slurm is run: %v (packages slurm-wlm and munge)", err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("no Slurm is run: its daemons start as root only")
	}
	dir := t.TempDir()
	host, err := os.Hostname()
	require.NoError(t, err)
	port := func() int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "munge.key"), bytes.Repeat([]byte("exacta"), 32), 0o400))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slurm.conf"), []byte(strings.NewReplacer("DIR", dir, "HOST", host, "PORT1", fmt.Sprint(port()), "PORT2", fmt.Sprint(port())).Replace(
		`ClusterName=exacta
SlurmctldHost=HOST(127.0.0.1)
AuthInfo=socket=DIR/munge.socket
SlurmUser=root
SlurmdUser=root
SlurmctldPort=PORT1
SlurmdPort=PORT2
StateSaveLocation=DIR
SlurmdSpoolDir=DIR/spool
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobRequeue=1
SchedulerParameters=sched_interval=1
NodeName=HOST NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=ALL Default=YES
`)), 0o600))
	t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
	for _, args := range [][]string{
		{"munged", "--foreground", "--force", "--socket=" + dir + "/munge.socket", "--key-file=" + dir + "/munge.key", "--pid-file=" + dir + "/munged.pid", "--seed-file=" + dir + "/seed", "--log-file=" + dir + "/munged.log"},
		{"slurmctld", "-D", "-c"}, {"slurmd", "-D", "-c", "-N", host},
	} {
		log, err := os.Create(filepath.Join(dir, args[0]+".out"))
		require.NoError(t, err)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Signal(os.Interrupt)
			ended := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			ended.Stop()
			if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
				t.Logf("%s: %s", args[0], text)
			}
			_ = log.Close()
		})
	}
	require.Eventually(t, func() bool {
		out, err := exec.Command("sinfo", "--noheader", "--format=%T").Output()
		return err == nil && strings.TrimSpace(string(out)) == "idle"
	}, 30*time.Second, 200*time.Millisecond, "the node of the one-machine cluster is not idle")
}

// merged is the deterministic part of a sweep's points.
func merged(t *testing.T, dir string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "results.json"))
	require.NoError(t, err)
	var res experiments.SweepResult
	require.NoError(t, json.Unmarshal(text, &res))
	for _, p := range res.Points {
		out = append(out, fmt.Sprint(p.Point, p.Hash, p.Deterministic))
	}
	return out
}

// On a Slurm of one machine: an array job runs the points, one of which is requeued
// in the middle of it, and what is merged is what a run without Slurm gives.
func TestSlurm(t *testing.T) {
	slurmCluster(t)
	config := write(t, strings.NewReplacer("max_new: 8", "max_new: 400\nignore_eos: true", "[ngram, mtp, suffix]", "[mtp]").Replace(sweep))
	plain, dir := filepath.Join(t.TempDir(), "plain"), filepath.Join(t.TempDir(), "run of 'slurm'")
	requeued := make(chan error, 1)
	go func() {
		requeued <- func() error {
			for range 600 {
				time.Sleep(50 * time.Millisecond)
				out, err := exec.Command("squeue", "--noheader", "--states=running", "--format=%i").Output()
				if tasks := strings.Fields(string(out)); err == nil && len(tasks) > 0 {
					if out, err := exec.Command("scontrol", "requeue", tasks[0]).CombinedOutput(); err != nil {
						return fmt.Errorf("%w: %s", err, out)
					}
					// It would wait for two minutes.
					out, err := exec.Command("scontrol", "update", "JobId="+tasks[0], "StartTime=now").CombinedOutput()
					if err != nil {
						return fmt.Errorf("%w: %s", err, out)
					}
					return nil
				}
			}
			return context.DeadlineExceeded
		}()
	}()
	out := fine(t, "run", config, "--dir", dir, "--slurm", "--sbatch", "--comment=a test")
	require.NoError(t, <-requeued)
	require.Contains(t, out, "2 points of 2 are finished")
	logs, err := filepath.Glob(filepath.Join(dir, "slurm-*.log"))
	require.NoError(t, err)
	require.Len(t, logs, 2)
	jobs, err := exec.Command("scontrol", "show", "job").Output()
	require.NoError(t, err)
	require.Contains(t, string(jobs), "Restarts=1", "no task was requeued while it ran")
	fine(t, "run", config, "--dir", plain)
	require.Equal(t, merged(t, plain), merged(t, dir))
}

// fakeSlurm puts a sbatch and a squeue first on the path that run an array's tasks at
// once, one after the other.
func fakeSlurm(t *testing.T, lines string) {
	t.Helper()
	bin := t.TempDir()
	for name, text := range map[string]string{
		"sbatch": lines + `
for a in "$@"; do
  case "$a" in
    --array=*) tasks=$(echo "${a#--array=}" | tr ',' ' ');;
    --output=*) log=${a#--output=};;
  esac
  script=$a
done
for n in $tasks; do
  out=$(echo "$log" | sed "s/%A_%a/7_$n/")
  SLURM_ARRAY_TASK_ID=$n sh "$script" >> "$out" 2>&1
done
echo "7;cluster"
`,
		"squeue": "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o755))
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// With a sbatch that is not Slurm's: points that are left are submitted, and merged.
func TestFakeSlurm(t *testing.T) {
	fakeSlurm(t, "")
	config := write(t, sweep)
	dir := filepath.Join(t.TempDir(), "run of 'slurm'")
	require.Contains(t, fine(t, "run", config, "--dir", dir, "--slurm"), "6 points of 6 are finished")
	want := found(t, dir)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "points")))
	s, err := experiments.OpenSweep(dir)
	require.NoError(t, err)
	require.Len(t, s.Left(), 6)
	require.NoError(t, s.Run(t.Context(), experiments.SweepOptions{Only: []int{3}, Version: version()}))
	require.Equal(t, []int{0, 1, 2, 4, 5}, s.Left())
	require.Contains(t, fine(t, "run", "--resume", dir, "--slurm"), "6 points of 6 are finished")
	require.Equal(t, want, found(t, dir))
	script, err := os.ReadFile(filepath.Join(dir, "slurm.sh"))
	require.NoError(t, err)
	require.Contains(t, string(script), `--point "$SLURM_ARRAY_TASK_ID"`)
}

// Where a job fails, the point and the end of its log are named; where Slurm refuses
// or is not there, that is said.
func TestSlurmFails(t *testing.T) {
	run := func() string {
		code, _, errs := exacta(t, "run", write(t, sweep), "--dir", filepath.Join(t.TempDir(), "run"), "--slurm")
		require.Equal(t, exitBad, code)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
		return errs
	}
	fakeSlurm(t, `for a in "$@"; do case "$a" in --output=*) log=${a#--output=};; esac; done
echo "slurmstepd: error: out of memory" > "$(echo "$log" | sed "s/%A_%a/7_0/")"; echo 7; exit 0`)
	require.Contains(t, run(), "job 7 of Slurm ended without points [0 1 2 3 4 5]; of the first: slurmstepd: error: out of memory")
	fakeSlurm(t, "echo 'sbatch: error: invalid partition' >&2; exit 1")
	require.Contains(t, run(), "sbatch: exit status 1: sbatch: error: invalid partition")
	fakeSlurm(t, "echo Submitted; exit 0")
	require.Contains(t, run(), "it should be the number of a job")
	t.Setenv("PATH", t.TempDir())
	require.Contains(t, run(), "Slurm is not installed here")
}
