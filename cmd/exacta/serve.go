package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.26.0"
	"go.opentelemetry.io/otel/trace"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine/sched"
	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/verify"
)

// serveFlags are the flags of serve. Those that were given come before the file.
type serveFlags struct {
	where     modelFlags
	config    string
	host      string
	port      int
	draft     []string
	k         int
	simulate  string
	auto      bool
	otlp      string
	drain     time.Duration
	logFormat string
	noPrefix  bool
	fields    experiments.ServeConfig // of flags that are one field of it
}

const serveLong = `serve answers the OpenAI HTTP interface with a model and a draft strategy, with the
full model's answer: greedy answers, and sampled ones under the rule coupled, are those
of plain decoding with the same seed, whatever else the server is doing.

  POST /v1/chat/completions, /v1/completions    streaming, n, stop, logprobs, seed,
       penalties, logit_bias, min_p, top_k, response_format, tools, prompt token ids
  POST /tokenize, /detokenize
  GET  /v1/models, /version, /metrics (Prometheus), /health (liveness), /ready

A request may choose how it is drafted: "speculation": {"strategy": "ngram", "k": 4,
"rule": "rejection"}; with "steps": true the answer tells every step. usage.speculation
tells drafted, accepted and emitted tokens.

--draft names the strategies that requests can choose, the first being the default.
--config FILE has more: settings of strategies, API keys with limits, limits of
requests, CORS; its fields are described in experiments/serveconfig.go. Flags come
before the file.

--records DIR keeps the step records of every request in DIR/serve-TIME, as runs do;
with --record-prompts exacta audit proves them. Records have the token ids of answers;
the log has no text unless --log-text asks for it.

SIGTERM or Ctrl-C ends readiness, takes no more requests, waits for those that run
(--drain), and ends; a second one ends at once.`

func newServeCommand(_ *options) *cobra.Command {
	f := &serveFlags{}
	c := &f.fields
	*c = experiments.DefaultServe()
	cmd := &cobra.Command{
		Use: "serve", Short: "serve a model over the OpenAI HTTP interface", Args: cobra.NoArgs, Long: serveLong,
		Example: `  exacta serve --port 8000
  exacta serve --model DIR --draft mtp,ngram --k 3 --records runs --record-prompts
  exacta serve --config serve.yaml --otlp http://localhost:4318`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	f.where.add(cmd)
	flags.StringVar(&f.config, "config", "", "configuration file (YAML)")
	flags.StringVar(&f.host, "host", "127.0.0.1", "address to listen at; 0.0.0.0 is all")
	flags.IntVar(&f.port, "port", 8000, "port to listen at; 0 takes a free one")
	flags.StringSliceVar(&f.draft, "draft", nil, "draft strategies, the default first (default: mtp or dspark where the model has such a module, ngram, suffix)")
	flags.IntVar(&f.k, "k", 3, "drafts per step of requests that don't say")
	flags.BoolVar(&f.auto, "auto", false, "choose the draft length step by step, at most k")
	flags.StringVar(&f.simulate, "simulate", "", "accept by lot: length=2.6 or rates=0.9,0.5; answers then mean nothing")
	flags.StringVar(&c.Name, "name", "", "what clients call the model (default: --model)")
	flags.StringVar(&c.Rule, "rule", c.Rule, "acceptance rule (exacta rules) of requests that don't say")
	flags.StringVar(&c.ChatTemplate, "chat-template", "", "the name of one of the model's templates, or a file (*.jinja)")
	flags.IntVar(&c.Context, "context", 0, "longest sequence in tokens (default: the model's, at most 8192)")
	flags.IntVar(&c.Sequences, "sequences", c.Sequences, "sequences that run at once")
	flags.IntVar(&c.Engine.Pages, "pages", 0, "KV pages of 64 tokens (default: enough for all sequences)")
	addLoop(cmd, &c.Engine.Loop)
	flags.StringVar(&c.Engine.Policy, "policy", c.Engine.Policy, fmt.Sprintf("order of admission, one of %v", sched.Policies()))
	flags.BoolVar(&f.noPrefix, "no-prefix-cache", false, "read every prompt whole")
	flags.StringVar(&c.Records, "records", "", "directory for step records and requests")
	flags.BoolVar(&c.RecordPrompts, "record-prompts", false, "keep the token ids of prompts there, for exacta audit")
	flags.BoolVar(&c.LogText, "log-text", false, "put prompts and answers into the log")
	flags.BoolVar(&c.PromptLogProbs, "prompt-logprobs", false, "let requests ask for log-probabilities of their prompts, which takes memory")
	flags.BoolVar(&c.Pprof, "pprof", false, "serve profiles at /debug/pprof/")
	flags.StringVar(&f.otlp, "otlp", "", "send traces of requests to this OpenTelemetry collector (http://HOST:4318)")
	flags.DurationVar(&f.drain, "drain", 30*time.Second, "how long to wait for answers at the end")
	flags.StringVar(&f.logFormat, "log", "text", "text or json")
	complete(cmd, "draft", draft.Names())
	complete(cmd, "rule", verify.Names())
	complete(cmd, "policy", sched.Policies())
	complete(cmd, "log", []string{"text", "json"})
	return cmd
}

// settings are the file's, with the flags that were given.
func (f *serveFlags) settings(cmd *cobra.Command) (experiments.ServeConfig, error) {
	given := f.fields
	given.Model, given.Backend, given.Kernels, given.Threads, given.PackCache = f.where.model, f.where.backend, f.where.kernels, f.where.threads, f.where.pack
	given.GPUMemory = f.where.gpuMemory
	c := given
	if f.config != "" {
		var err error
		if c, err = experiments.LoadServeConfig(f.config); err != nil {
			return c, err
		}
	}
	for name, set := range map[string]func(){
		"model": func() { c.Model = given.Model }, "backend": func() { c.Backend = given.Backend }, "kernels": func() { c.Kernels = given.Kernels },
		"threads": func() { c.Threads = given.Threads }, "pack-cache": func() { c.PackCache = given.PackCache }, "name": func() { c.Name = given.Name }, "rule": func() { c.Rule = given.Rule },
		"chat-template": func() { c.ChatTemplate = given.ChatTemplate }, "context": func() { c.Context = given.Context },
		"sequences": func() { c.Sequences = given.Sequences }, "pages": func() { c.Engine.Pages = given.Engine.Pages }, "policy": func() { c.Engine.Policy = given.Engine.Policy },
		"loop": func() { c.Engine.Loop = given.Engine.Loop }, "gpu-memory": func() { c.GPUMemory = given.GPUMemory },
		"records": func() { c.Records = given.Records }, "record-prompts": func() { c.RecordPrompts = given.RecordPrompts },
		"log-text": func() { c.LogText = given.LogText }, "pprof": func() { c.Pprof = given.Pprof },
		"prompt-logprobs": func() { c.PromptLogProbs = given.PromptLogProbs },
		"no-prefix-cache": func() { c.Engine.PrefixCache = !f.noPrefix }, "auto": func() { c.Length = draft.Length{Auto: f.auto} },
	} {
		if cmd.Flags().Changed(name) {
			set()
		}
	}
	return c, f.strategies(cmd, &c)
}

// strategies fills in those of --draft, --k and --simulate.
func (f *serveFlags) strategies(cmd *cobra.Command, c *experiments.ServeConfig) error {
	c.MaxK = max(c.MaxK, f.k)
	switch {
	case len(f.draft) > 0:
		c.Strategies = nil
		for _, name := range f.draft {
			k := f.k
			if name == "none" {
				k = 0
			}
			c.Strategies = append(c.Strategies, experiments.ServeStrategy{Drafter: name, K: k})
		}
	case len(c.Strategies) == 0:
		c.K = f.k
	case cmd.Flags().Changed("k"):
		return errors.New("--k without --draft; the file names the strategies")
	}
	if f.simulate == "" {
		return nil
	}
	spec, err := verify.ParseSimulation(f.simulate)
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	c.Simulate = &experiments.Simulate{Rates: spec.Rates}
	if spec.Rates == nil {
		c.Simulate.Length = &spec.Length
	}
	return nil
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if f.logFormat != "text" && f.logFormat != "json" {
		return fmt.Errorf("--log %q; use text or json", f.logFormat)
	}
	if f.k < 0 {
		return fmt.Errorf("--k %d; it must not be below 0", f.k)
	}
	c, err := f.settings(cmd)
	if err != nil {
		return err
	}
	// Before the model is loaded: a port in use is soon told.
	l, err := net.Listen("tcp", net.JoinHostPort(f.host, strconv.Itoa(f.port)))
	if err != nil {
		return fmt.Errorf("--host %s --port %d: %w", f.host, f.port, err)
	}
	defer l.Close()
	var h slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), nil)
	if f.logFormat == "json" {
		h = slog.NewJSONHandler(cmd.ErrOrStderr(), nil)
	}
	logger := slog.New(h)
	tracer, flush, err := f.tracer(cmd.Context())
	if err != nil {
		return err
	}
	s, err := experiments.Serve(c, experiments.ServeOptions{Version: version(), Logger: logger, Tracer: tracer})
	if err != nil {
		return err
	}
	err = f.listen(cmd.Context(), l, s, logger)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, s.Close(), flush(ctx))
}

