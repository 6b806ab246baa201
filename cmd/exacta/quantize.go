package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/experiments"
)

func newQuantizeCommand(o *options) *cobra.Command {
	q := experiments.QuantizeOptions{}
	cmd := &cobra.Command{
		Use: "quantize HEAD", Short: "make a draft head of 4 bits and compare it with the one it is made from", Args: cobra.ExactArgs(1),
		ValidArgs: experiments.QuantizeHeads,
		Long: `quantize writes a draft head whose matrices have 4 bits, with a BF16 scale (and a zero
point) for each group of columns, and an LM head of its own, over the most frequent
tokens of a corpus if --vocab asks for fewer than all. HEAD is mtp (the module of the
model), eagle, eagle3, medusa, dflash or dspark; --from names a head that doesn't come
with the model.
A run drafts with it by "drafter: HEAD" with "config: {head: DIR}", mtp-tree and
eagle3-tree likewise; the BF16 model verifies every token, so the output stays what it
is.

gptq calibrates with inputs that are recorded while the head drafts: for every second
prompt of the model, or for pieces of the corpus. rtn rounds to nearest. Both heads
then continue the other prompts in turn (all of them with a corpus).

--json prints {model, head, out, method, group, zero_points, vocab, calibration_tokens,
prompts, k, bytes, accepted, accept_length, draft_ms (each {bf16, int4, ratio}), exact}.
bytes counts what a draft reads, the LM head included; exact says that both heads gave
the same tokens, and where it is false the exit code is 1.`,
		Example: `  exacta quantize mtp --out heads/mtp4
  exacta quantize eagle3 --group 32 --zero-points --method rtn --out heads/eagle4
  exacta quantize mtp --vocab 2048 --corpus corpus.txt --out heads/mtp4 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Head = args[0]
			p := newProgress(cmd.ErrOrStderr())
			res, err := experiments.Quantize(cmd.Context(), q, p.show)
			p.clear()
			if err != nil {
				return err
			}
			if o.json {
				err = printJSON(cmd.OutOrStdout(), res)
			} else {
				err = printQuantized(cmd, res)
			}
			if err == nil && !res.Exact {
				err = errFalse
			}
			return err
		},
	}
	cmd.Flags().StringVar(&q.Model, "model", registry.Embedded, registry.Names)
	cmd.Flags().StringVar(&q.From, "from", "", "the BF16 head: a directory (default: the one that comes with the model)")
	cmd.Flags().StringVar(&q.Backend, "backend", "cpu", "backend")
	cmd.Flags().StringVar(&q.Kernels, "kernels", "", "CPU kernel set")
	cmd.Flags().IntVar(&q.Threads, "threads", 0, "CPU threads (default: all cores)")
	cmd.Flags().IntVar(&q.Group, "group", 64, "columns that share a scale: 32, 64 or 128")
	cmd.Flags().BoolVar(&q.ZeroPoints, "zero-points", false, "a zero point for each group (default: symmetric)")
	cmd.Flags().StringVar(&q.Method, "method", "gptq", "one of "+strings.Join(experiments.QuantizeMethods, ", "))
	cmd.Flags().IntVar(&q.Vocab, "vocab", 0, "tokens of the LM head, by frequency in the corpus (0: all)")
	cmd.Flags().StringVar(&q.Corpus, "corpus", "", "text file to count tokens in and to calibrate with")
	cmd.Flags().IntVar(&q.Pieces, "pieces", 48, "pieces of the corpus to calibrate with, of 96 tokens and what is generated")
	cmd.Flags().StringVar(&q.Out, "out", "", "directory to write the head to")
	cmd.Flags().IntVar(&q.K, "k", 3, "drafts per step")
	cmd.Flags().IntVar(&q.Tokens, "tokens", 128, "tokens generated per prompt")
	cmd.Flags().IntVar(&q.Limit, "limit", 0, "prompts to judge by (0: all)")
	_ = cmd.MarkFlagRequired("out")
	_ = cmd.MarkFlagDirname("out")
	completeModel(cmd)
	complete(cmd, "method", experiments.QuantizeMethods)
	complete(cmd, "group", []string{"32", "64", "128"})
	return cmd
}

func printQuantized(cmd *cobra.Command, r *experiments.QuantizeResult) error {
	w := cmd.OutOrStdout()
	zero := "symmetric"
	if r.ZeroPoints {
		zero = "zero points"
	}
	fmt.Fprintf(w, "%s of %s in 4 bits: %s, group %d, %s, LM head of %d tokens, in %s\n", r.Head, r.Model, r.Method, r.Group, zero, r.Vocab, r.Out)
	fmt.Fprintf(w, "size       %.0f bytes = %.3f of BF16\n", r.Bytes.Int4, r.Bytes.Ratio)
	fmt.Fprintf(w, "accepted   %.0f drafts = %.4f of the BF16 head's %.0f; accept length %.3f and %.3f (%d held-out prompts, k = %d)\n",
		r.Accepted.Int4, r.Accepted.Ratio, r.Accepted.BF16, r.PerStep.Int4, r.PerStep.BF16, r.Prompts, r.K)
	fmt.Fprintf(w, "drafting   %.3f ms a step = %.2f of the BF16 head's\n", r.DraftMs.Int4, r.DraftMs.Ratio)
	same := "the same tokens from both heads"
	if !r.Exact {
		same = "DIFFERENT tokens from the two heads: the engine is not exact"
	}
	_, err := fmt.Fprintf(w, "output     %s\n", same)
	return err
}
