package experiments

import (
	"context"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/experiments/workload"
)

// Cost is what a point of a sweep will take, estimated without running anything.
type Cost struct {
	Requests     int64 `json:"requests"`
	PromptTokens int64 `json:"prompt_tokens"`
	OutputTokens int64 `json:"output_tokens"` // at most
	// Passes are those of the model over its weights if every token were
	// decoded plainly; speculation makes them fewer and wider.
	Passes      int64 `json:"passes"`
	WeightBytes int64 `json:"weight_bytes"`
	// Seconds is what reading the weights so often takes, prompts not counted,
	// or what finished points of the sweep took for as many passes; 0 where
	// neither is known (on a GPU).
	Seconds float64 `json:"seconds"`
}

// PlannedPoint is a line of a dry run.
type PlannedPoint struct {
	SweepPoint
	Finished bool `json:"finished"`
	Cost     Cost `json:"cost"`
}

// Plan is what a dry run tells.
type Plan struct {
	Points []PlannedPoint `json:"points"`
	// Seconds are those of all points that are not finished, one after the
	// other; Basis says what they are made of.
	Seconds float64 `json:"seconds"`
	Basis   string  `json:"basis"`
}

// PlanSweep estimates what the points of a file take; dir is the sweep's directory
// where it was begun, else "". Models are opened, not loaded.
func PlanSweep(ctx context.Context, points []SweepPoint, dir string) (*Plan, error) {
	out := &Plan{Points: []PlannedPoint{}}
	e := estimator{ctx: ctx, weights: map[string]int64{}}
	s := &SweepDir{Dir: dir, Points: points}
	passes, took := int64(0), 0.0
	for i := range points {
		q := PlannedPoint{SweepPoint: points[i]}
		var err error
		if q.Cost, err = e.cost(points[i].text); err != nil {
			return nil, fmt.Errorf("point %d: %w", i, err)
		}
		if dir != "" {
			if st := s.Finished(&points[i]); st != nil {
				q.Finished = true
				passes, took = passes+q.Cost.Passes, took+st.Seconds
			}
		}
		out.Points = append(out.Points, q)
	}
	known := passes > 0
	out.Basis = "reading the weights for every pass of plain decoding at this machine's rate; prompts, drafts and loading come on top"
	if passes > 0 {
		out.Basis = fmt.Sprintf("the %.1f s of the finished points, by passes of plain decoding", took)
	}
	for i := range out.Points {
		q := &out.Points[i]
		if passes > 0 {
			q.Cost.Seconds = took * float64(q.Cost.Passes) / float64(passes)
		}
		known = known || q.Cost.Seconds > 0
		if !q.Finished {
			out.Seconds += q.Cost.Seconds
		}
	}
	if !known {
		out.Basis = "nothing: the rate of this backend is not known before a point is finished"
	}
	return out, nil
}

// Table prints the plan.
func (p *Plan) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "point\tsets\trequests\tprompt tokens\toutput tokens\tpasses\tseconds\tstate")
	for _, q := range p.Points {
		state := ""
		if q.Finished {
			state = "finished"
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", q.Point, &q.SweepPoint, q.Cost.Requests, q.Cost.PromptTokens, q.Cost.OutputTokens, q.Cost.Passes, orDash(q.Cost.Seconds), state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%d points; about %.1f s are left, from %s\n", len(p.Points), p.Seconds, p.Basis)
	return err
}

func orDash(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2g", seconds)
}

// estimator keeps what points have in common.
type estimator struct {
	ctx     context.Context
	weights map[string]int64 // bytes, by model
}

// load estimates a point that is a load experiment: what is asked, and the time for
// which sessions are started.
func (e *estimator) load(text []byte) (c Cost, err error) {
	cfg, err := ParseLoadExperiment("config", text)
	if err != nil {
		return c, err
	}
	r := &loadRun{cfg: cfg}
	if cfg.Model != "" {
		if r.entry, err = registry.Look(cfg.Model); err != nil {
			return c, err
		}
		defer r.entry.Close()
	}
	targets := int64(len(cfg.Targets))
	for _, p := range cfg.points() {
		for n := range cfg.Repeats {
			source, arrival, err := cfg.load(p)
			if err != nil {
				return c, err
			}
			plan, err := workload.Make(source, arrival, r.env(n))
			if err != nil {
				return c, fmt.Errorf("point %s: %w", p.Name, err)
			}
			for i := range plan.Sessions {
				for j := range plan.Sessions[i].Requests {
					q := &plan.Sessions[i].Requests[j]
					c.Requests += targets
					c.PromptTokens += targets * int64(len(q.Tokens))
					c.OutputTokens += targets * int64(q.MaxTokens)
				}
			}
			c.Seconds += float64(targets) * cfg.Measure.Seconds
		}
	}
	c.Passes = c.OutputTokens
	return c, nil
}

// cost estimates a point.
func (e *estimator) cost(text []byte) (c Cost, err error) {
	if IsLoad(text) {
		return e.load(text)
	}
	cfg, err := ParseConfig("config", text)
	if err != nil {
		return c, err
	}
	entry, err := registry.Open(cfg.Model)
	if err != nil {
		return c, err
	}
	defer entry.Close()
	prompts, err := LoadPrompts(cfg.Prompts, entry)
	if err != nil {
		return c, err
	}
	length := int64(0)
	for _, p := range prompts {
		length += int64(len(p.IDs))
	}
	points := cfg.points()
	rules := map[string]bool{}
	add := func(times, inFlight int64) {
		n := times * int64(len(prompts))
		c.Requests += n
		c.PromptTokens += times * length
		c.OutputTokens += n * int64(cfg.MaxNew)
		c.Passes += times * ((int64(len(prompts))*int64(cfg.MaxNew) + inFlight - 1) / inFlight)
	}
	for _, p := range points {
		add(int64(cfg.Repeats), int64(min(p.Concurrency, len(prompts))))
		if !rules[p.Rule] {
			rules[p.Rule] = true
			add(1, 1) // the reference
		}
	}
	bytes, known := e.weights[cfg.Model]
	if !known {
		in, err := Inspect(e.ctx, InspectOptions{Model: cfg.Model, Context: 64})
		if err != nil {
			return c, err
		}
		if in.Memory != nil {
			bytes = in.Memory.Weights
		}
		e.weights[cfg.Model] = bytes
	}
	c.WeightBytes = bytes
	if cfg.Backend == "cpu" {
		c.Seconds = float64(c.Passes) * float64(bytes) / copyRate()
	}
	return c, nil
}

// copyRate is this machine's rate of reading and writing memory, in bytes per
// second, from copies of 64 MiB for a twentieth of a second.
var copyRate = sync.OnceValue(func() float64 {
	from, to := make([]byte, 64<<20), make([]byte, 64<<20)
	copy(to, from) // the pages are there
	start, moved := time.Now(), 0
	for time.Since(start) < 50*time.Millisecond {
		moved += 2 * copy(to, from)
	}
	return float64(moved) / time.Since(start).Seconds()
})
