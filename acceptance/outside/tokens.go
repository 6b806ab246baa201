package outside

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"exacta.dev/exacta/acceptance/audit"
)

// Options of the audits.
type Options struct {
	// NearTie is how far below the first choice a token's logit may be, in
	// units of BF16 rounding at the first one's magnitude (default 4).
	NearTie float64
	// K is the draft length, 0 where it isn't known.
	K int
	// Lookup says that drafts come from earlier occurrences of the last token
	// in the request's own text (n-gram or prompt lookup), so that where there
	// is none there can be no draft.
	Lookup bool
	// Declared is the accept length that the server was set to or that is
	// claimed for it, the bonus token included; 0 where there is none.
	Declared float64
}

func (o Options) nearTie() float64 {
	if o.NearTie == 0 {
		return 4
	}
	return o.NearTie
}

// TokenFigures are the judge's view of all tokens.
type TokenFigures struct {
	Judged   int64   `json:"judged"`
	First    int64   `json:"first"` // the judge's first choice
	NearTies int64   `json:"near_ties"`
	Wrong    int64   `json:"wrong"`
	NearTie  float64 `json:"near_tie"` // the threshold, in units
	// Tied counts positions at which the judge's second choice is a near tie.
	Tied int64 `json:"tied"`
	// Ambiguous are answers without ids, whose text tokenised again has
	// another number of tokens than the server counted.
	Ambiguous int64 `json:"ambiguous"`
}

// tokensAudit is the state of Tokens.
type tokensAudit struct {
	*ledger
	ev    *Evidence
	judge Judge
	tok   Tokenizer
	opt   Options
	fig   TokenFigures
	count map[int32]int64 // of tokens, over all answers

	failed int   // requests
	first  error // of the first of them
}

// Tokens judges every token of every answer by a model of the same weights. tok
// may be nil: then texts are not compared with ids.
func Tokens(ctx context.Context, ev *Evidence, judge Judge, tok Tokenizer, opt Options) (audit.Report, TokenFigures, error) {
	t := &tokensAudit{ledger: newLedger("tokens", ev.Server.Address), ev: ev, judge: judge, tok: tok, opt: opt, count: map[int32]int64{}}
	t.fig.NearTie = opt.nearTie()
	if v := ev.Server.Vocab; v > 0 {
		// Vocabularies are padded, so a few ids more or fewer are no other model.
		t.check("vocabulary", max(v, judge.Vocab())-min(v, judge.Vocab()) < 1024, "",
			"the server's model has a vocabulary of %d, the one given here %d: they are not the same model", v, judge.Vocab())
	}
	seen := map[string]bool{} // answers already judged, by prompt and ids
	for _, l := range ev.Levels {
		for _, a := range l.Answers {
			t.form(a)
			if err := t.answer(ctx, a, seen); err != nil {
				return audit.Report{}, t.fig, err
			}
		}
	}
	t.whole()
	t.pairs()
	t.blinds()
	why := ""
	if t.failed > 0 {
		why = fmt.Sprintf("%d of %d requests failed; the first: %v", t.failed, t.failed+int(t.line("answers").Checked), t.first)
	}
	if t.fig.Judged == 0 {
		why = "no token could be judged"
		if t.fig.Ambiguous > 0 {
			why = "the server gives no token ids, and its texts tokenised again have other numbers of tokens than it counted"
		}
	}
	return t.close(why), t.fig, nil
}

// form checks an answer's frame: its end, its lengths, its text.
func (t *tokensAudit) form(a *Answer) {
	if a.Err != nil {
		if t.failed++; t.first == nil {
			t.first = a.Err
		}
		return
	}
	t.check("answers", true, "", "")
	if a.PromptUsed >= 0 && !t.ev.AsText {
		t.check("prompt as sent", a.PromptUsed == len(a.Prompt), a.ID, "%d prompt tokens were sent, the server read %d", len(a.Prompt), a.PromptUsed)
	}
	n := a.tokens()
	t.check("length", n <= t.ev.MaxTokens, a.ID, "%d tokens came, at most %d were asked for", n, t.ev.MaxTokens)
	if a.Finish == "length" {
		t.check("length", n == t.ev.MaxTokens, a.ID, "the answer ended by its length with %d tokens, %d were asked for", n, t.ev.MaxTokens)
	}
	if !a.Exact {
		return
	}
	for i, id := range a.IDs {
		if slices.Contains(t.judge.Stops(), id) {
			t.check("nothing after a stop", i == len(a.IDs)-1, a.ID, "token %d at %d ends a text, but %d more tokens follow it", id, i, len(a.IDs)-1-i)
			break
		}
	}
	t.text(a)
}

// text compares an answer's text with its ids, but for characters of which not
// all bytes have come, and for the text of a stop token.
func (t *tokensAudit) text(a *Answer) {
	if t.tok == nil {
		return
	}
	want := t.tok.Decode(a.IDs, true)
	if all := t.tok.Decode(a.IDs, false); a.Text == all {
		want = all
	}
	trim := func(s string) string {
		return strings.ReplaceAll(strings.TrimPrefix(s, " "), string(utf8.RuneError), "")
	}
	got, full := trim(a.Text), trim(want)
	same := got == full || strings.HasPrefix(got, full) && a.Finish == "stop" && len(got)-len(full) < 32
	t.check("text is that of the ids", same, a.ID, "the text %s is not that of the token ids, %s", short(a.Text), short(want))
}

