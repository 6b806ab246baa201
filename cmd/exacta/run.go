package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/experiments"
)

func newRunCommand(o *options) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use: "run [CONFIG.yaml]", Short: "run an experiment and print its table", Args: cobra.MaximumNArgs(1),
		Long: `run measures draft strategies against plain decoding, in interleaved rounds, and
proves that their outputs are equal. It writes a run directory with records,
outputs, summary.json, configuration and provenance, and ends with a table.
Without a file it runs the quickstart experiment on the embedded model. Exit code
1 means that some output was not exact.

--json prints summary.json: name, dir, provenance, prompts, interrupted, simulated,
lossy, warnings (of drafters, where there were any) and runs, a list of {strategy (index in the configuration, -1 plain), drafter, settings (where given), k, rule,
concurrency, tokens, tok_s, ratio_to_plain, decode_tok_s, decode_ratio, step_ms,
draft_share, seconds (wall time of each round), accept_length, acceptance_by_position, repeated_4grams,
fresh_accept_length, fresh_ratio (null where it is not measured), preemptions, exact
(null where the rule does not promise it), first_difference (where not exact),
lossy (the rule accepts what the target would not have said), simulated}, and lossy
and simulated, which say that some rule of the run is lossy, some strategy has simulate.
Lines of such strategies have simulation (what was asked for) and real_accept_length
(what the rule decided in the same steps) too, lines of a length policy have length.
Where prompts are of several classes, lines of one sequence in flight have classes:
[{class, tokens, tok_s, ratio_to_plain, accept_length, acceptance_by_position,
draft_share}]. In a run with simulate or a lossy rule exact is null on every line, or
false, and the table shows real accept lengths, or which outputs are lossy, in its
place.
` + runSweepHelp,
		Example: `  exacta run
  exacta run experiments/quickstart.yaml --dir runs/mine
  exacta run experiments/choose_k.yaml --dry-run
  exacta run --resume runs/choose_k-20260101-120000
  exacta run --json | jq '.runs[] | {drafter, k, ratio_to_plain, exact}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := f.document(args)
			if err != nil {
				return err
			}
			if f.sweeps(d) {
				return runSweep(cmd, o, f, d)
			}
			if experiments.IsLoad(d.Text()) {
				return runLoad(cmd, o, f.dir, d.Name(), d.Text())
			}
			cfg, err := experiments.ParseConfig(d.Name(), d.Text())
			if err != nil {
				return err
			}
			cfg.PackCache = cfg.PackCache || f.pack
			if f.loop != "" {
				cfg.Engine.Loop = f.loop
			}
			if f.share != 0 {
				cfg.GPUMemory = f.share
			}
			p := newProgress(cmd.ErrOrStderr())
			warn := func(text string) {
				p.clear()
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+text)
			}
			sum, err := experiments.Run(cmd.Context(), cfg, experiments.RunOptions{Dir: f.dir, Version: version(), Progress: p.show, Warn: warn, Trace: f.trace})
			p.clear()
			if err != nil && !(errors.Is(err, experiments.ErrInterrupted) && sum != nil) {
				return err
			}
			if e := showRun(cmd.OutOrStdout(), o, sum); e != nil {
				return errors.Join(err, e)
			}
			if err == nil && !sum.AllExact() {
				err = errFalse
			}
			return err
		},
	}
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	}
	f.add(cmd)
	return cmd
}

func showRun(w io.Writer, o *options, sum *experiments.Summary) error {
	if o.json {
		return printJSON(w, sum)
	}
	if err := sum.Table(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d prompts; records, outputs and summary.json in %s\n", sum.Prompts, sum.Dir)
	return err
}

// progress shows what is being done: one line that is rewritten in a terminal,
// nothing elsewhere.
type progress struct{ w io.Writer }

func newProgress(w io.Writer) progress {
	if f, ok := w.(*os.File); !ok || !isTerminal(f) {
		w = io.Discard
	}
	return progress{w}
}

func (p progress) show(text string) { fmt.Fprintf(p.w, "\r\x1b[K%s", text) }

// clear takes the line away, before results are printed.
func (p progress) clear() { fmt.Fprint(p.w, "\r\x1b[K") }
