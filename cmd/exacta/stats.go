package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
)

// statsFlags are the flags of stats.
type statsFlags struct {
	by, over   string
	bucket     int64
	confidence float64
	points     []string
	against    string
	resamples  int
	seed       uint64
	load       bool
}

// Groupings of --by.
const (
	byPoint    = "point"
	byClass    = "class"
	byPrompt   = "prompt"
	byStrategy = "strategy"
	byDepth    = "position-depth"
)

var groupings = []string{byPoint, byClass, byPrompt, byStrategy, byDepth}

const statsLong = `stats computes acceptance and times from the records of a run: one line for each
point (strategy, k, rule, concurrency) and round, and for each point, rounds pooled,
the speed-up that follows from its acceptance and its measured costs beside the one
that was measured. Simulated acceptance is stamped and never pooled with real;
so is a lossy rule, whose output is not the target's.

  --by class           by point and prompt class; --by prompt, --by strategy likewise
  --by position-depth  a line for each position of the draft, with intervals
  --over steps         by point, in windows of engine steps of the round
  --over position      in windows of output positions
  --load               what the engine was busy with: requests decoding and in prefill,
                       the share of prefill, tokens prefilled between steps that decode,
                       tokens computed again, and of a server's directory the time
                       that each request waited
  --against RUN2       compares with the same points of another run: paired bootstrap
                       over prompts. --points A compares that point only, --points A,B
                       point A of RUN with point B of RUN2, which may be RUN itself.

Intervals are Wilson's (1927); they take verifications as independent, and pooled
rounds or points, which run the same prompts again, as one (passes). Those of
--against are percentiles of resampled prompts (Efron 1979), which hold where the
verifications of an output depend on each other. A point is named with its round
(0-mtp.k3.greedy.c1.r0) or without, for all rounds.

The rate of --load is the mean of requests decoding times the tokens per second of one of
them; its time is that of steps, in which a server without requests takes none.

--json prints {run, provenance, confidence, points: [{point, steps, verifications,
drafted, proposed, accepted, real_accepted, emitted, accept_length (over
verifications), accept_length_macro (over requests), accept_length_token_weighted
(over requests, weighted by tokens), accept_length_per_token (over tokens),
emitted_per_verification, draft_accept_rate, acceptance_by_position,
acceptance_conditional, histogram, preemptions, cached_tokens, lossy,
simulated, simulation, engine_steps, total_seconds, draft_seconds, verify_seconds, draft_share,
decode_step_ms, decode_tok_s, positions: [{position, unconditional: {count, of, rate,
low, high}, conditional}]}], speedups: [{point, plain, concurrency, lossy,
simulated, simulation, accept_length, width, plain_step_ms, draft_step_ms, verify_step_ms,
step_ms, expected, measured, overhead, occupancy, cut, unexplained, why}]}, where
expected = accept_length x plain_step_ms / (draft_step_ms + verify_step_ms), and
measured = expected x overhead x occupancy x cut x (1 + unexplained).
--by prints {by, groups: [{point, class, prompt, strategy, ... passes, positions}]} in the
place of points, --by position-depth {by, depths: [{point, lossy, simulated, simulation,
passes, position, unconditional, conditional}]}, --over {over, bucket, windows: [{point, from,
to, verifications, proposed, accepted, emitted, accept_length, draft_accept_rate,
passes, positions, lossy, simulated, simulation}]}, --load {load: {requests, engine_steps,
busy_seconds, emitted, tok_s, requests_decoding, requests_in_prefill (each: {mean, median,
p99, most}), tok_s_per_decoding_request, prefill_tokens, prefill_row_share,
prefill_step_share, prefill_between_decode_steps, preemptions, recomputed_tokens,
recomputed_share}, requests: [{request, finish, queue_ms, ttft_ms, total_ms}]}, --against {run, against, only_in_run,
only_in_against, comparisons: [{a, b, prompts, resamples, seed, generator, confidence,
lossy_a, lossy_b, simulated, simulation_a, simulation_b, note, figures: [{figure, position (-1 where
there is none), value_a, value_b, difference, low, high, defined}]}]}. difference is
a - b, and a / b of decode_tok_s_ratio; defined counts the resamples that have the
figure.`