// answer judges an answer's tokens.
func (t *tokensAudit) answer(ctx context.Context, a *Answer, seen map[string]bool) error {
	if a.Err != nil || len(a.IDs) == 0 {
		return nil
	}
	if !a.Exact && a.Used != len(a.IDs) {
		t.fig.Ambiguous++
		return nil
	}
	vocab := int32(t.judge.Vocab())
	for _, id := range a.IDs {
		if t.check("ids of the vocabulary", id >= 0 && id < vocab, a.ID, "token id %d is outside the model's vocabulary of %d", id, vocab); id < 0 || id >= vocab {
			return nil
		}
	}
	key := fmt.Sprint(a.Prompt, a.IDs, a.Finish)
	if seen[key] { // the same tokens at another level: judged once
		return nil
	}
	seen[key] = true
	stops := t.judge.Stops()
	return t.judge.Force(ctx, a.Prompt, a.IDs, func(i int, row []float32) error {
		switch {
		case i < len(a.IDs):
			t.one(a, i, place(row, a.IDs[i]))
		case a.Finish == "stop" && len(stops) > 0 && !slices.Contains(stops, a.IDs[i-1]):
			t.one(a, i, place(row, stops...)) // the end itself, which some servers don't send
		}
		return nil
	})
}

// one judges a token.
func (t *tokensAudit) one(a *Answer, i int, p position) {
	t.fig.Judged++
	t.count[p.token]++
	if p.runner <= t.opt.nearTie() {
		t.fig.Tied++
	}
	near := p.gap <= t.opt.nearTie()
	switch {
	case p.token == p.top:
		t.fig.First++
	case near:
		t.fig.NearTies++
	default:
		t.fig.Wrong++
	}
	t.check("first choice or near tie", near, a.ID, "token %d at output position %d is %.1f units of BF16 rounding below the first choice, %d; a near tie is at most %.1f",
		p.token, i, p.gap, p.top, t.opt.nearTie())
}

// whole looks at all tokens together: signs of a simulation and of thresholds.
func (t *tokensAudit) whole() {
	f := t.fig
	if f.Judged == 0 {
		return
	}
	if f.Tied > 0 {
		// Where two logits tie, rounding decides: an honest engine takes the
		// second at most every other time.
		other := f.NearTies
		t.test(audit.Test{
			Name: "near ties fall either way", Samples: f.Tied, Statistic: float64(other), P: binomialTail(other, f.Tied, 0.5),
			Detects: fmt.Sprintf("%d of %d near ties decided against the first choice", binomialCritical(f.Tied, 0.5, testAlpha), f.Tied),
		}, "%d of %d near ties were decided against the first choice, which rounding does at most half the time: a token is accepted that is only close to the first", other, f.Tied)
	}
	agree := float64(f.First+f.NearTies) / float64(f.Judged)
	t.check("agreement", agree >= 0.9, "", "only %.1f %% of %d tokens are what the model says: the acceptance is simulated, or the server has other weights", 100*agree, f.Judged)
	id, most := int32(0), int64(0)
	for token, n := range t.count {
		if n > most || n == most && token < id {
			id, most = token, n
		}
	}
	share := float64(most) / float64(f.Judged)
	t.check("no placeholder token", share < 0.3 || agree >= 0.9, "", "token %d is %.0f %% of the output and the model does not say so: placeholder tokens of a simulated acceptance", id, 100*share)
	t.replacements()
}

// replacements counts characters that no token text should have.
func (t *tokensAudit) replacements() {
	bad, all, empty, answers := 0, 0, 0, 0
	for _, l := range t.ev.Levels {
		for _, a := range l.Answers {
			if a.Err != nil {
				continue
			}
			answers++
			if a.Text == "" && a.tokens() > 1 {
				empty++
			}
			bad += strings.Count(a.Text, string(utf8.RuneError))
			all += utf8.RuneCountInString(a.Text)
		}
	}
	t.check("readable text", bad*20 <= all, "", "%d of %d characters are U+FFFD: tokens that are no text, as placeholders of a simulated acceptance are", bad, all)
	t.check("readable text", empty*2 <= answers, "", "%d of %d answers have tokens but no text", empty, answers)
}

// pairs compares the answers to a prompt with speculation as served and without,
// and from level to level.
func (t *tokensAudit) pairs() {
	first := map[string]*Answer{}
	same, differ := int64(0), int64(0)
	for _, l := range t.ev.Levels {
		for _, a := range l.Answers {
			if a.Err != nil || !a.Exact {
				continue
			}
			key := fmt.Sprint(a.Prompt)
			ref := first[key]
			switch {
			case ref == nil:
				first[key] = a
			case slices.Equal(ref.IDs, a.IDs):
				same++
			default:
				differ++
			}
		}
	}
	if same+differ > 0 {
		t.note("%d of %d answers to a prompt that was asked before differ from the first one, at another level or without speculation; each token is judged", differ, same+differ)
	}
}

func (t *tokensAudit) blinds() {
	t.blind("greedy decoding only: nothing is said of sampling")
	t.blind("a wrong token within %.1f units of BF16 rounding of the first choice can't be told from rounding", t.opt.nearTie())
	if t.fig.Ambiguous > 0 {
		t.blind("%d answers came without token ids, and their text tokenised again has another number of tokens than the server counted: not judged", t.fig.Ambiguous)
	}
	for _, l := range t.ev.Levels {
		for _, a := range l.Answers {
			if a.Err == nil && !a.Exact && a.Text != "" {
				t.blind("the server gives no token ids: its text was tokenised again, which can give other tokens than were generated")
				return
			}
		}
	}
}
