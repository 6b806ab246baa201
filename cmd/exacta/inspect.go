package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/experiments"
)

func newInspectCommand(o *options) *cobra.Command {
	var q experiments.InspectOptions
	cmd := &cobra.Command{
		Use: "inspect MODEL", Short: "say what a model is, what it lacks, and the memory of a run", Args: cobra.ExactArgs(1),
		Long: `inspect reads the headers of a model and says what it is, whether exacta runs it and
what is missing, and how much memory a run on the CPU would hold: it lays the run out
without reading weights or using the memory. --values reads every weight and reports
those that are no finite numbers.

--json prints {model, format: safetensors, gguf or random, model_type, architecture,
runs, problems: texts, hash, config: {layers, full_attention_layers,
linear_attention_layers, hidden_size, intermediate_size, heads, kv_heads, head_dim,
vocab, context, tied_embeddings}, files: [{name, bytes}], stored_bytes, parameters,
types and parts: [{name, tensors, parameters, bytes}] by stored type and by what tensors
are for, tokenizer: {tokens, special, before, eos, chat_template} or null, drafts: names
of the modules that come with the model, missing, unused and left_out: names of tensors
(or files), unread: keys of the configuration, memory: {context, sequences, draft,
weights, kv, state, activations, tables, total} in bytes}. config and memory are there
where the model could be opened.

The exit code is 0 for a model that runs, 1 for one that does not.`,
		Example: "  exacta inspect models/smollm2-135m\n  exacta inspect SmolLM2-135M-Instruct.Q4_1.gguf --context 8192 --sequences 4\n  exacta inspect embedded --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Model = args[0]
			in, err := experiments.Inspect(cmd.Context(), q)
			if err != nil {
				return err
			}
			if o.json {
				err = printJSON(cmd.OutOrStdout(), in)
			} else {
				err = printInspection(cmd.OutOrStdout(), in)
			}
			if err == nil && !in.Runs {
				err = errFalse
			}
			return err
		},
	}
	cmd.Flags().IntVar(&q.Context, "context", 0, "tokens of a sequence, for the memory (default: 4096, or the model's limit)")
	cmd.Flags().IntVar(&q.Sequences, "sequences", 1, "sequences at once, for the memory")
	cmd.Flags().StringVar(&q.Draft, "draft", "", "strategy whose memory is counted too (default: mtp where the model has it)")
	cmd.Flags().IntVar(&q.Threads, "threads", 0, "CPU threads (default: all cores)")
	cmd.Flags().BoolVar(&q.Values, "values", false, "read every weight and report those that are not finite")
	complete(cmd, "draft", draft.Names())
	return cmd
}

// inspectLine writes one labelled line.
func inspectLine(w io.Writer, label, format string, args ...any) {
	fmt.Fprintf(w, "%-13s %s\n", label, fmt.Sprintf(format, args...))
}

func printInspection(w io.Writer, in *experiments.Inspection) error {
	var b strings.Builder
	inspectLine(&b, "model", "%s (%s)", filepath.Base(in.Model), in.Format)
	arch := in.ModelType
	if in.Architecture != "" {
		arch += ", " + in.Architecture
	}
	inspectLine(&b, "architecture", "%s", arch)
	if c := in.Config; c != nil {
		layers := fmt.Sprintf("%d layers", c.Layers)
		if c.LinearAttention > 0 {
			layers += fmt.Sprintf(" (%d linear, %d full attention)", c.LinearAttention, c.FullAttention)
		}
		inside := fmt.Sprintf("MLP %d", c.IntermediateSize)
		if c.Experts > 0 {
			inside = fmt.Sprintf("%d of %d experts of %d", c.ExpertsPerToken, c.Experts, c.ExpertSize)
			if c.IntermediateSize > 0 {
				inside += fmt.Sprintf(" or MLP %d", c.IntermediateSize)
			}
		}
		inspectLine(&b, "shape", "%s of width %d, %s, %d heads of %d over %d of keys, vocabulary %d, context %d",
			layers, c.HiddenSize, inside, c.Heads, c.HeadDim, c.KVHeads, c.Vocab, c.Context)
	}
	if len(in.Files) > 0 {
		inspectLine(&b, "weights", "%s parameters, %s in %d files", counted(in.Parameters), size(in.StoredBytes), len(in.Files))
		for i, t := range in.Types {
			inspectLine(&b, labelOnce("types", i), "%-17s %5d tensors %10s", t.Name, t.Tensors, size(t.Bytes))
		}
		for i, t := range in.Parts {
			inspectLine(&b, labelOnce("parts", i), "%-17s %5d tensors %10s  %s parameters", t.Name, t.Tensors, size(t.Bytes), counted(t.Parameters))
		}
	}
	if t := in.Tokenizer; t != nil {
		text := fmt.Sprintf("%d tokens, %d special, ends at %s", t.Tokens, t.Special, strings.Join(t.EOS, " "))
		if len(t.Before) > 0 {
			text += ", begins with " + strings.Join(t.Before, " ")
		}
		if !t.ChatTemplate {
			text += ", no chat template"
		}
		inspectLine(&b, "tokenizer", "%s", text)
	} else {
		inspectLine(&b, "tokenizer", "none")
	}
	inspectLine(&b, "drafts", "%s", orNone(in.Drafts))
	if m := in.Memory; m != nil {
		inspectLine(&b, "memory", "%s for %d x %d tokens, draft %s: weights %s, KV %s, state %s, activations %s, tables %s",
			size(m.Total), m.Sequences, m.Context, m.Draft, size(m.Weights), size(m.KV), size(m.State), size(m.Activations), size(m.Tables))
		if m.LeftInFiles > 0 {
			inspectLine(&b, "", "and %s of n-gram tables, which stay in their files: rows are read as they are looked up", size(m.LeftInFiles))
		}
	}
	for _, list := range []struct {
		label string
		names []string
	}{{"left out", in.LeftOut}, {"unused", in.Unused}, {"unread", in.Unread}, {"missing", in.Missing}} {
		if len(list.names) > 0 {
			inspectLine(&b, list.label, "%s", few(list.names))
		}
	}
	for i, text := range in.Problems {
		inspectLine(&b, labelOnce("problems", i), "%s", text)
	}
	runs := "yes"
	if !in.Runs {
		runs = "no"
	}
	inspectLine(&b, "runs", "%s", runs)
	_, err := io.WriteString(w, b.String())
	return err
}

// labelOnce is the label of the first line of a list.
func labelOnce(label string, i int) string {
	if i > 0 {
		return ""
	}
	return label
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none come with the model"
	}
	return strings.Join(names, ", ")
}

// few is the beginning of a list of names, and how many there are.
func few(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// size is a number of bytes for reading.
func size(n int64) string {
	switch {
	case n >= 10e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	}
	if n < 1e6 {
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// counted is a number of parameters for reading.
func counted(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.2f B", float64(n)/1e9)
	}
	if n < 1e6 {
		return fmt.Sprintf("%.1f k", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f M", float64(n)/1e6)
}
