package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/verify"
)

// entry is a line of a list.
type entry struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
}

func listCommand(o *options, use, short string, list func() []entry) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		Example: "  exacta " + use + "\n  exacta " + use + " --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries := list()
			if o.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{use: entries})
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
		return append(out, entry{"DIR", "a directory with config.json, *.safetensors and tokenizer.json"})
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
	cmd := listCommand(o, "rules", "list the acceptance rules", func() (out []entry) {
		for _, r := range verify.List() {
			out = append(out, entry{r.Name, r.Summary})
		}
		return out
	})
	cmd.Long = `rules lists what decides how many drafts of a step stand. Each can be simulated
(generate --simulate, strategies[].simulate in a configuration): the rule still runs,
and its outcome is then replaced by a drawn one, to measure speed at a given accept
length. Nothing about the output of a simulated rule is promised.`
	return cmd
}
