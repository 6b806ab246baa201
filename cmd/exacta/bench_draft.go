package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/experiments"
)

func newBenchDraftCommand(o *options) *cobra.Command {
	var shape string
	b := experiments.DraftBenchOptions{}
	cmd := &cobra.Command{
		Use: "draft", Short: "what a draft costs with each learned head, in BF16 and in 4 bits", Args: cobra.NoArgs,
		Long: `draft measures a draft with each learned head of the model, in BF16 and in 4 bits, and a
plain step of the target, in turn, in rounds. A model's heads are rounded to 4 bits for it;
a shape gets heads of random weights. A draft's time includes its part of the passes that
level the head's caches. Times are medians, and so are ratios, each within a round.

--json prints {model, backend, rounds, k, step_ms, heads}; heads has, by strategy, {ms,
step_share}, each {bf16, int4, ratio}: the time of one draft, and what it is of a 1-row
step of the target.`,
		Example: "  exacta bench draft\n  exacta bench draft --shape wide-4096 --heads mtp --steps 6 --rounds 3 --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if shape != "" {
				b.Model = "random:" + shape
			}
			p := newProgress(cmd.ErrOrStderr())
			res, err := experiments.BenchDraft(cmd.Context(), b, p.show)
			p.clear()
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), res)
			}
			return printBenchDraft(cmd, res)
		},
	}
	cmd.Flags().StringVar(&b.Model, "model", registry.Embedded, "embedded, random:SHAPE, or a directory")
	cmd.Flags().StringVar(&shape, "shape", "", "a shape with random weights, such as wide-4096 (exacta models)")
	cmd.Flags().StringVar(&b.Backend, "backend", "cpu", "backend")
	cmd.Flags().StringVar(&b.Kernels, "kernels", "", "CPU kernel set")
	cmd.Flags().IntVar(&b.Threads, "threads", 0, "CPU threads (default: all cores)")
	cmd.Flags().StringSliceVar(&b.Heads, "heads", nil, "heads to measure, of "+strings.Join(experiments.QuantizeHeads, ", ")+" (default: those that the model has)")
	cmd.Flags().IntVar(&b.Group, "group", 32, "columns that share a scale, of a model's heads: 32, 64 or 128 (of random ones: 32)")
	cmd.Flags().IntVar(&b.K, "k", 3, "drafts per step")
	cmd.Flags().IntVar(&b.Prompt, "prompt", 64, "tokens before the measured steps")
	cmd.Flags().IntVar(&b.Rounds, "rounds", 5, "interleaved rounds")
	cmd.Flags().IntVar(&b.Steps, "steps", 24, "steps per round and form of a head")
	cmd.MarkFlagsMutuallyExclusive("model", "shape")
	completeModel(cmd)
	complete(cmd, "shape", model.ShapeNames())
	complete(cmd, "heads", experiments.QuantizeHeads)
	complete(cmd, "group", []string{"32", "64", "128"})
	return cmd
}

func printBenchDraft(cmd *cobra.Command, r *experiments.DraftBenchResult) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s on %s (%s, %s, %d threads), %d interleaved rounds, k = %d: medians\n", r.Model, r.Info.Name, r.Info.Device, r.Info.Kernels, r.Info.Threads, r.Rounds, r.K)
	_, err := fmt.Fprintf(w, "step      %.3f ms (target, 1 row)\n", r.StepMs)
	for _, name := range slices.Sorted(maps.Keys(r.Heads)) {
		h := r.Heads[name]
		_, err = fmt.Fprintf(w, "%-9s %.3f ms a draft in BF16 = %.3f of a step, %.3f ms in 4 bits = %.3f of a step: %.2f of BF16's time\n",
			name, h.Ms.BF16, h.StepShare.BF16, h.Ms.Int4, h.StepShare.Int4, h.Ms.Ratio)
	}
	return err
}