// listen serves until the context ends, and drains.
func (f *serveFlags) listen(ctx context.Context, l net.Listener, s *experiments.Served, logger *slog.Logger) error {
	web := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ReadTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(l) }()
	logger.Info("serving", "address", "http://"+l.Addr().String(), "records", s.Dir)
	select {
	case err := <-failed:
		return err
	case <-s.Dead():
		logger.Error("the engine has ended; the process follows")
	case <-ctx.Done():
		logger.Info("draining", "open", s.OpenAnswers(), "at most", f.drain)
	}
	wait, cancel := context.WithTimeout(context.Background(), f.drain)
	defer cancel()
	if err := s.Drain(wait); err != nil {
		logger.Warn("answers are cut short", "open", s.OpenAnswers())
		_ = s.Server.Close() // its error is that of the engine, which Served.Close gives
	}
	end, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := web.Shutdown(end); err != nil {
		return errors.Join(web.Close(), ignoreDeadline(err))
	}
	return nil
}

// ignoreDeadline is nil for a wait that came to its end.
func ignoreDeadline(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// tracer makes the exporter of --otlp; nil without.
func (f *serveFlags) tracer(ctx context.Context) (trace.Tracer, func(context.Context) error, error) {
	none := func(context.Context) error { return nil }
	if f.otlp == "" {
		return nil, none, nil
	}
	if !strings.HasPrefix(f.otlp, "http://") && !strings.HasPrefix(f.otlp, "https://") {
		return nil, none, fmt.Errorf("--otlp %q; it must be http://HOST:PORT or https://HOST:PORT", f.otlp)
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(f.otlp))
	if err != nil {
		return nil, none, fmt.Errorf("--otlp: %w", err)
	}
	p := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(semconv.ServiceName("exacta"), semconv.ServiceVersion(version()))),
	)
	return p.Tracer("exacta.dev/exacta/engine/server"), p.Shutdown, nil
}
