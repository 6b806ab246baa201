package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/experiments"
)

// outsideFlags are the flags of an audit of another engine.
type outsideFlags struct {
	modelFlags
	endpoint, plain, results, prompts, concurrency, drafter string
	requests, maxTokens, k                                  int
	declared, nearTie                                       float64
}

// keyVariable names the environment variable with the bearer token of an
// endpoint, which no command line should hold.
const keyVariable = "EXACTA_ENDPOINT_KEY"

const outsideHelp = `

Another engine: --endpoint URL audits a server that speaks the OpenAI interface, with
the counters of vLLM, SGLang and llama.cpp where it has them; --model names the same
weights. It sends greedy requests at each --concurrency, reads every output again with
the model, and holds counters, answers and the arrival of the stream to each other.
--results FILE audits a result of vllm bench serve, SGLang's bench_serving or
Spec-Bench. ` + keyVariable + ` is sent as bearer token.

With --endpoint, --json prints {server, tokens, counts, work, figures (by level),
judged, eight_percent (which forms of an acceptance that is 8 % too high show from
outside)}; with --results {file, format, rows, tokens, counts, work, figures}.`

// addOutside gives the audit command the flags of other engines. With one of
// them it takes no RUN.
func addOutside(cmd *cobra.Command, o *options) {
	f := &outsideFlags{}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.endpoint, "endpoint", "", "audit the server at this address, such as http://localhost:8000, instead of a run")
	fl.StringVar(&f.plain, "plain", "", "with --endpoint: a server of the same model without speculation, to compare times with")
	fl.StringVar(&f.results, "results", "", "audit this result file of another engine's benchmark instead of a run")
	fl.StringVar(&f.prompts, "prompts", "", "with --endpoint: JSONL file of prompts (default: those of the model)")
	fl.IntVar(&f.requests, "requests", 16, "with --endpoint: requests at each level of concurrency")
	fl.StringVar(&f.concurrency, "concurrency", "1,4,16", "with --endpoint: requests in flight, level by level")
	fl.IntVar(&f.maxTokens, "max-tokens", 128, "with --endpoint: most tokens of an answer")
	fl.IntVar(&f.k, "k", 0, "with --endpoint or --results: the draft length, where the server doesn't tell")
	fl.Float64Var(&f.declared, "declared", 0, "with --endpoint: the accept length that is claimed, or that a simulation was set to, bonus included")
	fl.StringVar(&f.drafter, "drafter", "", "with --endpoint: lookup says that drafts are looked up in the request's own text")
	fl.Float64Var(&f.nearTie, "near-tie", 4, "with --endpoint: units of BF16 rounding within which a token is a near tie")
	complete(cmd, "drafter", []string{"lookup"})
	cmd.MarkFlagsMutuallyExclusive("endpoint", "results")
	args, run := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, a []string) error {
		if f.endpoint == "" && f.results == "" {
			return args(cmd, a)
		}
		if len(a) > 0 {
			return fmt.Errorf("audit takes a RUN or one of --endpoint and --results, not both (got %q)", a[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, a []string) error {
		if f.endpoint == "" && f.results == "" {
			return run(cmd, a)
		}
		return f.run(cmd, o)
	}
	cmd.Long += outsideHelp
	cmd.Example += `
  exacta audit --endpoint http://localhost:8000 --model DIR --concurrency 1,4
  exacta audit --results vllm-bench.json`
}

// run audits a server or a file.
func (f *outsideFlags) run(cmd *cobra.Command, o *options) error {
	opt := outside.Options{K: f.k, Declared: f.declared, NearTie: f.nearTie, Lookup: f.drafter == "lookup"}
	if err := f.valid(); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if f.results != "" {
		res, err := outside.AuditFile(f.results, opt)
		if err != nil {
			return err
		}
		if !o.json {
			fmt.Fprintf(w, "%s: %s, %d rows\n", res.File, res.Format, res.Rows)
		}
		return finish(w, o, res, res.Reports(), audit.Fail)
	}
	levels, err := parseLevels(f.concurrency)
	if err != nil {
		return err
	}
	p := newProgress(cmd.ErrOrStderr())
	res, err := experiments.AuditEndpoint(cmd.Context(), experiments.EndpointOptions{
		Endpoint: f.endpoint, Plain: f.plain, Key: os.Getenv(keyVariable), Model: f.model, Backend: f.backend, Kernels: f.kernels, Threads: f.threads, GPUMemory: f.gpuMemory,
		Prompts: f.prompts, Requests: f.requests, MaxTokens: f.maxTokens, Concurrency: levels, Options: opt, Progress: p.show,
	})
	p.clear()
	if err != nil {
		return err
	}
	if !o.json {
		printServer(w, res)
	}
	return finish(w, o, res, res.Reports(), audit.NotCheckable, audit.Fail)
}

// valid refuses values that mean nothing.
func (f *outsideFlags) valid() error {
	switch {
	case f.requests < 1 || f.requests > 100000:
		return fmt.Errorf("--requests %d; want 1 to 100000", f.requests)
	case f.maxTokens < 1:
		return fmt.Errorf("--max-tokens %d; want at least 1", f.maxTokens)
	case f.k < 0 || f.k > 4096:
		return fmt.Errorf("--k %d; want 0 (the server tells) to 4096", f.k)
	case f.declared != 0 && !(f.declared >= 1):
		return fmt.Errorf("--declared %g; an accept length is at least 1", f.declared)
	case !(f.nearTie > 0):
		return fmt.Errorf("--near-tie %g; want more than 0", f.nearTie)
	case f.drafter != "" && f.drafter != "lookup":
		return fmt.Errorf("--drafter %q; it is lookup, or left out", f.drafter)
	}
	return nil
}

// parseLevels reads the levels of concurrency.
func parseLevels(list string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || n > 4096 {
			return nil, fmt.Errorf("--concurrency %q; want numbers from 1 to 4096, separated by commas", list)
		}
		out = append(out, n)
	}
	return out, nil
}

// finish prints the reports and gives the exit code: any of the verdicts that
// count as false, or no audit that passed.
func finish(w io.Writer, o *options, all any, reports []audit.Report, wrong ...audit.Outcome) error {
	passed, bad := false, false
	for i := range reports {
		if !o.json {
			fmt.Fprintln(w)
			if err := printReport(w, &reports[i]); err != nil {
				return err
			}
		}
		passed = passed || reports[i].Verdict == audit.Pass
		for _, v := range wrong {
			bad = bad || reports[i].Verdict == v
		}
	}
	if o.json {
		if err := printJSON(w, all); err != nil {
			return err
		}
	}
	if bad || !passed {
		return errFalse
	}
	return nil
}

// printServer prints what a server is and what each level showed.
func printServer(w io.Writer, res *outside.Result) {
	s := res.Server
	fmt.Fprintf(w, "%s: %s, model %s\n", s.Address, s.Dialect, s.Model)
	if s.Simulated != "" {
		fmt.Fprintf(w, "  the server says that its acceptance is simulated: %s\n", s.Simulated)
	}
	if j := res.Judged; j.Judged > 0 {
		fmt.Fprintf(w, "  tokens judged %d: first choice %d, near ties %d (within %g units of BF16 rounding), wrong %d\n", j.Judged, j.First, j.NearTies, j.NearTie, j.Wrong)
	}
	for _, f := range res.Figures {
		fmt.Fprintf(w, "  %s, %d in flight: %d requests, %d tokens", f.Mode, f.Concurrency, f.Requests, f.Tokens)
		if f.PerPiece > 0 {
			fmt.Fprintf(w, ", %.2f tokens a piece", f.PerPiece)
		}
		if f.AcceptLength != nil {
			fmt.Fprintf(w, "; claimed: accept length %.3f, k %d (%s)", *f.AcceptLength, f.K, f.KFrom)
		}
		if len(f.ByPosition) > 0 {
			fmt.Fprintf(w, ", by position %.3f, conditional %.3f", f.ByPosition, f.Conditional)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "  an acceptance 8 % too high, from outside:")
	for _, v := range res.Visible {
		fmt.Fprintf(w, "    %s: visible: %s; %s\n", v.Form, v.Visible, v.Why)
	}
}
