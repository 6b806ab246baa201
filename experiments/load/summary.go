package load

import (
	"fmt"
	"time"
)

// Kind is what summary.json of a load experiment has under "kind".
const Kind = "load"

// Files of a run directory; see the package comment.
const (
	SummaryFile  = "summary.json"
	CellFile     = "cell.json"
	RequestsFile = "requests.jsonl"
	CellsDir     = "cells"
	WorkloadsDir = "workloads"
	TargetsDir   = "targets"
)

// Cell is one repeat of a point at a target: cell.json.
type Cell struct {
	Target string `json:"target"`
	Point  string `json:"point"`
	Repeat int    `json:"repeat"`
	// Plan is the hash of the workload: cells of one point and repeat have one.
	Plan    string    `json:"plan_sha256"`
	Started time.Time `json:"started"`
	// InWindow are the figures of Window, Whole those of all measured requests,
	// from the first sending to the last content.
	Window    Window    `json:"window"`
	InWindow  Figures   `json:"in_window"`
	Whole     Figures   `json:"whole"`
	Generator Generator `json:"generator"`
	Engine    *Engine   `json:"engine,omitempty"` // nil without records
	FirstErr  string    `json:"first_error,omitempty"`
}

// Name is the name of the cell's directory.
func (c *Cell) Name() string { return CellName(c.Target, c.Point, c.Repeat) }

// Interval is a mean over repeats with its confidence interval of 95 % by
// Student's t; with one repeat Low and High are the mean, and Repeats says so.
type Interval struct {
	Repeats int     `json:"repeats"`
	Mean    float64 `json:"mean"`
	SD      float64 `json:"sd"` // ddof 1
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
}

// Line is a target at a point, over all its repeats.
type Line struct {
	Target string `json:"target"`
	Point  string `json:"point"`
	// Pooled are the figures of all repeats' windows together: counts and
	// seconds are added up, distributions are of all their values.
	Pooled Figures `json:"pooled"`
	// Spread has the mean over repeats of each metric, by name (Metrics).
	Spread map[string]Interval `json:"spread"`
	Engine *Engine             `json:"engine,omitempty"`
	// Lagging and Unsteady count the repeats that were.
	Lagging  int `json:"lagging"`
	Unsteady int `json:"unsteady"`
}

// Versus is one metric of a target beside that of the baseline.
type Versus struct {
	Metric   string  `json:"metric"`
	Value    float64 `json:"value"`
	Baseline float64 `json:"baseline"`
	// Ratio is Value / Baseline, Low and High its 95 % interval: over the
	// repeats' ratios if there are three or more, else by a bootstrap over
	// sessions.
	// Bounded is false where neither can be had; Outcome is then "unbounded".
	Ratio   float64 `json:"ratio"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Bounded bool    `json:"bounded"`
	// Outcome is win, tie, loss or unbounded: a tie where 1 is in the interval.
	Outcome string `json:"outcome"`
}

// Comparison is a target beside the baseline at a point.
type Comparison struct {
	Target   string   `json:"target"`
	Baseline string   `json:"baseline"`
	Point    string   `json:"point"`
	Wins     int      `json:"wins"`
	Ties     int      `json:"ties"`
	Losses   int      `json:"losses"`
	Metrics  []Versus `json:"metrics"`
	// SpeedUp is the ratio of decoded tokens per second, which is RequestSpeed
	// (ratio of DecodeTokS) x Decoding (ratio of Decoding), exactly.
	SpeedUp      float64 `json:"speed_up"`
	RequestSpeed float64 `json:"request_speed"`
	Decoding     float64 `json:"decoding"`
	// Fair says that what could be checked is alike; Unfair what is not, and
	// Unknown what neither side tells.
	Fair    bool     `json:"fair"`
	Unfair  []string `json:"unfair,omitempty"`
	Unknown []string `json:"unknown,omitempty"`
}

// Tried is a setting of a target that was tried before the comparison.
type Tried struct {
	Settings map[string]string `json:"settings"`
	// OutTokS is what it reached on the tuning point, Error why it didn't.
	OutTokS float64 `json:"out_tok_s"`
	Error   string  `json:"error,omitempty"`
	// Resident is the mean number of requests decoding, KVBytes the memory for
	// keys and values that the server tells of; -1 where it doesn't.
	Resident float64 `json:"resident"`
	KVBytes  int64   `json:"kv_bytes"`
	Chosen   bool    `json:"chosen"`
}

// TargetInfo is what is known of a target.
type TargetInfo struct {
	Name string `json:"name"`
	// Kind is "engine" (in this process), "started" or "running" server.
	Kind    string `json:"kind"`
	Address string `json:"address,omitempty"`
	// Dialect is the server's software as it was recognised, Model what it
	// calls its model.
	Dialect string `json:"dialect,omitempty"`
	Model   string `json:"model,omitempty"`
	// Claims are what binds a comparison: weights, dtype, draft, kv_bytes,
	// max_sequences, context, by name; from the server where it tells, else
	// from the configuration. Sources says which: "server" or "config".
	Claims  map[string]string `json:"claims"`
	Sources map[string]string `json:"sources"`
	// Tuned lists what was tried; a peer without is untuned, and said to be.
	Tuned   []Tried `json:"tuned,omitempty"`
	Untuned bool    `json:"untuned"`
	// Fake says that the target is a stand-in that generates nothing, so that
	// no figure of it means anything.
	Fake bool `json:"fake,omitempty"`
	// Records is the directory of its records, relative to the run's; "" for
	// none.
	Records string `json:"records,omitempty"`
	Log     string `json:"log,omitempty"`
}

// Summary is summary.json.
type Summary struct {
	Kind       string            `json:"kind"`
	Name       string            `json:"name"`
	Dir        string            `json:"dir"`
	Provenance map[string]string `json:"provenance"`
	SLO        *SLO              `json:"slo,omitempty"`
	Baseline   string            `json:"baseline"` // a target
	Targets    []TargetInfo      `json:"targets"`
	Points     []string          `json:"points"`
	// Cells are those that were finished, in the order in which they were run.
	Cells       []Cell       `json:"cells"`
	Lines       []Line       `json:"lines"`
	Comparisons []Comparison `json:"comparisons"`
	Interrupted bool         `json:"interrupted"`
	Simulated   bool         `json:"simulated"`
	Lossy       bool         `json:"lossy"`
	Warnings    []string     `json:"warnings,omitempty"`
}

// CellName is the name of a cell's directory.
func CellName(target, point string, repeat int) string {
	return fmt.Sprintf("%s.%s.r%d", target, point, repeat)
}

// Fill works out a cell's figures from what a load came to. lanes are the plan's.
func (c *Cell) Fill(res *Result, lanes int, slo *SLO) {
	c.Generator, c.Window = res.Generator, FindWindow(res.Rows, lanes)
	c.InWindow = Measure(slo, Span{res.Rows, c.Window.From, c.Window.To})
	c.Whole = Measure(slo, Whole(res.Rows))
	for i := range res.Rows {
		if r := &res.Rows[i]; r.Phase == Measured && !r.OK() {
			c.FirstErr = fmt.Sprintf("%s: %s", r.Request, r.Error)
			break
		}
	}
}

// Target returns what is known of a target; nil where there is none of that name.
func (s *Summary) Target(name string) *TargetInfo {
	for i := range s.Targets {
		if s.Targets[i].Name == name {
			return &s.Targets[i]
		}
	}
	return nil
}
