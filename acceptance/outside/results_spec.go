package outside

import (
	"encoding/json"
	"fmt"
)

// vllm checks the block of speculation of vllm bench serve.
func (a *resultsAudit) vllm(b *bench) error {
	var v [5]*float64
	for i, key := range []string{"spec_decode_num_drafts", "spec_decode_draft_tokens", "spec_decode_accepted_tokens", "spec_decode_acceptance_length", "spec_decode_acceptance_rate"} {
		var err error
		if v[i], err = b.number(key); err != nil {
			return err
		}
	}
	positions, err := b.list("spec_decode_per_position_acceptance_rates")
	if err != nil {
		return err
	}
	steps, drafts, accepted, length, rate := v[0], v[1], v[2], v[3], v[4]
	if steps == nil && length == nil {
		a.counts.skip("acceptance", "%s has no spec_decode keys: the server had no speculation", b.name())
		return nil
	}
	l := a.counts
	if length != nil {
		a.figures["accept_length"] = *length
		l.check("accept length in 1..k+1", *length >= 1 && (len(positions) == 0 || *length <= float64(len(positions)+1)), b.name(), "an accept length of %g with %d positions", *length, len(positions))
	}
	if length != nil && len(positions) > 0 {
		l.check("positions add up", nearly(total(positions), *length-1, 0.001), b.name(), "the rates by position add up to %.4f, the accept length is %.4f: it should be 1 more", total(positions), *length)
		for i, p := range positions {
			l.check("positions fall", p <= 1 && (i == 0 || p <= positions[i-1]+1e-9), b.name(), "the rate at position %d is %g", i+1, p)
		}
	}
	if steps != nil && *steps > 0 && accepted != nil && length != nil {
		l.check("accept length = 1 + accepted / steps", nearly(*length, 1 + *accepted / *steps, 0.001), b.name(), "an accept length of %.4f, 1 + %.0f / %.0f is %.4f", *length, *accepted, *steps, 1 + *accepted / *steps)
	}
	if drafts != nil && *drafts > 0 && accepted != nil {
		l.check("accepted <= drafted", *accepted <= *drafts, b.name(), "%.0f drafts accepted of %.0f", *accepted, *drafts)
		if rate != nil {
			l.check("accept rate = accepted / drafted", nearly(*rate, 100**accepted / *drafts, 0.001), b.name(), "an accept rate of %.4f %%, %.0f of %.0f are %.4f %%", *rate, *accepted, *drafts, 100**accepted / *drafts)
		}
	} else if k := float64(len(positions)); rate != nil && length != nil && k > 0 {
		l.check("accept rate = accepted / drafted", nearly(*rate, 100*(*length-1)/k, 0.001), b.name(), "an accept rate of %.4f %%, (accept length - 1) / k is %.4f %%", *rate, 100*(*length-1)/k)
	}
	if steps != nil && drafts != nil && len(positions) > 0 {
		l.check("drafts <= steps x k", *drafts <= *steps*float64(len(positions)), b.name(), "%.0f drafts in %.0f steps of at most %d", *drafts, *steps, len(positions))
	}
	if steps != nil && accepted != nil {
		a.serving(b, *steps, *accepted, float64(len(positions)))
	}
	l.blind("the acceptance of vllm bench serve is a difference of the server's counters: other traffic is in it")
	return nil
}

