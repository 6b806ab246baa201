package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/experiments"
)

func newAuditCommand(o *options) *cobra.Command {
	var only string
	cmd := &cobra.Command{
		Use: "audit RUN --only tokens", Short: "prove a run's outputs by replaying it plainly", Args: cobra.ExactArgs(1),
		Long: `audit --only tokens replays a run's prompts by plain decoding of one sequence and
compares every token, and the hash of every logits row behind one, bit for bit. The
requests that an interrupted run left unfinished are compared as far as they go.
Exit code 0: all equal; 1: not, or not checkable here.

--json prints {tokens: {verdict: pass, fail or not checkable, why, run, requests,
tokens, skipped, unfinished, divergences: [{request, output, position, token, plain,
...}]}}.`,
		Example: "  exacta audit runs/quickstart-20260101-120000 --only tokens",
		RunE: func(cmd *cobra.Command, args []string) error {
			if only != "tokens" {
				return fmt.Errorf("--only %q; this version has the audit: tokens", only)
			}
			p := newProgress(cmd.ErrOrStderr())
			res, err := experiments.AuditTokens(cmd.Context(), args[0], p.show)
			p.clear()
			if err != nil {
				return err
			}
			if o.json {
				err = printJSON(cmd.OutOrStdout(), map[string]any{"tokens": res})
			} else {
				err = printAudit(cmd, res)
			}
			if err == nil && res.Verdict != experiments.Pass {
				err = errFalse
			}
			return err
		},
	}
	cmd.Flags().StringVar(&only, "only", "tokens", "which audit to run: tokens")
	complete(cmd, "only", []string{"tokens"})
	cmd.ValidArgsFunction = directories
	return cmd
}

func printAudit(cmd *cobra.Command, res *experiments.TokensAudit) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "tokens: %s (run %s: %d requests, %d tokens and logits rows compared with plain decoding, %d requests skipped, %d cut short by the end of the run)\n",
		res.Verdict, res.Run, res.Requests, res.Tokens, res.Skipped, res.Unfinished)
	if res.Why != "" {
		fmt.Fprintln(w, "  "+res.Why)
	}
	for i, d := range res.Divergences {
		if i == 20 {
			fmt.Fprintf(w, "  ... and %d more\n", len(res.Divergences)-i)
			break
		}
		fmt.Fprintln(w, "  "+d.String())
	}
	return nil
}
