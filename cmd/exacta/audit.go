package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/experiments"
)

func newAuditCommand(o *options) *cobra.Command {
	var only []string
	var replay string
	cmd := &cobra.Command{
		Use: "audit RUN", Short: "prove a run: its tokens, its counts, its work", Args: cobra.ExactArgs(1),
		Long: `audit checks a run directory three times, on the model and backend of its
config.yaml. Each audit is blind to faults that another sees; each says what it could
not see.

  tokens  teacher-forces prompt and output through the model in prefill chunks and
          compares every token and the hash of every committed logits row bit for
          bit; small runs are replayed by plain decoding too. Requests under a rule
          that promises a distribution are run again alone, and their tokens held
          against the target's distribution. Of a divergence: both candidates, their
          gap, what else was in the batch, and what the float64 oracle says.
  counts  holds every record, request and step to the identities between counts, to
          what the client received and to the figures in summary.json; runs requests
          again alone, to see whether drafts and decisions are the strategy's and
          rule's own; holds simulated acceptance to its documented draws and its
          declared schedule.
  work    holds the backend's counters of every step to the rows that its records
          claim, exactly; drafting to what its drafts cost; step times to the
          machine's limits and to accept length, on which they may not depend.

Statistical tests call an honest run wrong with a probability of at most 1e-6 for each
audit. --replay forced leaves out plain decoding, both replays everything and runs
every request again; auto does both for runs of up to 20,000 tokens and takes a share
of the requests of larger ones. What the audits found is kept in RUN/audit.json, for
exacta report.

Exit code 0: all that was asked for passed; 1: something failed, or could not be
checked here; 2: the run directory is damaged or incomplete, and the error names the
file.

--json prints {run, verdict, tokens, counts, work}, of the audits that were made. verdict
is pass, fail or not checkable. Each audit is {audit, verdict, why, run,
checks: [{name, checked, failed, why}], tests: [{name, samples, statistic, p, alpha,
detects}], findings: [{check, why, request, step, times}], notes, blind}, and counts
has figures: {strategies: {NAME: {steps, drafted, tokens, accept_length_by_step,
accept_length_by_request, accept_length_by_token, by_position: [{of, rate, low,
high}], conditional, by_depth: [{below, rate}], histogram}}, simulations: {NAME:
{requested, realised, low, high, steps, histogram}}}.`,
		Example: `  exacta audit runs/quickstart-20260101-120000
  exacta audit runs/quickstart-20260101-120000 --only tokens,work --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range only {
				if !slices.Contains(experiments.Audits, name) {
					return fmt.Errorf("--only %q; the audits are tokens, counts and work", name)
				}
			}
			how, ok := replays[replay]
			if !ok {
				return fmt.Errorf("--replay %q; it is auto, forced or both", replay)
			}
			p := newProgress(cmd.ErrOrStderr())
			res, err := experiments.Audit(cmd.Context(), args[0], experiments.AuditOptions{Only: only, Replay: how, Progress: p.show})
			p.clear()
			if err != nil {
				return err
			}
			if e := experiments.KeepAudit(args[0], res); e != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: the result is not kept for reports: "+oneLine(e))
			}
			if o.json {
				err = printJSON(cmd.OutOrStdout(), res)
			} else {
				err = printAudits(cmd.OutOrStdout(), res)
			}
			if err == nil && res.Verdict != audit.Pass {
				err = errFalse
			}
			return err
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "which audits to make: tokens, counts, work (default all)")
	cmd.Flags().StringVar(&replay, "replay", "auto", "what to replay: auto, forced or both")
	complete(cmd, "only", experiments.Audits)
	complete(cmd, "replay", []string{"auto", "forced", "both"})
	cmd.ValidArgsFunction = directories
	addOutside(cmd, o)
	return cmd
}

// replays are the values of --replay.
var replays = map[string]audit.Replay{"auto": audit.ReplayAuto, "forced": audit.ReplayForced, "both": audit.ReplayBoth}

func printAudits(w io.Writer, res *experiments.AuditResult) error {
	for i, r := range res.Reports() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := printReport(w, r); err != nil {
			return err
		}
	}
	return nil
}

// printReport writes a report: the verdict with its evidence, then what was
// looked at.
func printReport(w io.Writer, r *audit.Report) error {
	fmt.Fprintf(w, "%s: %s (run %s)\n", r.Audit, r.Verdict, r.Run)
	if len(r.Findings) == 0 && r.Why != "" {
		fmt.Fprintln(w, "  "+r.Why)
	}
	for _, f := range r.Findings {
		where := ""
		if f.Step >= 0 {
			where = fmt.Sprintf(" [request %s, step %d]", f.Request, f.Step)
		}
		fmt.Fprintf(w, "  FAIL %s, %d times: %s%s\n", f.Check, f.Times, f.Why, where)
	}
	for _, c := range r.Checks {
		switch {
		case c.Failed > 0:
		case c.Checked == 0:
			fmt.Fprintf(w, "  -    %s: not checked: %s\n", c.Name, c.Why)
		default:
			fmt.Fprintf(w, "  ok   %s: %d\n", c.Name, c.Checked)
		}
	}
	for _, t := range r.Tests {
		fmt.Fprintf(w, "  test %s: %d samples, statistic %.4g, p %.3g (alpha %.2g); detects %s\n", t.Name, t.Samples, t.Statistic, t.P, t.Alpha, t.Detects)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "  note "+n)
	}
	for _, b := range r.Blind {
		fmt.Fprintln(w, "  blind to: "+b)
	}
	return nil
}
