package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/verify"
)

// entry is a line of a list.
type entry struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
}

// ruleEntry is a line of the rules.
type ruleEntry struct {
	entry
	// Lossy says that the output is not the target's.
	Lossy bool `json:"lossy"`
	// Settings are the rule's settings with their defaults.
	Settings verify.Settings `json:"settings,omitempty"`
}

func listCommand(o *options, use, short string, list func() []entry) *cobra.Command {
	return lister(o, use, short, func() ([]entry, []entry) { return list(), list() })
}

// lister is the command of a list: entries are its lines, full what --json prints.
func lister[T any](o *options, use, short string, list func() (entries []entry, full []T)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		Example: "  exacta " + use + "\n  exacta " + use + " --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, full := list()
			if o.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{use: full})
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, e := range entries {
				fmt.Fprintf(w, "%s\t%s\n", e.Name, e.Summary)
			}
			return w.Flush()
		},
	}
}

func newModelsCommand(o *options) *cobra.Command {
	return listCommand(o, "models", "list the models that --model knows by name", func() (out []entry) {
		for _, m := range registry.List() {
			out = append(out, entry{m.Name, m.Summary})
		}
		dir := "a directory with config.json, *.safetensors and tokenizer.json, of model_type " + strings.Join(checkpoint.ModelTypes(), ", ")
		return append(out, entry{"DIR", dir},
			entry{"FILE.gguf", "a GGUF file, with its own configuration and tokenizer"},
			entry{"ORG/NAME", "a model in the Hugging Face cache; exacta pull fetches one"})
	})
}

func newDraftersCommand(o *options) *cobra.Command {
	return listCommand(o, "drafters", "list the draft strategies", func() (out []entry) {
		for _, d := range draft.List() {
			out = append(out, entry{d.Name, d.Summary})
		}
		return out
	})
}

func newRulesCommand(o *options) *cobra.Command {
	cmd := lister(o, "rules", "list the acceptance rules", func() (lines []entry, full []ruleEntry) {
		for _, r := range verify.List() {
			e := ruleEntry{entry: entry{r.Name, r.Summary}, Lossy: r.Lossy()}
			if r.Settings != nil {
				e.Settings = r.Settings()
			}
			lines, full = append(lines, e.entry), append(full, e)
		}
		return lines, full
	})
	cmd.Long = `rules lists what decides how many drafts of a step stand. A rule with settings takes
them behind its name: typical:epsilon=0.2,delta=0.4 (--json lists them with their
defaults). What is LOSSY accepts drafts that the target would not have said: its
output is not the target's, and is stamped so in every record and table.

Each rule can be simulated (generate --simulate, strategies[].simulate in a
configuration): it still runs, and its outcome is then replaced by a drawn one, to
measure speed at a given accept length. Nothing about the output of a simulated rule
is promised.`
	return cmd
}
