package trial

import (
	"fmt"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine/sample"
)

// Setup says what a run needs. The zero value of a field takes the default in
// its comment.
type Setup struct {
	// Drafter is a strategy that Machine.Drafter knows. "" decodes plainly.
	Drafter string
	K       int
	Rule    string // default "greedy"
	// Params are the sampling parameters; Seed differs by request.
	Params   sample.Params
	Requests int // default 4
	MaxNew   int // default 40
	// Concurrency is the number of sequences that run at once; default all.
	Concurrency int
	// Chunk and BatchTokens are the engine's; 0 means its defaults.
	Chunk, BatchTokens int
	// PromptLen is the length of the shortest prompt in tokens, and each
	// further one is PromptStep longer. Defaults 24 and 5.
	PromptLen, PromptStep int
	// Shared is the number of tokens that all prompts begin with.
	Shared int
	// Repeat makes the last request ask what the first asked.
	Repeat      bool
	PrefixCache bool
	// TightPages leaves so few pages that sequences are preempted.
	TightPages bool
	// Stops gives each request a stop token that plain decoding meets.
	Stops bool
	// Ranks is the number of ranks that run the model together; default 1.
	Ranks int
	// Loop decodes on a device that the host can't look into.
	Loop bool
	// Length is the policy for the number of drafts.
	Length draft.Length
	// Simulation is what is simulated, as records carry it.
	Simulation string
}

// name is what records call the drafter.
func (s Setup) name() string {
	if s.Drafter == SampledMTP {
		return "mtp"
	}
	return s.Drafter
}

// filled returns the setup with its defaults.
func (s Setup) filled() Setup {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if s.TightPages { // three pages each, and one page more than the longest needs
		def(&s.Requests, 3)
		def(&s.MaxNew, 74)
		def(&s.PromptLen, 61)
		def(&s.PromptStep, 1)
	}
	def(&s.Requests, 4)
	def(&s.MaxNew, 40)
	def(&s.Concurrency, s.Requests)
	def(&s.PromptLen, 24)
	def(&s.PromptStep, 5)
	if s.Rule == "" {
		s.Rule = "greedy"
	}
	if s.Drafter == "" {
		s.K = 0
	}
	return s
}

// String names what matters of the setup.
func (s Setup) String() string {
	s = s.filled()
	d := s.Drafter
	if d == "" {
		d = "none"
	}
	text := fmt.Sprintf("%s k%d %s, %d requests of %d, %d at once", d, s.K, s.Rule, s.Requests, s.MaxNew, s.Concurrency)
	for _, o := range []struct {
		on   bool
		text string
	}{
		{!s.Params.Greedy(), fmt.Sprintf("temperature %v", s.Params.Temperature)},
		{s.Params.Grammar != "", "grammar"},
		{s.Params.RepetitionPenalty > 1 || s.Params.PresencePenalty != 0 || s.Params.FrequencyPenalty != 0, "penalties"},
		{s.Stops, "stops"}, {s.PrefixCache, "prefix cache"}, {s.TightPages, "tight pages"},
		{s.Loop, "loop"}, {s.Ranks > 1, fmt.Sprintf("%d ranks", s.Ranks)},
		{s.Simulation != "", s.Simulation}, {s.Length.String() != "", s.Length.String()},
	} {
		if o.on {
			text += ", " + o.text
		}
	}
	return text
}
