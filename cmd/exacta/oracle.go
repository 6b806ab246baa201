package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/experiments"
)

func newOracleCommand(o *options) *cobra.Command {
	q := experiments.OracleOptions{}
	cmd := &cobra.Command{
		Use: "oracle", Short: "count the greedy tokens that float64 arithmetic would not choose", Args: cobra.NoArgs,
		Long: `oracle continues the model's prompts greedily, feeds the same tokens to the float64
backend, and prints how many are not its argmax, with the margins: the oracle's
logit of its own choice minus that of the token. It puts a number on rounding.`,
		Example: "  exacta bench oracle --tokens 1000\n  exacta bench oracle --model DIR --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := newProgress(cmd.ErrOrStderr())
			res, err := experiments.Oracle(cmd.Context(), q, p.show)
			p.clear()
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), res)
			}
			return printOracle(cmd, res)
		},
	}
	cmd.Flags().StringVar(&q.Model, "model", registry.Embedded, registry.Names)
	cmd.Flags().StringVar(&q.Backend, "backend", "cpu", "backend to compare with the oracle")
	cmd.Flags().StringVar(&q.Kernels, "kernels", "", "CPU kernel set")
	cmd.Flags().IntVar(&q.Threads, "threads", 0, "CPU threads (default: all cores)")
	cmd.Flags().IntVar(&q.Tokens, "tokens", 10000, "tokens to generate and check")
	completeModel(cmd)
	return cmd
}

func printOracle(cmd *cobra.Command, r *experiments.OracleResult) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s (%s): %d of %d greedy tokens of %d prompts are not the float64 argmax (%.2f %%)\n",
		r.Model, r.Backend, r.Differ, r.Tokens, r.Prompts, 100*float64(r.Differ)/float64(r.Tokens))
	line := func(name string, s experiments.Spread) {
		fmt.Fprintf(w, "%-46s n %5d  min %.4f  median %.4f  90 %% %.4f  max %.4f\n", name, s.Count, s.Min, s.Median, s.P90, s.Max)
	}
	line("margin of the oracle's choice, where differing", r.Margins)
	line("backend's own top-1/top-2 gap there", r.Gaps)
	line("backend's top-1/top-2 gap, all tokens", r.AllGaps)
	for i, c := range r.Cases {
		if i == 10 {
			fmt.Fprintf(w, "  ... and %d more (--json lists all)\n", len(r.Cases)-i)
			break
		}
		fmt.Fprintf(w, "  %s, output %d: token %d, oracle %d, margin %.4f, own gap %.4f\n", c.Prompt, c.Output, c.Token, c.Oracle, c.Margin, c.Gap)
	}
	return nil
}
