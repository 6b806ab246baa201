package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/experiments/report"
	"exacta.dev/exacta/internal/disk"
)

func newReportCommand(o *options) *cobra.Command {
	var base string
	var audits bool
	cmd := &cobra.Command{
		Use: "report RUN...", Short: "write what runs found: HTML, CSV and Markdown", Args: cobra.MinimumNArgs(1),
		Long: `report reads run directories, of strategies, of load experiments and of sweeps, and
result files of vllm bench serve and of Spec-Bench, whose figures are audited, and
writes three files: BASE.html, a page that needs nothing beside it, with audit verdicts
on top, plots and tables that a click sorts; BASE.csv, every figure of every table as a
line (run, table, line, column, value); BASE.md, the tables. BASE is RUN/report for one
run, else report.

Verdicts are those of exacta audit, which keeps them in RUN/audit.json; --audit makes
audits that were not made of a run as it is now. What is simulated, lossy, unfair or not
checked says so in red.

--json prints {html, csv, markdown, runs: [{name, kind, dir, stamps: [{word, means, loud}],
audits: [{audit, verdict, why}], warnings}]}.`,
		Example: `  exacta report runs/quickstart-20260101-120000 --audit
  exacta report runs/monday runs/tuesday --out both`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if audits {
				if err := auditRuns(cmd, args); err != nil {
					return err
				}
			}
			r, err := report.Gather(args)
			if err != nil {
				return err
			}
			if base == "" {
				base = "report"
				if info, err := os.Stat(args[0]); len(args) == 1 && err == nil && info.IsDir() {
					base = filepath.Join(args[0], base)
				}
			}
			return writeReport(cmd.OutOrStdout(), o, r, base)
		},
	}
	cmd.Flags().StringVar(&base, "out", "", "where to write, without the ending (default RUN/report)")
	cmd.Flags().BoolVar(&audits, "audit", false, "make the audits that are missing")
	cmd.ValidArgsFunction = directories
	return cmd
}

// auditRuns makes the audits that were not made of the runs as they are.
func auditRuns(cmd *cobra.Command, runs []string) error {
	p := newProgress(cmd.ErrOrStderr())
	defer p.clear()
	for _, run := range runs {
		if info, err := os.Stat(run); err == nil && info.Mode().IsRegular() {
			continue // a result file, which is audited as it is read
		}
		dirs, err := report.Auditable(run)
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			kept, err := experiments.ReadAudit(dir)
			if err != nil {
				return err
			}
			if kept != nil && !kept.Stale && len(kept.Result.Reports()) == len(experiments.Audits) {
				continue
			}
			res, err := experiments.Audit(cmd.Context(), dir, experiments.AuditOptions{Progress: func(text string) { p.show(dir + ": " + text) }})
			if err == nil {
				err = experiments.KeepAudit(dir, res)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// written is what exacta report --json prints.
type written struct {
	HTML     string        `json:"html"`
	CSV      string        `json:"csv"`
	Markdown string        `json:"markdown"`
	Runs     []*report.Run `json:"runs"`
}

func writeReport(out io.Writer, o *options, r *report.Report, base string) error {
	w := written{base + ".html", base + ".csv", base + ".md", r.Runs}
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{{w.HTML, r.HTML}, {w.CSV, r.CSV}, {w.Markdown, r.Markdown}} {
		var b bytes.Buffer
		err := f.write(&b)
		if err == nil {
			err = disk.WriteWhole(f.name, b.Bytes())
		}
		if err != nil {
			return fmt.Errorf("report %s: %w", f.name, err)
		}
	}
	if o.json {
		return printJSON(out, w)
	}
	for _, run := range r.Runs {
		for _, s := range run.Stamps {
			fmt.Fprintf(out, "%s: %s: %s\n", run.Name, s.Word, s.Means)
		}
		for _, v := range run.Audits {
			fmt.Fprintf(out, "%s: %s: %s\n", run.Name, v.Audit, v.Verdict)
		}
	}
	_, err := fmt.Fprintf(out, "%s, %s and %s\n", w.HTML, w.CSV, w.Markdown)
	return err
}
