package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/experiments"
)

func newLoadBenchCommand(o *options) *cobra.Command {
	var b experiments.LoadBenchOptions
	var megabytes int64
	cmd := &cobra.Command{
		Use: "load", Short: "loading a checkpoint from the page cache against a plain copy of its bytes", Args: cobra.NoArgs,
		Long: `load opens a checkpoint in several rounds; each copies its bytes into fresh memory with
all threads, and then loads it. Without --model it writes a checkpoint of made-up weights
into the directory for temporary files, and removes it.

With --cold each round goes on to drop the files from the page cache, read them by
several streams, drop them again and load them from the disk; Linux alone does that.

--json prints {model, kernels, threads, rounds, bytes, copy_bytes_per_s,
load_bytes_per_s, ratio_to_copy, weights_bytes, peak_resident_bytes, peak_ratio} and, with
--cold, {disk_bytes_per_s, cold_bytes_per_s, ratio_to_disk}: the best rates, the median ratio, and the peak of the process's resident size in bytes and
relative to the weights that it holds in the end.`,
		Example: "  exacta bench load\n  exacta bench load --cold\n  exacta bench load --megabytes 500 --shards 3 --json\n  exacta bench load --model models/qwen3-8b",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b.Bytes = megabytes * 1e6
			p := newProgress(cmd.ErrOrStderr())
			r, err := experiments.BenchLoad(cmd.Context(), b, p.show)
			p.clear()
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if o.json {
				return printJSON(w, r)
			}
			fmt.Fprintf(w, "%s (%s, %d threads), %d rounds: best rates, median ratio\n", r.Model, r.Kernels, r.Threads, r.Rounds)
			fmt.Fprintf(w, "copy      %s at %.2f GB/s\n", size(r.Bytes), r.CopyBytesS/1e9)
			fmt.Fprintf(w, "load      %.2f GB/s = %.2f of the copy\n", r.LoadBytesS/1e9, r.RatioToCopy)
			if b.Cold {
				fmt.Fprintf(w, "disk      %.2f GB/s by several streams\n", r.DiskBytesS/1e9)
				fmt.Fprintf(w, "cold      %.2f GB/s = %.2f of the disk\n", r.ColdBytesS/1e9, r.RatioToDisk)
			}
			_, err = fmt.Fprintf(w, "memory    peak resident %s = %.2f of the weights\n", size(r.PeakResident), r.ResidentRatio)
			return err
		},
	}
	cmd.Flags().StringVar(&b.Model, "model", "", "a directory or GGUF file (default: made-up weights)")
	cmd.Flags().BoolVar(&b.Cold, "cold", false, "measure loading from the disk, too")
	cmd.Flags().Int64Var(&megabytes, "megabytes", 2000, "size of the made-up weights, about")
	cmd.Flags().IntVar(&b.Shards, "shards", 8, "files of the made-up weights")
	cmd.Flags().StringVar(&b.Kernels, "kernels", "", "CPU kernel set")
	cmd.Flags().IntVar(&b.Threads, "threads", 0, "CPU threads (default: all cores)")
	cmd.Flags().IntVar(&b.Rounds, "rounds", 5, "interleaved rounds")
	return cmd
}
