package experiments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/experiments/load"
)

// target is a server that a load experiment talks to.
type target struct {
	load.TargetInfo
	client  *outside.Client
	dialect outside.Dialect
	body    map[string]any
	stop    func() error // what the run started; may be nil
}

// close ends the target.
func (t *target) close() error {
	if t.client != nil {
		t.client.Close()
	}
	if t.stop == nil {
		return nil
	}
	return t.stop()
}

// openTarget makes or finds a server, with the values of Tune that are chosen.
// tokens is the longest request.
func (r *loadRun) openTarget(ctx context.Context, c *LoadTarget, tuned map[string]string, tokens int) (t *target, err error) {
	t = &target{TargetInfo: load.TargetInfo{Name: c.Name, Claims: map[string]string{}, Sources: map[string]string{}}}
	t.body = map[string]any{}
	for _, fields := range []map[string]any{r.cfg.Body, c.Body} {
		for k, v := range fields {
			t.body[k] = v
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("target %s: %w", c.Name, err), t.close())
			t = nil
		}
	}()
	dir := filepath.Join(r.dir, load.TargetsDir, c.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return t, err
	}
	switch {
	case c.Engine != nil:
		err = t.serve(c, r.cfg.Model, dir, tokens)
	case c.Fake != nil:
		err = t.pretend(c.Fake)
	case len(c.Command) > 0:
		err = t.start(ctx, c, r.cfg.Model, tuned, dir)
	default:
		t.Kind, t.Address = "running", c.URL
	}
	if err != nil {
		return t, err
	}
	if t.client, err = outside.NewClient(t.Address); err != nil {
		return t, err
	}
	t.client.Key, t.client.Total = os.Getenv("EXACTA_ENDPOINT_KEY"), 24*time.Hour
	t.client.Timeout = time.Hour // a request may wait for its turn for long
	s, err := t.client.Find(ctx)
	if err != nil {
		return t, err
	}
	t.dialect, t.Dialect, t.Model = s.Dialect, string(s.Dialect), s.Model
	t.Untuned = t.Kind != "engine" && len(c.Tune) == 0
	if t.Kind == "engine" {
		return t, nil
	}
	t.claims(ctx)
	for name, v := range c.Declares {
		if t.Claims[name] == "" {
			t.Claims[name], t.Sources[name] = v, "config"
		}
	}
	return t, nil
}

// listen serves a handler on a port of this machine until stop.
func (t *target) listen(h http.Handler, stop func() error) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, stop())
	}
	web := &http.Server{Handler: h}
	go func() { _ = web.Serve(l) }() // until it is closed
	t.Address = "http://" + l.Addr().String()
	t.stop = func() error { return errors.Join(web.Close(), stop()) }
	return nil
}

// serve starts the engine in this process, with records.
func (t *target) serve(c *LoadTarget, model, dir string, tokens int) error {
	cfg, err := c.serve(model)
	if err != nil {
		return err
	}
	cfg.Records, cfg.RecordPrompts = dir, true
	if cfg.Context == 0 {
		cfg.Context = tokens
	}
	s, err := Serve(cfg, ServeOptions{Version: "load", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	t.Kind = "engine"
	if t.Records, err = filepath.Rel(filepath.Dir(filepath.Dir(dir)), s.Dir); err != nil {
		return errors.Join(err, s.Close())
	}
	t.describe(&cfg, s.session)
	return t.listen(s, s.Close)
}

// describe says what an engine in this process is bound by.
func (t *target) describe(cfg *ServeConfig, s *session) {
	first := s.cfg.strategy0()
	t.Claims = map[string]string{
		"weights": weightsName(cfg.Model), "dtype": "bf16", "draft": first, "max_sequences": strconv.Itoa(cfg.Sequences), "context": strconv.Itoa(s.cfg.Context),
	}
	for name := range t.Claims {
		t.Sources[name] = "server"
	}
}

// weightsName is the part of a model's name or path that says which weights they are.
func weightsName(model string) string {
	return filepath.Base(strings.TrimSuffix(model, "/"))
}

// strategy0 says how requests are drafted that choose nothing.
func (c *Config) strategy0() string {
	if len(c.Strategies) == 0 || c.Strategies[0].Drafter == "none" {
		return "none"
	}
	return fmt.Sprintf("%s k=%d", c.Strategies[0].Drafter, c.Strategies[0].K[0])
}

// pretend starts a stand-in.
func (t *target) pretend(f *LoadFake) error {
	t.Kind, t.Fake = "engine", true
	pace := func(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
	fake := &load.Fake{
		Dialect: outside.Dialect(f.Dialect), First: pace(f.FirstMs), Step: pace(f.StepMs), PerStep: f.PerStep, Sequences: f.Sequences,
	}
	t.Claims["max_sequences"], t.Sources["max_sequences"] = strconv.Itoa(f.Sequences), "server"
	return t.listen(fake.Handler(), func() error { return nil })
}
