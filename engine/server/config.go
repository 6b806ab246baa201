package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/chat"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/engine/tokenizer"
)

// Model is what a server needs to know of the model that its engine runs.
type Model struct {
	// Name is what clients call it.
	Name string
	// Tokenizer is nil for a model without text: then prompts are token ids,
	// and answers too.
	Tokenizer *tokenizer.Tokenizer
	// Chat are its chat templates; nil refuses chat completions.
	Chat *chat.Set
	// EOS are the ids that end a text.
	EOS []int32
	// Tokens are the bytes of its tokens, for grammars; nil without text.
	Tokens *grammar.Vocabulary
	// Vocab is the number of ids that have a token.
	Vocab int
	// Defaults are the sampling parameters of requests that leave them out.
	Defaults sample.Params
}

// Speculation is how a request is drafted.
type Speculation struct {
	// Strategy is one of the engine's drafters, or "none".
	Strategy string
	// K is the most drafts per step.
	K int
	// Rule is the acceptance rule.
	Rule string
}

// Limits bound what one request, or all of them, may ask. Zero fields take the
// default in their comment.
type Limits struct {
	Body      int64         // bytes of a request; 8 MiB
	Depth     int           // nesting of its JSON; 64
	Prompts   int           // prompts of one request; 256
	Choices   int           // n; 128
	Stops     int           // stop strings; 16, each of at most 1,024 bytes
	TopLogs   int           // top_logprobs; 20
	States    int           // size of a grammar's automaton; 20,000
	Open      int           // sequences waiting or running; 16,384
	Buffer    int           // steps that a client may be behind; 1,024
	Write     time.Duration // that a write to a client may take; 30 s
	NewTokens int           // most tokens to generate; the context
}

func (l *Limits) fill() {
	def(&l.Body, 8<<20)
	def(&l.Depth, 64)
	def(&l.Prompts, 256)
	def(&l.Choices, 128)
	def(&l.Stops, 16)
	def(&l.TopLogs, 20)
	def(&l.States, 20_000)
	def(&l.Open, 16_384)
	def(&l.Buffer, 1024)
	def(&l.Write, 30*time.Second)
}

// def sets a field that is zero.
func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Log keeps what was asked and what came of it, beside the records. Its methods are
// called by many goroutines.
type Log interface {
	// Asked is called before the engine takes a request in.
	Asked(a *Asked)
	// Ended is called once for each request that was asked.
	Ended(e *Ended)
}

// Asked is what the engine was asked.
type Asked struct {
	Request  engine.Request
	Rule     string // the name of its rule, as records have it
	Strategy string // "none" for plain decoding
	// Stops are the stop strings; text is decoded with or without special
	// tokens.
	Stops       []string
	SkipSpecial bool
}

// Ended is what came of it.
type Ended struct {
	ID     string
	Output []int32 // tokens that were emitted
	Finish engine.Finish
	// Queue is the time from the request's arrival until a step took it up, First
	// until its first token was there and Total until it ended; 0 for what never
	// was.
	Queue, First, Total time.Duration
}

// Config says what a server serves, how and to whom.
type Config struct {
	Model Model
	// Open makes the engine, which tells the listener what happens. The server
	// closes it.
	Open func(l engine.Listener) (*engine.Engine, error)
	// Rule makes an acceptance rule by name, for drafts of at most k tokens.
	Rule func(name string, k int) (engine.Verifier, error)
	// Default is the speculation of requests that choose none.
	Default Speculation
	// Simulation names the simulation that all drafts of the server go
	// through, "" for none: then Rule makes simulated rules.
	Simulation string

	Limits Limits
	Keys   []Key
	// ShareCache lets requests of different keys hit the same prefix-cache
	// pages, which can be told by timing.
	ShareCache bool
	// Origins are the origins that CORS allows; none by default, "*" is all.
	Origins []string
	// PromptLogs says that the engine keeps the logits of prompts
	// (engine.Config.PromptLogits); without, requests for them are refused.
	PromptLogs bool
	// Pprof serves /debug/pprof/ to holders of a key.
	Pprof bool
	// Version of the program.
	Version string

	// Log keeps requests; nil keeps none.
	Log Log
	// Logger gets one line per request; nil discards.
	Logger *slog.Logger
	// LogText puts prompts and answers into those lines.
	LogText bool
	// Metrics is where metrics are registered; nil makes a registry.
	Metrics *prometheus.Registry
	// Tracer makes the spans of requests; nil makes none.
	Tracer trace.Tracer
}

func (c *Config) fill() error {
	c.Limits.fill()
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider().Tracer("")
	}
	switch {
	case c.Model.Name == "":
		return errors.New("server: the model has no name")
	case c.Open == nil || c.Rule == nil:
		return errors.New("server: Open and Rule are needed")
	}
	if _, err := c.Rule(c.Default.Rule, c.Default.K); err != nil {
		return fmt.Errorf("server: the default speculation: %w", err)
	}
	return checkKeys(c.Keys)
}
