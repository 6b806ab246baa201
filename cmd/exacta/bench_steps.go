package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/experiments"
)

func newBenchStepsCommand(o *options) *cobra.Command {
	var shape string
	b := experiments.StepBenchOptions{}
	cmd := &cobra.Command{
		Use: "steps", Short: "whole steps on a GPU by batch, rows and context, against the card's copy rate", Args: cobra.NoArgs,
		Long: `steps replays whole steps on a GPU back to back: tables, the target's pass, statistics and
acceptance, as one program, for every combination of batch, rows of a sequence and context.
The caches hold zeros. The bytes that a step must read (weights once, keys, values, states;
of experts those of every row, at most all there are)
by its time are put beside what the card's own large copies read and write, measured
before and after: floor is the time of those bytes at that rate, idle the share of the
time between one replay's end and the next one's start, x plain the time by that of one
row a sequence, peer ms what the other engine that was measured on such a card needs
for the step, and ratio that by ours. --draft adds turns of the loop: drafts, verification, commit and
all, of short sequences, against its turns without drafts.

--json prints {model, backend, layers, copy_bytes_per_s, steps}; each step has {batch,
rows, context, ms, idle, floor_ms, to_plain, peer: {engine, ms, ratio}, weight_bytes,
cache_bytes, bytes_per_s, ratio_to_copy, flop_per_s, tok_s, skipped, operations},
and, with --draft, loops of {draft, k, batch, ms, idle, to_plain, skipped}.`,
		Example: "  exacta bench steps --shape qwen3-8b --batch 1,8,32 --rows 1,4 --context 512\n  exacta bench steps --shape qwen3-8b --prefill 8192 --operations",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if shape != "" {
				b.Model = "random:" + shape
			}
			p := newProgress(cmd.ErrOrStderr())
			res, err := experiments.BenchSteps(cmd.Context(), b, p.show)
			p.clear()
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), res)
			}
			return printBenchSteps(cmd, res)
		},
	}
	cmd.Flags().StringVar(&b.Model, "model", "embedded", "embedded, random:SHAPE, or a directory")
	cmd.Flags().StringVar(&shape, "shape", "", "a shape with random weights, such as qwen3-8b (exacta models)")
	cmd.Flags().StringVar(&b.Backend, "backend", "cuda", "backend")
	addGPUMemory(cmd, &b.GPUMemory)
	addTrace(cmd, &b.Trace)
	cmd.Flags().IntVar(&b.Layers, "layers", 0, "cut a shape to its first layers (default: all)")
	cmd.Flags().IntSliceVar(&b.Batch, "batch", []int{1, 8, 32}, "sequences")
	cmd.Flags().IntSliceVar(&b.Rows, "rows", []int{1, 4}, "rows of each sequence: 1 and the drafts")
	cmd.Flags().IntSliceVar(&b.Context, "context", []int{512}, "tokens before the step")
	cmd.Flags().IntSliceVar(&b.Prefill, "prefill", nil, "rows of chunks of a prompt to measure, too")
	cmd.Flags().IntVar(&b.Replays, "replays", 20, "replays of each step")
	cmd.Flags().StringVar(&b.Draft, "draft", "", "measure the loop with drafts of mtp or mtp-int4, too")
	cmd.Flags().IntVar(&b.K, "k", 3, "drafts of --draft")
	complete(cmd, "draft", experiments.Drafts)
	cmd.Flags().BoolVar(&b.Operations, "operations", false, "time the operations of each step, too")
	cmd.MarkFlagsMutuallyExclusive("model", "shape")
	completeModel(cmd)
	complete(cmd, "shape", model.ShapeNames())
	return cmd
}

func printBenchSteps(cmd *cobra.Command, r *experiments.StepBench) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s, %d layers, on %s (%s, %s); copies move %.2f and %.2f TB/s\n", r.Model, r.Layers, r.Info.Name, r.Info.Device, r.Info.Kernels, r.CopyBytesS[0]/1e12, r.CopyBytesS[1]/1e12)
	fmt.Fprintf(w, "%6s %6s %8s %9s %10s %10s %9s %7s %8s %6s %7s %8s %6s\n", "batch", "rows", "context", "ms", "tok/s", "GB read", "floor ms", "of copy", "TFLOP/s", "idle", "x plain", "peer ms", "ratio")
	for _, s := range r.Steps {
		if s.Skipped != "" {
			fmt.Fprintf(w, "%6d %6d %8d  %s\n", s.Batch, s.Rows, s.Context, s.Skipped)
			continue
		}
		plain, peer := "-", "       -      -"
		if s.ToPlain > 0 {
			plain = fmt.Sprintf("%.3f", s.ToPlain)
		}
		if p := s.Peer; p != nil {
			peer = fmt.Sprintf("%8.2f %6.2f", p.Ms, p.Ratio)
		}
		fmt.Fprintf(w, "%6d %6d %8d %9.3f %10.0f %10.2f %9.3f %7.2f %8.1f %5.1f%% %7s %s\n", s.Batch, s.Rows, s.Context, s.Ms, s.TokS, float64(s.Weights+s.Caches)/1e9, s.FloorMs, s.RatioToCopy, s.FLOPS/1e12, 100*s.Idle, plain, peer)
		for _, c := range s.Operations {
			fmt.Fprintf(w, "%30s %5d x %9.4f ms\n", c.Name, c.Count, c.Ms)
		}
	}
	for i, l := range r.Loops {
		if i == 0 {
			fmt.Fprintf(w, "\n%-10s %4s %6s %9s %6s %8s\n", "the loop", "k", "batch", "ms", "idle", "x plain")
		}
		if l.Skipped != "" {
			fmt.Fprintf(w, "%-10s %4d %6d  %s\n", l.Draft, l.K, l.Batch, l.Skipped)
			continue
		}
		fmt.Fprintf(w, "%-10s %4d %6d %9.3f %5.1f%% %8.3f\n", l.Draft, l.K, l.Batch, l.Ms, 100*l.Idle, l.ToPlain)
	}
	return nil
}
