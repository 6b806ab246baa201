package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/experiments"
)

func newBenchCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "measure decode, verification and prefill against the machine's limits",
		Long: `bench measures in interleaved rounds, beside a plain read loop over the same
weights and the multiply-add peak of the same threads, and prints ratios: absolute
times say little on shared machines.

--json prints, for decode, {tok_s, bytes_per_s, ratio_to_read}; for verify, {rows,
bound}: the time of a step of n rows relative to one of 1 row, and to the larger of
that and its multiply-adds at the peak, by n; for prefill, {tok_s, ratio_to_peak}; each
with all, everything that was measured, which is what kernels prints: {model, backend,
rounds, machine, decode, verify, draft, heads, prefill, memory}.`,
		Example: "  exacta bench decode\n  exacta bench verify --shape qwen3-0.6b --rows 1,2,4,8\n  exacta bench prefill --shape qwen3-0.6b\n  exacta bench draft --shape wide-4096 --heads mtp\n  exacta bench oracle --tokens 1000",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for name, short := range map[string]string{
		"kernels": "everything: the machine's limits, decode, verification, prefill, memory",
		"decode":  "a plain decode step against the read loop",
		"prefill": "reading a prompt against the multiply-add peak",
		"verify":  "steps of several rows against a step of one",
	} {
		cmd.AddCommand(newBenchPart(o, name, short))
	}
	cmd.AddCommand(newOracleCommand(o), newBenchDraftCommand(o), newLoadBenchCommand(o), newServeBenchCommand(o), newServersBenchCommand(o), newBenchStepsCommand(o))
	return cmd
}

func newBenchPart(o *options, part, short string) *cobra.Command {
	var shape string
	b := experiments.BenchOptions{}
	cmd := &cobra.Command{
		Use: part, Short: short, Args: cobra.NoArgs, Example: "  exacta bench " + part + " --shape qwen3-0.6b --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if shape != "" {
				b.Model = "random:" + shape
			}
			if part == "decode" || part == "prefill" {
				b.Rows = []int{1}
			}
			p := newProgress(cmd.ErrOrStderr())
			res, err := experiments.Bench(cmd.Context(), b, p.show)
			p.clear()
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), benchJSON(part, res))
			}
			return printBench(cmd, part, res)
		},
	}
	cmd.Flags().StringVar(&b.Model, "model", registry.Embedded, registry.Names)
	cmd.Flags().StringVar(&shape, "shape", "", "a shape with random weights, such as qwen3-0.6b (exacta models)")
	cmd.Flags().StringVar(&b.Backend, "backend", "cpu", "backend")
	cmd.Flags().StringVar(&b.Kernels, "kernels", "", "CPU kernel set")
	cmd.Flags().IntVar(&b.Threads, "threads", 0, "CPU threads (default: all cores)")
	cmd.Flags().IntSliceVar(&b.Rows, "rows", []int{1, 2, 4, 6, 8}, "rows of a verification")
	cmd.Flags().IntVar(&b.Prompt, "prompt", 128, "tokens before the measured steps")
	cmd.Flags().IntVar(&b.Context, "context", 514, "longest sequence; prefill reads two less")
	cmd.Flags().IntVar(&b.Rounds, "rounds", 5, "interleaved rounds")
	cmd.Flags().IntVar(&b.Steps, "steps", 24, "tokens generated per round and row count")
	cmd.MarkFlagsMutuallyExclusive("model", "shape")
	completeModel(cmd)
	complete(cmd, "shape", model.ShapeNames())
	return cmd
}

// benchJSON is the documented form: the part's figures at the top level, with
// everything measured beside them.
func benchJSON(part string, r *experiments.BenchResult) any {
	switch part {
	case "decode":
		return map[string]any{"tok_s": r.Decode.TokS, "bytes_per_s": r.Decode.BytesS, "ratio_to_read": r.Decode.RatioToRead, "all": r}
	case "prefill":
		return map[string]any{"tok_s": r.Prefill.TokS, "ratio_to_peak": r.Prefill.RatioToPeak, "all": r}
	case "verify":
		return map[string]any{"rows": r.Verify.Rows, "bound": r.Verify.Bound, "all": r}
	}
	return r
}

func printBench(cmd *cobra.Command, part string, r *experiments.BenchResult) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s on %s (%s, %s, %d threads), %d interleaved rounds: best times, median ratios\n", r.Model, r.Info.Name, r.Info.Device, r.Info.Kernels, r.Info.Threads, r.Rounds)
	fmt.Fprintf(w, "machine   read loop over the weights %.1f GB/s, peak %.1f GMAC/s\n", r.Machine.ReadBytesS/1e9, r.Machine.PeakMACS/1e9)
	all := part == "kernels"
	if all || part == "decode" {
		fmt.Fprintf(w, "decode    %.1f tok/s (%.3f ms), weights at %.1f GB/s = %.2f of the read loop\n", r.Decode.TokS, r.Decode.StepMs, r.Decode.BytesS/1e9, r.Decode.RatioToRead)
	}
	if all || part == "verify" {
		var rows []int
		for k := range r.Verify.Rows {
			n, _ := strconv.Atoi(k)
			rows = append(rows, n)
		}
		slices.Sort(rows)
		for _, n := range rows {
			k := strconv.Itoa(n)
			fmt.Fprintf(w, "verify    %2d rows: %.3f ms = %.2f x a 1-row step, %.2f x the larger of that and its multiply-adds at the peak\n", n, r.Verify.Ms[k], r.Verify.Rows[k], r.Verify.Bound[k])
		}
	}
	if d := r.Draft; d != nil && (all || part == "verify") {
		fmt.Fprintf(w, "draft     %.3f ms = %.2f of a 1-row step (MTP layer and LM head)\n", d.Ms, d.StepShare)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Heads)) {
		if d := r.Heads[name]; all || part == "verify" {
			fmt.Fprintf(w, "draft     %.3f ms = %.2f of a 1-row step (%s)\n", d.Ms, d.StepShare, name)
		}
	}
	if all || part == "prefill" {
		fmt.Fprintf(w, "prefill   %d tokens at %.0f tok/s = %.2f of the peak\n", r.Prefill.Tokens, r.Prefill.TokS, r.Prefill.RatioToPeak)
	}
	_, err := fmt.Fprintf(w, "memory    weights %.1f MB, caches %.1f MB, resident %.1f MB = %.2f of their sum\n",
		float64(r.Memory.Weights)/1e6, float64(r.Memory.Caches)/1e6, float64(r.Memory.Resident)/1e6, r.Memory.Ratio)
	return err
}
