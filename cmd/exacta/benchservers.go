package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/experiments"
)

func newServersBenchCommand(o *options) *cobra.Command {
	b := experiments.BenchServersOptions{}
	var servers []string
	cmd := &cobra.Command{
		Use: "servers", Short: "the same requests to several servers of the same weights, side by side", Args: cobra.NoArgs,
		Long: `servers asks each server the same requests, as streams of text completions with token ids
as prompts, with as many clients as --concurrency says. All servers take their turns in
each round, after one that warms up; each round has other prompts, so that no cache
answers. Speeds are medians over rounds, and a ratio is the median of the rounds' ratios
of the first server to another, with the least and the largest in brackets: above 1 the
first server is ahead. The servers must run already, on the same cores.

--json prints {servers, rounds, prompt_tokens, new_tokens, levels}; a level has
{concurrency, tok_s, ttft_ms, ratio (each: median, least, largest)} by server. A request
that fails ends it with exit code 2.`,
		Example: "  exacta bench servers --server exacta=http://127.0.0.1:8000 --server llama.cpp=http://127.0.0.1:8080 --concurrency 1,4,8,16,32",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range servers {
				name, url, ok := strings.Cut(s, "=")
				if !ok || name == "" || url == "" {
					return fmt.Errorf("--server %q; it must be NAME=URL", s)
				}
				b.Servers = append(b.Servers, experiments.NamedServer{Name: name, URL: url})
			}
			p := newProgress(cmd.ErrOrStderr())
			r, err := experiments.RunBenchServers(cmd.Context(), b, p.show)
			p.clear()
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), r)
			}
			return printServers(cmd, r)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&servers, "server", nil, "a server as NAME=URL; the others are compared with the first (repeat)")
	flags.IntSliceVar(&b.Concurrency, "concurrency", []int{1, 4, 8, 16, 32}, "clients at once")
	flags.IntVar(&b.Rounds, "rounds", 3, "interleaved rounds")
	flags.IntVar(&b.Each, "each", 2, "requests of each client in a round")
	flags.IntVar(&b.PromptTokens, "prompt-tokens", 64, "tokens of a prompt")
	flags.IntVar(&b.NewTokens, "new-tokens", 64, "tokens of an answer")
	return cmd
}

func printServers(cmd *cobra.Command, r *experiments.BenchServers) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "clients")
	for _, s := range r.Servers {
		fmt.Fprintf(w, "\t%s tok/s\tttft ms", s.Name)
	}
	for _, s := range r.Servers[1:] {
		fmt.Fprintf(w, "\tx %s", s.Name)
	}
	fmt.Fprintln(w)
	for _, l := range r.Levels {
		fmt.Fprint(w, l.Concurrency)
		for i := range r.Servers {
			fmt.Fprintf(w, "\t%.0f\t%.0f", l.TokS[i], l.TTFT[i])
		}
		for _, q := range l.Ratio[1:] {
			fmt.Fprintf(w, "\t%.2f [%.2f, %.2f]", q[0], q[1], q[2])
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
