package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/verify"
)

type generateFlags struct {
	modelFlags
	chatFlags
	draft, rule  string
	k, maxTokens int
	ignoreEOS    bool
	color        string
	sampling     experiments.Sampling
	simulate     string
	loop, trace  string
	timeline     *engine.Timeline // of --trace
}

// shown is what is printed before the answer, and the prompt of a chat template.
type shown struct{ text, rendered string }

// prompt gives the ids of the prompt, or of the messages.
func (f *generateFlags) prompt(l *loaded, text string) ([]int32, shown, error) {
	if !f.active() {
		ids, err := l.encode(text, true)
		return ids, shown{text: text}, err
	}
	if l.Tokenizer == nil {
		return nil, shown{}, fmt.Errorf("model %s has no tokenizer, so that messages can't be put to it", l.Name)
	}
	rendered, err := f.render(l, text)
	if err != nil {
		return nil, shown{}, err
	}
	ids, err := l.encode(rendered, false) // the template has the special tokens
	return ids, shown{rendered: rendered}, err
}

func newGenerateCommand(o *options) *cobra.Command {
	var f generateFlags
	cmd := &cobra.Command{
		Use: "generate PROMPT", Short: "continue a prompt, streamed and coloured by how each token came", Args: f.args,
		Long: `generate streams the continuation of a prompt. In a terminal, accepted drafts are
green, corrections of a rejected draft red, bonus tokens after a draft that was
accepted whole cyan, and tokens of steps without drafts plain.

--json prints {text (without the prompt), prompt_tokens, tokens: [{id, kind: accepted,
correction, bonus or sampled}], finish, drafter, k, rule, proposed, accepted, steps,
accept_length, tok_s, lossy (the rule accepts what the model would not have said),
simulated}. With --simulate there are also simulation (what
was asked for), real_accept_length (what the rule decided in the same steps), and
simulated beside each token.

--chat puts the prompt to the model as what a user says, by the chat template that comes
with it, and prints the answer alone; --system adds a system message. --messages FILE
takes a JSON list of messages, as chat completion requests have them, --tools FILE a list
of tools. --json has the rendered prompt as prompt.

--simulate length=2.6 accepts drafts by lot, 2.6 tokens a step on average (rates=
0.9,0.5 gives the share by position), whatever the rule decides. The rule still runs.
The text is then no longer the model's; only speed can be read from it.

--grammar keeps the output within a regular expression (syntax of Go's regexp), which
the whole output matches unless --max-tokens cuts it.`,
		Example: `  exacta generate "package main"
  exacta generate --draft none --json "func Max(a, b int) int {"
  exacta generate --draft mtp --k 4 --rule coupled --temperature 0.8 --seed 7 "type Server struct {"
  exacta generate --grammar '[A-Z][a-z]+(, [A-Z][a-z]+){2}\.' "// Days of the week: "
  exacta generate --model DIR --chat --system "Be brief." "What is the capital of France?"
  exacta generate --model DIR --messages talk.json --template-var enable_thinking=false
  exacta generate --draft mtp --k 3 --simulate length=2.6 "package main"`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, o, strings.Join(args, "")) },
	}
	f.modelFlags.add(cmd)
	f.chatFlags.add(cmd)
	addLoop(cmd, &f.loop)
	addTrace(cmd, &f.trace)
	cmd.Flags().StringVar(&f.draft, "draft", "mtp", "draft strategy (exacta drafters)")
	cmd.Flags().StringVar(&f.rule, "rule", "greedy", "acceptance rule (exacta rules)")
	cmd.Flags().IntVar(&f.k, "k", 3, "drafts per step")
	cmd.Flags().IntVar(&f.maxTokens, "max-tokens", 128, "tokens to generate")
	cmd.Flags().BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on past the end of text")
	cmd.Flags().StringVar(&f.color, "color", "auto", "auto, always or never")
	cmd.Flags().Float32Var(&f.sampling.Temperature, "temperature", 0, "0 is greedy")
	cmd.Flags().IntVar(&f.sampling.TopK, "top-k", 0, "0 is off")
	cmd.Flags().Float32Var(&f.sampling.TopP, "top-p", 1, "1 is off")
	cmd.Flags().Float32Var(&f.sampling.MinP, "min-p", 0, "0 is off")
	cmd.Flags().Float32Var(&f.sampling.RepetitionPenalty, "repetition-penalty", 1, "1 is off")
	cmd.Flags().Float32Var(&f.sampling.PresencePenalty, "presence-penalty", 0, "0 is off")
	cmd.Flags().Float32Var(&f.sampling.FrequencyPenalty, "frequency-penalty", 0, "0 is off")
	cmd.Flags().StringVar(&f.sampling.Grammar, "grammar", "", "regular expression that the whole output matches")
	cmd.Flags().Uint64Var(&f.sampling.Seed, "seed", 0, "seed of the random streams")
	cmd.Flags().StringVar(&f.simulate, "simulate", "", "accept by lot: length=2.6 or rates=0.9,0.5")
	complete(cmd, "draft", draft.Names())
	complete(cmd, "rule", verify.Names())
	complete(cmd, "color", []string{"auto", "always", "never"})
	return cmd
}