// serving holds claimed acceptance to the tokens and pieces of a benchmark.
func (a *resultsAudit) serving(b *bench, steps, accepted, k float64) {
	slack := k * b.completed
	reached := b.tokens - b.completed - steps
	a.counts.check("tokens = requests + steps + accepted", accepted <= reached+slack, b.name(),
		"%.0f drafts are claimed as accepted, but of %.0f tokens only %.0f are left beside %.0f first ones and one from each of %.0f steps, and ends can have cut off %.0f: inflated, or other traffic is in the counters", accepted, b.tokens, max(0, reached), b.completed, steps, slack)
	pieces, tokens := 0.0, 0.0
	for i, gaps := range b.itls {
		if i < len(b.lens) && b.lens[i] > 0 {
			pieces, tokens = pieces+1+float64(len(gaps)), tokens+b.lens[i]
		}
	}
	if pieces > 0 {
		a.work.check("pieces of the stream", accepted <= tokens-pieces+slack, b.name(),
			"%.0f drafts are claimed as accepted, but %.0f tokens came in %.0f pieces, so at most %.0f were, and ends can have cut off %.0f", accepted, tokens, pieces, max(0, tokens-pieces), slack)
		a.figures["tokens_per_piece"] = (tokens - b.completed) / max(1, pieces-b.completed)
		return
	}
	itl, errI := b.number("mean_itl_ms")
	tpot, errT := b.number("mean_tpot_ms")
	if errI != nil || errT != nil || itl == nil || tpot == nil || *tpot == 0 || steps < leastSteps {
		a.work.skip("ITL = TPOT x accept length", "%s has not both, or too few steps", b.name())
		return
	}
	// The gap between pieces is that of steps; means over requests and over
	// pieces weigh differently, hence the wide bounds.
	ratio, length := *itl / *tpot, 1+accepted/steps
	all := accepted >= reached
	a.work.check("ITL = TPOT x accept length", ratio <= 1.25*length && (!all || ratio >= 0.8*length), b.name(),
		"ITL / TPOT is %.2f tokens a piece (%.3f / %.3f ms), the claimed accept length %.2f", ratio, *itl, *tpot, length)
}

// sglang checks what only SGLang's bench_serving has.
func (a *resultsAudit) sglang(b *bench) error {
	length, err := b.number("accept_length")
	if err != nil {
		return err
	}
	if length != nil {
		a.figures["accept_length"] = *length
		a.counts.check("accept length in 1..k+1", *length >= 1 && (a.opt.K == 0 || *length <= float64(a.opt.K+1)), b.name(), "an accept length of %g", *length)
		a.counts.blind("SGLang's accept_length is the server's average since its start: traffic before the benchmark is in it, so it is not held to the benchmark's tokens")
	}
	again, err := b.number("total_output_tokens_retokenized")
	if err != nil {
		return err
	}
	if again != nil && b.tokens > 0 {
		a.counts.check("text has the tokens", *again >= 0.5*b.tokens, b.name(), "the text has %.0f tokens when tokenised again, %.0f were counted: placeholder tokens, or text that never came", *again, b.tokens)
	}
	e2e, err := b.number("mean_e2e_latency_ms")
	if err != nil {
		return err
	}
	conc, err := b.number("concurrency")
	if err != nil {
		return err
	}
	if e2e != nil && conc != nil && b.duration > 0 {
		want := *e2e / 1000 * b.completed / b.duration
		a.work.check("concurrency = time of requests / duration", nearly(*conc, want, 0.02), b.name(), "a concurrency of %.3f, %.0f requests of %.1f ms in %.2f s are %.3f", *conc, b.completed, *e2e, b.duration, want)
	}
	return nil
}

// specTotals are the sums over all answers of Spec-Bench.
type specTotals struct {
	tokens, steps, seconds, accepts, speeds, macro, answers float64
	seen                                                    map[string]int
}

// specChoice is a choice of a Spec-Bench answer. EAGLE's own answers call the
// steps idxs.
type specChoice struct {
	Turns   []string   `json:"turns"`
	Steps   []int64    `json:"decoding_steps"`
	Idxs    []int64    `json:"idxs"`
	Tokens  *[]int64   `json:"new_tokens"`
	Seconds *[]float64 `json:"wall_time"`
	Accepts *[]int64   `json:"accept_lengths"`
}

