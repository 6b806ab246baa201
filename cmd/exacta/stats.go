package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/acceptance"
)

// statsLine is the statistics of one group of requests.
type statsLine struct {
	Point string `json:"point"`
	acceptance.Summary
}

func newStatsCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "stats RUN", Short: "acceptance statistics from a run's records", Args: cobra.ExactArgs(1),
		ValidArgsFunction: directories,
		Long: `stats computes acceptance and times from the records of a run, and from nothing
else: one line for each point (strategy, k, rule, concurrency) and round.

--json prints {run, provenance, points: [{point, steps, verifications, drafted,
proposed, accepted, real_accepted, emitted, accept_length, accept_length_macro,
emitted_per_verification, draft_accept_rate, acceptance_by_position,
acceptance_conditional, histogram, preemptions, cached_tokens, simulated,
engine_steps, total_seconds, draft_seconds, verify_seconds, draft_share,
decode_step_ms, decode_tok_s}]}.`,
		Example: "  exacta stats runs/quickstart-20260101-120000\n  exacta stats RUN --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := acceptance.Open(args[0])
			if err != nil {
				return err
			}
			g := acceptance.NewGroup(acceptance.ByPoint)
			for rec, err := range r.All() {
				if err != nil {
					return err
				}
				g.Add(rec)
			}
			lines := []statsLine{}
			for _, name := range g.Order {
				lines = append(lines, statsLine{name, g.By[name].Summary()})
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{"run": r.Meta().Run, "provenance": r.Meta().Provenance, "points": lines})
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "point\tverifications\tproposed\taccepted\temitted\taccept length\tby position\tconditional\tdecode step ms\tdraft share\tsimulated")
			for _, l := range lines {
				fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.3f\t%.2f\t%.2f\t%.3f\t%.0f%%\t%v\n", l.Point, l.Verifications, l.Proposed,
					l.Accepted, l.Emitted, l.AcceptLength, l.AcceptanceByPosition, l.Conditional, l.DecodeStepMs, 100*l.DraftShare, l.Simulated)
			}
			return w.Flush()
		},
	}
}
