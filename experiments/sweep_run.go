package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// SweepOptions say how the points of a sweep are run.
type SweepOptions struct {
	// Args are further arguments of exacta run for every point.
	Args []string
	// Devices run points side by side, one each: cuda:N has GPU N to itself,
	// cpu:LIST these cores (cpu:0-3,8). Empty runs one point at a time,
	// anywhere.
	Devices []string
	// Only are the points to run; nil is all. Finished ones are never run again.
	Only []int
	// Version of the program, for the status of points.
	Version string
	// Progress is told what is being done; may be nil. It may be called from
	// several goroutines.
	Progress func(text string)
}

// device is where a point runs.
type device struct {
	name string
	cuda string // the GPU, "" for any
	cpus []int  // cores, nil for any
}

// parseDevices reads what --devices takes.
func parseDevices(names []string) ([]device, error) {
	if len(names) == 0 {
		return []device{{}}, nil
	}
	var out []device
	for _, name := range names {
		kind, which, _ := strings.Cut(name, ":")
		d, err := device{name: name}, error(nil)
		switch kind {
		case "cuda":
			_, err = strconv.ParseUint(which, 10, 16)
			d.cuda = which
		case "cpu":
			d.cpus, err = parseCores(which)
		default:
			err = errors.New("another kind")
		}
		if err != nil {
			return nil, fmt.Errorf("device %q: it is cuda:N, or cpu:LIST with cores such as cpu:0-3,8", name)
		}
		out = append(out, d)
	}
	return out, nil
}

// parseCores reads a list such as 0-3,8.
func parseCores(list string) (out []int, err error) {
	for _, part := range strings.Split(list, ",") {
		first, last, spans := strings.Cut(part, "-")
		if !spans {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 10)
		b, errB := strconv.ParseUint(last, 10, 10)
		if errA != nil || errB != nil || a > b {
			return nil, fmt.Errorf("%q is no list of cores", list)
		}
		for n := a; n <= b; n++ {
			out = append(out, int(n))
		}
	}
	return out, nil
}

// Run runs the points that are not finished, each in a process of its own that ends
// with this one. A point that fails does not keep the others from being run; the
// error names all that failed, and is ErrInterrupted where ctx ended.
func (s *SweepDir) Run(ctx context.Context, o SweepOptions) error {
	devices, err := parseDevices(o.Devices)
	if err != nil {
		return err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	only := o.Only
	if only == nil {
		only = s.Left()
	}
	next := make(chan *SweepPoint, len(only))
	for _, i := range only {
		if i < 0 || i >= len(s.Points) {
			return fmt.Errorf("%s has no point %d; they are 0..%d", s.Dir, i, len(s.Points)-1)
		}
		next <- &s.Points[i]
	}
	close(next)
	var mu sync.Mutex
	var failed error
	var workers sync.WaitGroup
	for _, d := range devices {
		workers.Go(func() {
			for p := range next {
				if ctx.Err() != nil {
					return
				}
				o.Progress(fmt.Sprintf("point %d of %d: %s %s", p.Point, len(s.Points), p, d.name))
				if err := s.runPoint(ctx, p, d, o); err != nil {
					mu.Lock()
					failed = errors.Join(failed, fmt.Errorf("point %d (%s): %w", p.Point, p, err))
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return failed
}

// runPoint runs one point from its beginning, unless it is finished.
func (s *SweepDir) runPoint(ctx context.Context, p *SweepPoint, d device, o SweepOptions) error {
	unlock, err := s.lock(ctx, p)
	if err != nil {
		return err
	}
	defer unlock()
	if s.Finished(p) != nil {
		return nil
	}
	dir := s.path(p)
	if !IsLoad(p.text) { // which goes on with the cells that it has
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("run directory: %w", err)
		}
	}
	st := PointStatus{Version: o.Version, Device: d.name, Started: time.Now().UTC()}
	if st.Exit, err = s.start(ctx, dir, d, o.Args); err != nil {
		return err
	}
	st.Seconds = time.Since(st.Started).Seconds()
	return s.Finish(p.Point, st)
}

// start runs exacta run on a point's file, and waits for it. What it prints goes to
// the files beside. The exit code is 0 or 1; others are errors.
func (s *SweepDir) start(ctx context.Context, dir string, d device, args []string) (int, error) {
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"run", dir + ".yaml", "--dir", dir}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if d.cuda != "" {
		cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+d.cuda)
	}
	out, err := os.Create(dir + ".txt")
	if err != nil {
		return 0, fmt.Errorf("run directory: %w", err)
	}
	defer out.Close()
	log, err := os.Create(dir + ".log")
	if err != nil {
		return 0, fmt.Errorf("run directory: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = out, log
	// The child ends with the thread that started it, so the thread stays.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := startOn(cmd, d.cpus); err != nil {
		return 0, err
	}
	err = cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); {
	case ctx.Err() != nil:
		return 0, ErrInterrupted
	case code == 0 || code == 1:
		return code, nil
	default:
		return 0, fmt.Errorf("exacta run ended with %w: %s", err, lastLine(dir+".log"))
	}
}

// lastLine is the last line of a log.
func lastLine(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := strings.TrimPrefix(lines[len(lines)-1], "exacta: ")
	if last == "" {
		return filepath.Base(name) + " is empty"
	}
	return last
}
