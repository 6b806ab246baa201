package main

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/internal/disk"
)

// formats are the formats that are written, with what of a run they are of.
var formats = map[string]func(dir, of string, out *bytes.Buffer) error{
	"vllm-bench": func(dir, of string, out *bytes.Buffer) error {
		b, err := experiments.ExportBench(dir, of)
		if err == nil {
			err = b.Write(out)
		}
		return err
	},
	"spec-bench": func(dir, of string, out *bytes.Buffer) error {
		answers, err := experiments.ExportAnswers(dir, of)
		if err == nil {
			err = outside.WriteAnswers(out, answers)
		}
		return err
	},
}

func newExportCommand(*options) *cobra.Command {
	var format, of, file string
	cmd := &cobra.Command{
		Use: "export RUN", Short: "write a run's results as another tool would have", Args: cobra.ExactArgs(1),
		Long: `export writes, of a load experiment, a cell (TARGET.POINT.rN) as the JSON of vllm bench
serve with --save-detailed; of a run of strategies, a point of one sequence in flight as
answers of Spec-Bench, a choice for each round. exacta report and exacta audit --results
read both.`,
		Example: `  exacta export runs/points13 --format vllm-bench --of mtp.1k-8.r0 --out mtp.json
  exacta export runs/mine --format spec-bench --of 1-mtp.k4.greedy.c1 > answers.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			write := formats[format]
			if write == nil {
				return fmt.Errorf("--format %q; it is vllm-bench or spec-bench", format)
			}
			var out bytes.Buffer
			if err := write(args[0], of, &out); err != nil {
				return err
			}
			if file != "" {
				return disk.WriteWhole(file, out.Bytes())
			}
			_, err := cmd.OutOrStdout().Write(out.Bytes())
			return err
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "vllm-bench or spec-bench")
	cmd.Flags().StringVar(&of, "of", "", "the cell or the point that is written")
	cmd.Flags().StringVar(&file, "out", "", "file to write (default: print)")
	complete(cmd, "format", []string{"spec-bench", "vllm-bench"})
	cmd.ValidArgsFunction = directories
	return cmd
}
