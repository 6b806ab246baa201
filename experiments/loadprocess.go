package experiments

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// endWait is how long a server that was asked to end may take.
const endWait = 20 * time.Second

// start runs a server's command, keeps what it prints, and waits until it is ready.
func (t *target) start(ctx context.Context, c *LoadTarget, model string, tuned map[string]string, dir string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	put := []string{"{port}", port, "{model}", model}
	for name, v := range tuned {
		put = append(put, "{"+name+"}", v)
	}
	fill := strings.NewReplacer(put...).Replace
	args := make([]string, len(c.Command))
	for i, a := range c.Command {
		args[i] = fill(a)
	}
	t.Kind, t.Address, t.Log = "started", fill(c.URL), filepath.Join(filepath.Base(filepath.Dir(dir)), c.Name, "server.log")
	file, err := os.OpenFile(filepath.Join(dir, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	fmt.Fprintf(file, "$ %s\n", strings.Join(args, " "))
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.Env = os.Environ()
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+fill(v))
	}
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("command: %w", err), file.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.stop = func() error { return errors.Join(endGroup(cmd, ended), file.Close()) }
	return t.ready(ctx, c, ended)
}

// ready waits for a server's health.
func (t *target) ready(ctx context.Context, c *LoadTarget, ended chan error) error {
	health, limit := c.Health, time.Duration(c.ReadySeconds)*time.Second
	if health == "" {
		health = "/health"
	}
	if limit == 0 {
		limit = 15 * time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it was not ready within %v; %s has what it printed", limit, t.Log))
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(t.Address, "/")+health, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-ended:
			ended <- err // for stop
			return fmt.Errorf("the server ended before it was ready (%s); %s has what it printed", exitText(err), t.Log)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// endGroup asks a server and all that it started to end, and makes it after a while.
func endGroup(cmd *exec.Cmd, ended chan error) error {
	signalGroup(cmd, false)
	select {
	case <-ended:
	case <-time.After(endWait):
		signalGroup(cmd, true)
		<-ended
	}
	signalGroup(cmd, true) // children that outlived it
	return nil
}

// freePort finds a port that nobody listens on now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

// combinations lists every choice of one value for each name.
func combinations(values map[string][]string) []map[string]string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	out := []map[string]string{{}}
	for _, name := range names {
		var more []map[string]string
		for _, have := range out {
			for _, v := range values[name] {
				one := map[string]string{name: v}
				for k, w := range have {
					one[k] = w
				}
				more = append(more, one)
			}
		}
		out = more
	}
	return out
}
