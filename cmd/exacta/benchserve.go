package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/experiments"
)

func newServeBenchCommand(o *options) *cobra.Command {
	b := experiments.BenchServeOptions{Config: experiments.DefaultServe()}
	var draft string
	var k int
	cmd := &cobra.Command{
		Use: "serve", Short: "put load on a server: errors, latency, memory, speed against the engine alone", Args: cobra.NoArgs,
		Long: `serve asks a server for many answers over many connections, each asking one at a time,
as streams. Without --url the server is in this process, on the embedded model unless
--model says otherwise: then memory and goroutines are told too, after a tenth of the
requests and near the end, and the same requests run on an engine alone, with as many
sequences at once.

--json prints {url, requests, connections, errors, first_error, seconds,
requests_per_s, tok_s, ttft_ms, latency_ms, ended_before_first_token (each: median, 90 and
99 percent, largest; the last of other requests, since a request was asked),
heap_mb, goroutines, goroutines_left, offline_tok_s, ratio_to_offline}. Exit code 1: a
request failed.`,
		Example: "  exacta bench serve\n  exacta bench serve --requests 200 --connections 32 --new-tokens 128 --model models/smollm2-135m --draft ngram\n  exacta bench serve --url http://127.0.0.1:8000",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if draft != "" {
				b.Config.Strategies = []experiments.ServeStrategy{{Drafter: draft, K: k}}
			}
			b.Config.K = k
			if b.Config.Context == 0 {
				b.Config.Context = b.PromptTokens + b.NewTokens
			}
			p := newProgress(cmd.ErrOrStderr())
			r, err := experiments.RunBenchServe(cmd.Context(), b, p.show)
			p.clear()
			if err != nil {
				return err
			}
			if o.json {
				err = printJSON(cmd.OutOrStdout(), r)
			} else {
				err = printServeBench(cmd, r)
			}
			if err == nil && r.Errors > 0 {
				err = errFalse
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&b.URL, "url", "", "a server (default: one in this process)")
	flags.StringVar(&b.Config.Model, "model", b.Config.Model, "model of the server in this process")
	flags.IntVar(&b.Config.Threads, "threads", 0, "its CPU threads (default: all cores)")
	flags.IntVar(&b.Config.Sequences, "sequences", b.Config.Sequences, "sequences that it runs at once")
	flags.IntVar(&b.Config.Engine.Pages, "pages", 0, "its KV pages (default: enough for all sequences)")
	flags.StringVar(&b.Config.Engine.Policy, "policy", b.Config.Engine.Policy, "its order of admission")
	flags.StringVar(&b.Config.Records, "records", "", "keep its records in a directory below this one, for exacta stats --load")
	flags.StringVar(&draft, "draft", "", "its draft strategy (default: mtp where the model has a module, else ngram)")
	flags.IntVar(&k, "k", 3, "drafts per step")
	flags.IntVar(&b.Requests, "requests", 10_000, "requests in all")
	flags.IntVar(&b.Connections, "connections", 1000, "open connections")
	flags.IntVar(&b.PromptTokens, "prompt-tokens", 16, "tokens of a prompt")
	flags.IntVar(&b.NewTokens, "new-tokens", 16, "tokens of an answer")
	return cmd
}

func printServeBench(cmd *cobra.Command, r *experiments.BenchServe) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%d requests over %d connections, server %s: %d errors", r.Requests, r.Connections, r.URL, r.Errors)
	if r.FirstError != "" {
		fmt.Fprintf(w, " (%s)", r.FirstError)
	}
	fmt.Fprintf(w, "\nspeed      %.0f requests/s, %.0f tok/s, %.1f s in all\n", r.RequestsS, r.TokS, r.Seconds)
	fmt.Fprintf(w, "ttft       median %.0f ms, 90 %% %.0f ms, 99 %% %.0f ms, largest %.0f ms\n", r.TTFT[0], r.TTFT[1], r.TTFT[2], r.TTFT[3])
	_, err := fmt.Fprintf(w, "latency    median %.0f ms, 90 %% %.0f ms, 99 %% %.0f ms, largest %.0f ms\n", r.Latency[0], r.Latency[1], r.Latency[2], r.Latency[3])
	fmt.Fprintf(w, "fairness   of 99 %% of requests %.0f others ended before the first token, of all %.0f; in order of arrival it is below %d\n", r.Passed[2], r.Passed[3], r.Connections)
	if r.OfflineTokS == 0 {
		return err
	}
	fmt.Fprintf(w, "memory     heap %.1f MB after a tenth, %.1f MB near the end\n", r.HeapMB[0], r.HeapMB[1])
	fmt.Fprintf(w, "goroutines %d after a tenth, %d near the end, %d left when all has ended\n", r.Goroutines[0], r.Goroutines[1], r.Left)
	_, err = fmt.Fprintf(w, "engine     %.0f tok/s alone: the server has %.2f of it\n", r.OfflineTokS, r.Ratio)
	return err
}