func newStatsCommand(o *options) *cobra.Command {
	f := &statsFlags{}
	cmd := &cobra.Command{
		Use: "stats RUN", Short: "acceptance statistics from a run's records", Args: cobra.ExactArgs(1),
		ValidArgsFunction: directories, Long: statsLong,
		Example: `  exacta stats runs/quickstart-20260101-120000
  exacta stats RUN --by class
  exacta stats RUN --over position --bucket 64 --points 0-mtp.k3.greedy.c1
  exacta stats RUN --load
  exacta stats RUN --against RUN2
  exacta stats RUN --against RUN --points 1-mtp.k4.greedy.c1,1-mtp.k3.greedy.c1
  exacta stats RUN --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			switch {
			case f.against != "":
				return compareRuns(cmd.OutOrStdout(), args[0], f, o.json)
			case f.load:
				return statsLoad(cmd.OutOrStdout(), args[0], f, o.json)
			case f.over != "":
				return statsOver(cmd.OutOrStdout(), args[0], f, o.json)
			}
			return statsBy(cmd.OutOrStdout(), args[0], f, o.json)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.by, "by", byPoint, "group by "+strings.Join(groupings, ", "))
	flags.StringVar(&f.over, "over", "", "follow acceptance over steps or output position")
	flags.Int64Var(&f.bucket, "bucket", 64, "width of the windows of --over")
	flags.Float64Var(&f.confidence, "confidence", 0.95, "confidence of the intervals")
	flags.StringSliceVar(&f.points, "points", nil, "points to take, separated by commas; all by default")
	flags.StringVar(&f.against, "against", "", "run directory to compare with")
	flags.IntVar(&f.resamples, "resamples", 10000, "resamples of the bootstrap of --against")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the bootstrap; the same seed gives the same digits")
	flags.BoolVar(&f.load, "load", false, "tell what the engine was busy with, and how long requests waited")
	cmd.MarkFlagsMutuallyExclusive("by", "over", "against", "load")
	complete(cmd, "by", groupings)
	complete(cmd, "over", []string{string(acceptance.OverSteps), string(acceptance.OverPosition)})
	_ = cmd.MarkFlagDirname("against")
	return cmd
}

// check refuses values and combinations of flags that mean nothing.
func (f *statsFlags) check(cmd *cobra.Command) error {
	switch {
	case !slices.Contains(groupings, f.by):
		return fmt.Errorf("--by %q; use one of %s", f.by, strings.Join(groupings, ", "))
	case f.over != "" && f.over != string(acceptance.OverSteps) && f.over != string(acceptance.OverPosition):
		return fmt.Errorf("--over %q; use steps or position", f.over)
	case cmd.Flags().Changed("over") && f.over == "":
		return errors.New("--over is empty; use steps or position")
	case cmd.Flags().Changed("against") && f.against == "":
		return errors.New("--against is empty; give a run directory")
	case f.bucket < 1:
		return fmt.Errorf("--bucket %d; it must be at least 1", f.bucket)
	case !(f.confidence >= 0.5 && f.confidence <= 0.999999):
		return fmt.Errorf("--confidence %v; it must be 0.5..0.999999", f.confidence)
	case f.resamples < 100 || f.resamples > acceptance.MostResamples:
		return fmt.Errorf("--resamples %d; it must be 100..%d", f.resamples, acceptance.MostResamples)
	case f.against != "" && len(f.points) > 2:
		return fmt.Errorf("--points names %d points; --against compares one, or one with another", len(f.points))
	}
	for _, flag := range []struct{ name, needs, value string }{{"bucket", "over", f.over}, {"resamples", "against", f.against}, {"seed", "against", f.against}} {
		if cmd.Flags().Changed(flag.name) && flag.value == "" {
			return fmt.Errorf("--%s goes with --%s", flag.name, flag.needs)
		}
	}
	return nil
}

// chosen passes the records of the points that --points names, and reports names
// that no record has.
type chosen struct {
	names []string
	found map[string]bool
	all   []string // points without their rounds, in order
	known map[string]bool
}

func newChosen(names []string) *chosen {
	return &chosen{names: names, found: map[string]bool{}, known: map[string]bool{}}
}

func (c *chosen) takes(r *engine.Record) bool {
	p := acceptance.ParsePoint(acceptance.ByPoint(r))
	if !c.known[p.Name] {
		c.known[p.Name] = true
		c.all = append(c.all, p.Name)
	}
	take := len(c.names) == 0
	for _, n := range c.names {
		if p.Is(n) {
			c.found[n], take = true, true
		}
	}
	return take
}

// missing is the error of a name that no record has.
func (c *chosen) missing(dir string) error {
	for _, n := range c.names {
		if !c.found[n] {
			return fmt.Errorf("--points: %s has no point %q; it has %s", dir, n, acceptance.Some(c.all))
		}
	}
	return nil
}

// scan passes the records of a run's chosen points to each.
func scan(dir string, names []string, each func(*engine.Record) error) (acceptance.Meta, error) {
	r, err := acceptance.Open(dir)
	if err != nil {
		return acceptance.Meta{}, err
	}
	c := newChosen(names)
	for rec, err := range r.All() {
		if err != nil {
			return r.Meta(), err
		}
		if !c.takes(rec) {
			continue
		}
		if err := each(rec); err != nil {
			return r.Meta(), err
		}
	}
	return r.Meta(), c.missing(dir)
}

// head is what every output of stats begins with.
func (f *statsFlags) head(m acceptance.Meta) map[string]any {
	return map[string]any{"run": m.Run, "provenance": m.Provenance, "confidence": f.confidence}
}

// statsOver follows acceptance over steps or positions.
func statsOver(out io.Writer, dir string, f *statsFlags, asJSON bool) error {
	w, err := acceptance.NewWindows(acceptance.Over(f.over), f.bucket)
	if err != nil {
		return err
	}
	meta, err := scan(dir, f.points, w.Add)
	if err != nil {
		return err
	}
	lines, err := w.Lines(f.confidence)
	if err != nil {
		return err
	}
	if asJSON {
		v := f.head(meta)
		v["over"], v["bucket"], v["windows"] = f.over, f.bucket, lines
		return printJSON(out, v)
	}
	return printWindows(out, f, lines)
}

// statsBy computes the statistics of groups.
func statsBy(out io.Writer, dir string, f *statsFlags, asJSON bool) error {
	pooled := acceptance.NewGroup(acceptance.ByPooledPoint)
	g := pooled
	switch f.by {
	case byPoint:
		g = acceptance.NewGroup(acceptance.ByPoint)
	case byStrategy:
		g = acceptance.NewGroup(acceptance.ByStrategy)
	case byPrompt:
		g = acceptance.NewGroup(acceptance.ByPrompt)
	case byClass:
		prompts, err := acceptance.ReadPrompts(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--by class: %w; the classes of prompts are in prompts.jsonl of a run directory", err)
		} else if err != nil {
			return err
		}
		g = acceptance.NewGroup(acceptance.ByClass(prompts))
	}
	meta, err := scan(dir, f.points, func(r *engine.Record) error {
		g.Add(r)
		if g != pooled && f.by == byPoint {
			pooled.Add(r)
		}
		return nil
	})
	if err == nil {
		err = errors.Join(g.Mixed(), pooled.Mixed())
	}
	if err != nil {
		return err
	}
	v := f.head(meta)
	if f.by != byPoint {
		v["by"] = f.by
	}
	switch f.by {
	case byPoint:
		lines, speedups := pointLines(g, f.confidence), acceptance.Speedups(pooled)
		if asJSON {
			v["points"], v["speedups"] = lines, speedups
			return printJSON(out, v)
		}
		return printPoints(out, f, lines, speedups)
	case byDepth:
		lines := depthLines(g, f.confidence)
		if asJSON {
			v["depths"] = lines
			return printJSON(out, v)
		}
		return printDepths(out, f, lines)
	}
	lines := groupLines(g, f.by, f.confidence)
	if asJSON {
		v["groups"] = lines
		return printJSON(out, v)
	}
	return printGroups(out, f, lines)
}
