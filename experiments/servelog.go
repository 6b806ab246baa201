package experiments

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/engine/server"
)

// Files of a server's directory, beside the records: its configuration, what was
// asked, and what came of it.
const (
	serveFile    = "serve.yaml"
	requestsFile = "requests.jsonl"
	outputsFile  = "outputs.jsonl"
	summaryFile  = "summary.json"
)

// retryAfter is how long a log waits before it tries to write again.
const retryAfter = 5 * time.Second

// serveLog keeps records and requests of a server. Where the disk takes no more,
// it says so once, counts what is lost, and serving goes on; from time to time it
// tries again.
type serveLog struct {
	dir        string
	prompts    bool // of requests are kept
	simulated  bool
	provenance map[string]string
	logger     *slog.Logger
	lost       prometheus.Counter
	writer     *acceptance.Writer

	mu                sync.Mutex
	requests, outputs *lineFile
	broken            bool      // something was lost
	failing           time.Time // when it last was; zero while all is well
	lossy             bool      // a lossy rule decided
	asked             int
}

var (
	_ server.Log      = (*serveLog)(nil)
	_ engine.Recorder = (*serveLog)(nil)
)

// askedLine is a line of requests.jsonl.
type askedLine struct {
	Request  string        `json:"request"`
	Prompt   []int32       `json:"prompt_ids,omitempty"`
	Length   int           `json:"prompt_tokens"`
	MaxNew   int           `json:"max_new"`
	Params   sample.Params `json:"params"`
	Strategy string        `json:"strategy"`
	K        int           `json:"k"`
	Rule     string        `json:"rule"`
	Stop     []int32       `json:"stop"`
	Stops    []string      `json:"stop_strings,omitempty"`
	// SkipSpecial says that stop strings are looked for in text without
	// special tokens.
	SkipSpecial bool `json:"skip_special,omitempty"`
	// PromptLogits says that the logits of all rows of the prompt were computed.
	PromptLogits bool `json:"prompt_logits,omitempty"`
}

// servedTimes are how long a request waited from its arrival, in milliseconds: until
// a step took it up, until its first token, and until its end; 0 for what never was.
type servedTimes struct {
	Queue float64 `json:"queue_ms,omitempty"`
	TTFT  float64 `json:"ttft_ms,omitempty"`
	Total float64 `json:"total_ms,omitempty"`
}

// Record implements engine.Recorder. It never fails.
func (l *serveLog) Record(r *engine.Record) error {
	l.mu.Lock()
	again := !l.failing.IsZero() && time.Since(l.failing) > retryAfter
	l.mu.Unlock()
	if again {
		l.lost.Add(float64(l.writer.Resume()))
	}
	if err := l.writer.Record(r); err != nil {
		l.lose(err)
	} else if again {
		l.mu.Lock()
		l.failing = time.Time{}
		l.mu.Unlock()
		l.logger.Info("records are written again; what was lost is counted in exacta_records_lost_total")
	}
	if r.Lossy {
		l.mu.Lock()
		l.lossy = true
		l.mu.Unlock()
	}
	return nil
}

// Asked implements server.Log.
func (l *serveLog) Asked(a *server.Asked) {
	q := a.Request
	line := askedLine{
		Request: q.ID, Length: len(q.Prompt), MaxNew: q.MaxNew, Params: q.Params, Strategy: a.Strategy, K: q.K, Rule: a.Rule,
		Stop: q.Stop, Stops: a.Stops, SkipSpecial: a.SkipSpecial,
		PromptLogits: q.ObservePrompt != nil,
	}
	if l.prompts {
		line.Prompt = q.Prompt
	}
	l.write(l.requests, line)
	l.mu.Lock()
	l.asked++
	l.mu.Unlock()
}

// Ended implements server.Log.
func (l *serveLog) Ended(e *server.Ended) {
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	l.write(l.outputs, output{Request: e.ID, IDs: e.Output, Finish: e.Finish, servedTimes: servedTimes{ms(e.Queue), ms(e.First), ms(e.Total)}})
}

// lineFile is a file of lines, each written in one piece: a process that is killed
// leaves whole lines, and so does a disk that is full.
type lineFile struct {
	*os.File
	size int64 // of the whole lines
}

// createLines makes a file of lines.
func createLines(name string) (*lineFile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &lineFile{File: f}, nil
}

// add writes a line; what is left of one that did not fit is taken away.
func (f *lineFile) add(line []byte) error {
	n, err := f.WriteAt(append(line, '\n'), f.size)
	if err != nil {
		return errors.Join(err, f.Truncate(f.size))
	}
	f.size += int64(n)
	return nil
}

// write adds a line to a file.
func (l *serveLog) write(f *lineFile, line any) {
	text, err := json.Marshal(line)
	if err == nil {
		l.mu.Lock()
		err = f.add(text)
		l.mu.Unlock()
	}
	if err != nil {
		l.lose(err)
	}
}

// lose counts something that was not written.
func (l *serveLog) lose(err error) {
	l.lost.Inc()
	l.mu.Lock()
	first := !l.broken
	l.broken, l.failing = true, time.Now()
	l.mu.Unlock()
	if first {
		l.logger.Error("records can't be written any more; serving goes on", "error", err)
	}
}

// close writes the end: a directory without its summary is of a process that was
// killed.
func (l *serveLog) close() error {
	var errs []error
	if l.writer != nil {
		if err := l.writer.Close(); err != nil {
			l.lose(err)
		}
	}
	for _, f := range []*lineFile{l.requests, l.outputs} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if l.writer == nil {
		return errors.Join(errs...)
	}
	sum := &Summary{
		Name: "serve", Dir: l.dir, Provenance: l.provenance, Prompts: l.asked, Interrupted: l.broken, Simulated: l.simulated, Lossy: l.lossy, Runs: []PointResult{},
	}
	if err := sum.write(l.dir); err != nil {
		l.lose(err)
	}
	return errors.Join(errs...)
}