// check names the first flag that is out of range.
func (f *generateFlags) check() error {
	if err := f.chatFlags.check(); err != nil {
		return err
	}
	if !slices.Contains([]string{"auto", "always", "never"}, f.color) {
		return fmt.Errorf("--color %q; use auto, always or never", f.color)
	}
	if f.loop != "" && !slices.Contains(experiments.Loops, f.loop) {
		return fmt.Errorf("--loop %q; use one of %v", f.loop, experiments.Loops)
	}
	if f.maxTokens < 1 || f.maxTokens > 1<<20 {
		return fmt.Errorf("--max-tokens %d; it must be 1..%d", f.maxTokens, 1<<20)
	}
	if f.k < 0 || f.k >= kernels.WindowTokens {
		return fmt.Errorf("--k %d; it must be 0..%d", f.k, kernels.WindowTokens-1)
	}
	if _, err := draft.New(f.draft); err != nil {
		return err
	}
	rule, err := f.newRule()
	if err == nil {
		err = f.sampling.Params(0).Validate()
	}
	if err == nil {
		err = verify.Serves(rule, f.sampling.Params(0))
	}
	return err
}

func (f *generateFlags) run(cmd *cobra.Command, o *options, prompt string) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	l, err := f.load(cmd, 0)
	if err != nil {
		return err
	}
	defer l.Close()
	if f.trace != "" {
		if f.timeline, err = engine.NewTimeline(l.backend); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, experiments.WriteTimeline(f.trace, f.timeline)) }()
	}
	ids, shown, err := f.prompt(l, prompt)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	p := &painter{w: out, dec: l.Tokenizer.NewDecoder(true), colour: f.color == "always" || f.color == "auto" && isTerminal(out)}
	if o.json {
		p.w = io.Discard
	}
	res := &generated{Prompt: shown.rendered, PromptTokens: len(ids), Tokens: []generatedToken{}, Drafter: f.draft, K: f.k, Rule: f.rule}
	e, err := f.engine(l, len(ids), engine.Listener{Emitted: func(_ *engine.Sequence, r *engine.Record) {
		res.add(r)
		p.record(r)
	}})
	if err != nil {
		return err
	}
	defer e.Close()
	drafter := f.draft
	if drafter == "none" {
		drafter = ""
	}
	seq, err := e.Submit(engine.Request{
		ID: "generate", Prompt: ids, MaxNew: f.maxTokens, Params: f.sampling.Params(0), Drafter: drafter, K: f.k,
		Stop: l.Source.Config().EOS, IgnoreStop: f.ignoreEOS,
	})
	if err != nil {
		return err
	}
	fmt.Fprint(p.w, shown.text)
	start := time.Now()
	ctx := cmd.Context()
	if err := e.Run(func() bool { return ctx.Err() != nil }); err != nil {
		return err
	}
	p.flush()
	if ctx.Err() != nil {
		return experiments.ErrInterrupted
	}
	if seq.Err() != nil {
		return seq.Err()
	}
	res.finish(seq, l.Tokenizer, time.Since(start))
	if o.json {
		return printJSON(out, res)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), res.usage())
	return nil
}

// newRule makes the acceptance rule, simulated if that is asked for.
func (f *generateFlags) newRule() (engine.Verifier, error) {
	rule, err := verify.New(f.rule)
	if err != nil || f.simulate == "" {
		return rule, err
	}
	spec, err := verify.ParseSimulation(f.simulate)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--%w", err)
	case f.draft == "none":
		return nil, errors.New("--simulate with --draft none: there are no drafts that could be accepted; name a draft strategy")
	}
	if rule, err = verify.Simulate(rule, spec, f.k); err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	return rule, nil
}

// engine makes an engine for one sequence.
func (f *generateFlags) engine(l *loaded, prompt int, listener engine.Listener) (*engine.Engine, error) {
	rule, err := f.newRule()
	if err != nil {
		return nil, err
	}
	st, err := draft.New(f.draft)
	if err != nil {
		return nil, err
	}
	drafters := map[string]engine.Drafter{}
	if f.draft != "none" {
		d, err := st.Provision(draft.Env{Backend: l.backend, Model: l.m, Vocab: l.Vocab(), Tokenizer: l.Tokenizer})
		if err != nil {
			return nil, err
		}
		drafters[f.draft] = d
	}
	var tokens *grammar.Vocabulary
	if f.sampling.Grammar != "" {
		tokens = experiments.Tokens(l.Tokenizer, l.Vocab(), l.Source.Config().EOS)
	}
	return engine.New(l.m, engine.Config{
		MaxTokens: min(l.m.MaxTokens, max(prompt+f.maxTokens, prompt+1)), MaxSequences: 1, MaxDraft: max(1, f.k), Vocab: l.Vocab(), Tokens: tokens, Loop: f.loop != "off", Timeline: f.timeline,
	}, drafters, rule, nil, listener)
}
