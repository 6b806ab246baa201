package experiments

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"

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

// serveLog keeps records and requests of a server. Where the disk takes no more,
// it says so once, counts what is lost, and serving goes on.
type serveLog struct {
	dir        string
	prompts    bool // of requests are kept
	simulated  bool
	provenance map[string]string
	logger     *slog.Logger
	lost       prometheus.Counter
	writer     *acceptance.Writer

	mu                sync.Mutex
	requests, outputs *os.File
	broken            bool // something was lost
	lossy             bool // a lossy rule decided
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
}

// Record implements engine.Recorder. It never fails.
func (l *serveLog) Record(r *engine.Record) error {
	if err := l.writer.Record(r); err != nil {
		l.lose(err)
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
	l.write(l.outputs, output{Request: e.ID, IDs: e.Output, Finish: e.Finish})
}

// write adds a line to a file, in one piece: a process that is killed leaves whole
// lines.
func (l *serveLog) write(f *os.File, line any) {
	text, err := json.Marshal(line)
	if err == nil {
		l.mu.Lock()
		_, err = f.Write(append(text, '\n'))
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
	l.broken = true
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
	for _, f := range []*os.File{l.requests, l.outputs} {
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
