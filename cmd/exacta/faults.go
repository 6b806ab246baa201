package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/internal/faults"
)

func newFaultsCommand(o *options) *cobra.Command {
	opt := faults.Options{Model: registry.Embedded}
	var only []string
	cmd := &cobra.Command{
		Use: "faults", Short: "break the engine in known ways and show which audit notices", Args: cobra.NoArgs,
		Long: `faults runs the embedded model with one fault after another switched on, each as a
public engine had it, and audits every run as if it were any other; between them it
runs healthy strategies, rules, draft lengths, batches and seeds, which no audit may
flag. It prints the matrix: which audits caught a fault in every run, and what the
first of them said. Classes B1 to B27 are the catalogue's, E cases beside it, 8a to 8c
three forms of a speed that is 8 % too high.

Exit code 0: every run of every fault was caught, and no healthy run was flagged; 1:
not so.

--json prints {faults: [{id, name, report: where it was seen in public, setup: the run
that provokes it, caught_by: audits that failed in every run, also_by: audits that
failed in some, evidence, caught: runs in which any audit failed, runs, expect: audits
that have to find it, outside: what an endpoint shows of it}], healthy_runs,
false_alarms, alarms: [{run, setup, audit, evidence}], not_checkable: healthy runs that
an audit could not judge, by audit, seconds}.`,
		Example: "  exacta faults\n  exacta faults --only B7,8c --seeds 3 --healthy 0",
		RunE: func(cmd *cobra.Command, _ []string) error {
			opt.Only = only
			if opt.Seeds < 1 || opt.Healthy < 0 {
				return fmt.Errorf("--seeds %d, --healthy %d; want at least 1 seed and 0 healthy runs", opt.Seeds, opt.Healthy)
			}
			p := newProgress(cmd.ErrOrStderr())
			opt.Progress = func(done, of int) { p.show(fmt.Sprintf("run %d of %d", done, of)) }
			m, err := faults.Check(cmd.Context(), opt)
			p.clear()
			if err != nil {
				return err
			}
			if o.json {
				err = printJSON(cmd.OutOrStdout(), m)
			} else {
				printMatrix(cmd.OutOrStdout(), m)
			}
			if err == nil && !m.Holds() {
				err = errFalse
			}
			return err
		},
	}
	cmd.Flags().IntVar(&opt.Seeds, "seeds", 20, "runs of each fault")
	cmd.Flags().IntVar(&opt.Healthy, "healthy", 300, "healthy runs")
	cmd.Flags().StringSliceVar(&only, "only", nil, "classes of faults, e.g. B7,8c; default all")
	complete(cmd, "only", faults.Classes())
	return cmd
}

// printMatrix prints a line per fault, and below it what was said.
func printMatrix(w io.Writer, m *faults.Matrix) {
	names := []string{"tokens", "counts", "work"}
	fmt.Fprintf(w, "%-4s %-52s %-8s%-8s%-8s%s\n", "", "fault", names[0], names[1], names[2], "caught")
	caught := map[string]bool{}
	for _, r := range m.Faults {
		fmt.Fprintf(w, "%-4s %-52s", r.ID, r.Name)
		for _, n := range names {
			mark := "-"
			switch {
			case slices.Contains(r.CaughtBy, n):
				mark = "all"
			case slices.Contains(r.AlsoBy, n):
				mark = "some"
			}
			fmt.Fprintf(w, " %-7s", mark)
		}
		fmt.Fprintf(w, " %d/%d\n", r.Caught, r.Runs)
		if r.Evidence != "" {
			fmt.Fprintf(w, "       %s\n", r.Evidence)
		}
		if r.Outside != "" {
			fmt.Fprintf(w, "       from outside %s\n", r.Outside)
		}
		before, seen := caught[r.ID]
		caught[r.ID] = (before || !seen) && r.Caught == r.Runs
	}
	for _, a := range m.Alarms {
		fmt.Fprintf(w, "false alarm: healthy run %d (%s): %s: %s\n", a.Run, a.Setup, a.Audit, a.Evidence)
	}
	var missed []string
	for _, id := range faults.Classes() {
		if ok, run := caught[id]; run && !ok {
			missed = append(missed, id)
		}
	}
	fmt.Fprintf(w, "%d of %d classes caught in every run; %d healthy runs, %d false alarms; %.0f s\n",
		len(caught)-len(missed), len(caught), m.HealthyRuns, m.FalseAlarms, m.Seconds)
	if len(missed) > 0 {
		fmt.Fprintf(w, "not caught in every run: %s\n", strings.Join(missed, ", "))
	}
}