// answers checks one answer of Spec-Bench.
func (a *resultsAudit) answers(r row) error {
	id := string(r.m["question_id"])
	if a.spec.seen == nil {
		a.spec.seen = map[string]int{}
	}
	a.counts.check("a question once", a.spec.seen[id] == 0, r.name(), "question %s was answered in row %d already", id, a.spec.seen[id])
	a.spec.seen[id] = r.n
	var choices []specChoice
	if err := json.Unmarshal(r.m["choices"], &choices); err != nil {
		return r.errorf("choices", "is not as Spec-Bench writes it: %v", err)
	}
	if len(choices) == 0 {
		return r.errorf("choices", "is empty")
	}
	for i, c := range choices {
		key := fmt.Sprintf("choices[%d]", i)
		switch {
		case c.Tokens == nil:
			return r.errorf(key+".new_tokens", "is missing")
		case c.Seconds == nil:
			return r.errorf(key+".wall_time", "is missing")
		case c.Accepts == nil:
			return r.errorf(key+".accept_lengths", "is missing: the answer is of a version that does not write it")
		}
		if c.Steps == nil {
			c.Steps = c.Idxs
		}
		a.choice(r.name()+", question "+id, c)
	}
	return nil
}

// choice checks one choice: accept_lengths are the tokens of each step, the bonus
// among them, over all turns.
func (a *resultsAudit) choice(at string, c specChoice) {
	l := a.counts
	var tokens, steps, accepts, longest int64
	seconds := total(*c.Seconds)
	for _, n := range *c.Tokens {
		tokens += n
	}
	for _, n := range c.Steps {
		steps += n
	}
	for _, n := range *c.Accepts {
		accepts, longest = accepts+n, max(longest, n)
		l.check("a step has a token", n >= 1, at, "an accept length of %d: each step yields at least one token", n)
	}
	turns, n := int64(len(*c.Tokens)), int64(len(*c.Accepts))
	l.check("lists are of one length", len(*c.Seconds) == len(*c.Tokens) && len(c.Turns) == len(*c.Tokens), at, "%d turns, %d new_tokens, %d wall_time", len(c.Turns), turns, len(*c.Seconds))
	// Per turn, the first token may be counted apart from the steps, and the
	// last step may have been cut off behind an end.
	l.check("accept lengths add up to tokens", accepts >= tokens-turns && accepts <= tokens+turns*max(1, longest-1), at,
		"accept_lengths add up to %d, new_tokens to %d in %d turns", accepts, tokens, turns)
	if c.Steps != nil {
		// Some methods give the index of the last step, one less a turn.
		l.check("accept lengths are steps", n >= steps && n <= steps+turns, at, "%d accept_lengths, %d decoding_steps in %d turns", n, steps, turns)
	}
	for i, s := range *c.Seconds {
		ok := s > 0 || i < len(*c.Tokens) && (*c.Tokens)[i] == 0
		a.work.check("wall times are positive", ok, at, "turn %d took %g s", i, s)
	}
	t := &a.spec
	t.tokens, t.steps, t.seconds, t.accepts = t.tokens+float64(tokens), t.steps+float64(n), t.seconds+seconds, t.accepts+float64(accepts)
	if n > 0 && seconds > 0 {
		t.answers++
		t.macro += float64(accepts) / float64(n)
		t.speeds += float64(tokens) / seconds
	}
}

// totals gives the figures of a whole file: MAT by step and by answer, and tokens
// a second as Spec-Bench's speed.py has them (a mean of ratios) and as a ratio
// of sums.
func (a *resultsAudit) totals() {
	t := a.spec
	if t.steps == 0 || t.answers == 0 || t.seconds == 0 {
		return
	}
	mat := t.accepts / t.steps
	a.figures["mat"], a.figures["accept_length_macro"] = mat, t.macro/t.answers
	a.figures["tokens_per_second"], a.figures["tokens_per_second_specbench"] = t.tokens/t.seconds, t.speeds/t.answers
	a.counts.check("MAT = tokens / steps", nearly(mat, t.tokens/t.steps, 0.1), "", "the mean accept length is %.3f, %.0f tokens in %.0f steps are %.3f", mat, t.tokens, t.steps, t.tokens/t.steps)
	a.counts.blind("drafts offered: Spec-Bench's answers have accepted tokens only, so no accept rate can be checked")
}
