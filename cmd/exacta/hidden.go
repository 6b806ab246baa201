package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/experiments"
)

func newHiddenCommand(o *options) *cobra.Command {
	var f modelFlags
	h := experiments.HiddenOptions{}
	var shard int
	cmd := &cobra.Command{
		Use: "hidden", Short: "export hidden states, tokens and largest logits, to train draft heads on", Args: cobra.NoArgs,
		Long: `hidden runs sequences through a model and writes, for each position, the token, the
final hidden state, and on request the residual stream after some layers (--taps) and
the largest logits (--top-k). The sequences are the model's prompts, those of a JSONL
file (--prompts), a text cut into pieces (--text), or arrays of token ids, one a line
(--ids). With --new the model continues each by tokens of its own, greedily or at
--temperature; without, it reads what it is given. The bits depend neither on what runs
beside a sequence nor on chunks or threads.

The directory gets hidden-00001.safetensors, ..., each with whole sequences: tokens and
starts (I32; sequence i is rows starts[i] to starts[i+1]), prompts (I32, how many tokens
of each were given), hidden (BF16), taps (BF16, side by side), top_ids (I32) and top_logits
(F32). The metadata of each says what model, backend and settings it comes from. Ctrl-C
keeps the sequences that are finished. export.json, which is written last, is what --json
prints: {format, model, model_hash, backend, arithmetic, version, revision, hidden (width),
taps, top_k, temperature, seed, sequences, tokens, continued (tokens of the model's own),
out, files: [{name, sequences, tokens, bytes}]}.`,
		Example: `  exacta hidden --out states
  exacta hidden --text corpus.txt --length 512 --taps 4,12,20 --out states
  exacta hidden --ids openings.jsonl --new 256 --taps 4,12,20 --out rollouts --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h.Model, h.Backend, h.Kernels, h.Threads, h.GPUMemory = f.model, f.backend, f.kernels, f.threads, f.gpuMemory
			h.ShardBytes, h.Version = int64(shard)<<20, version()
			p := newProgress(cmd.ErrOrStderr())
			res, err := experiments.Hidden(cmd.Context(), h, p.show)
			p.clear()
			if err != nil && !errors.Is(err, experiments.ErrInterrupted) || res == nil {
				return err
			}
			if o.json {
				return errors.Join(printJSON(cmd.OutOrStdout(), res), err)
			}
			return errors.Join(printHidden(cmd, res), err)
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&h.Prompts, "prompts", "", "JSONL file of prompts (default: the model's own)")
	fl.StringVar(&h.Text, "text", "", "text file, cut into pieces of --length tokens")
	fl.StringVar(&h.IDs, "ids", "", "file with an array of token ids on each line")
	fl.IntVar(&h.Length, "length", 512, "tokens of a piece of text; of a longer prompt its last ones are taken")
	fl.IntVar(&h.Limit, "limit", 0, "sequences (0: all)")
	fl.IntVar(&h.New, "new", 0, "tokens that the model continues each sequence by")
	fl.Float32Var(&h.Temperature, "temperature", 0, "of the continuations; 0 is greedy")
	fl.Uint64Var(&h.Seed, "seed", 0, "seed of the first sequence; the others' are one larger each")
	fl.BoolVar(&h.IgnoreEOS, "ignore-eos", false, "continue past the end of text")
	fl.IntSliceVar(&h.Taps, "taps", nil, "numbers of layers after which the residual stream is exported, such as 4,12,20")
	fl.IntVar(&h.TopK, "top-k", 0, "largest logits of each position")
	fl.IntVar(&h.Sequences, "sequences", 16, "sequences that run at once")
	fl.IntVar(&h.Chunk, "chunk", 512, "most rows of a sequence in a step")
	fl.IntVar(&h.Rows, "rows", 1024, "rows of prompts in a step; a GPU wants many")
	fl.IntVar(&shard, "shard-mib", 512, "size of a shard in MiB; its last sequence may go beyond")
	fl.StringVar(&h.Out, "out", "", "directory to write to")
	_ = cmd.MarkFlagRequired("out")
	_ = cmd.MarkFlagDirname("out")
	cmd.MarkFlagsMutuallyExclusive("prompts", "text", "ids")
	return cmd
}

func printHidden(cmd *cobra.Command, r *experiments.HiddenResult) error {
	var size int64
	for _, f := range r.Files {
		size += f.Bytes
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d sequences, %d tokens (%d the model's own), %.1f MiB in %d files in %s\n",
		r.Sequences, r.Tokens, r.Continued, float64(size)/(1<<20), len(r.Files), r.Out)
	return err
}
