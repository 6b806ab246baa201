package outside

import (
	"fmt"
	"time"

	"exacta.dev/exacta/acceptance/audit"
)

// leastBursts is the number of bursts of a kind below which their times aren't
// compared.
const leastBursts = 50

// workAudit is the state of Work.
type workAudit struct {
	*ledger
	ev  *Evidence
	opt Options
}

// burst is what arrived at once: the tokens of a step.
type burst struct {
	tokens int
	gap    float64 // ms since the burst before
}

// Work compares the times of the stream with the claimed acceptance. It looks at
// levels with one request in flight, where nothing else moves a step's time.
func Work(ev *Evidence, opt Options) audit.Report {
	w := &workAudit{ledger: newLedger("work", ev.Server.Address), ev: ev, opt: opt}
	var rounds, plain []float64
	for _, l := range ev.Levels {
		t := sum(ev, l, opt)
		w.server(l, t)
		if l.Concurrency != 1 || t.requests == 0 {
			continue
		}
		bs := w.bursts(l, t)
		if l.Mode == AsServed {
			rounds = gaps(bs)
			w.claim(l, t, bs)
			w.flat(bs)
			continue
		}
		plain = append(plain, gaps(bs)...)
	}
	w.against(rounds, plain)
	w.blinds()
	why := ""
	if len(rounds) < leastBursts {
		why = fmt.Sprintf("%d bursts came with one request in flight; %d are needed to say something of their times", len(rounds), leastBursts)
	}
	return w.close(why)
}

func gaps(bs []burst) []float64 {
	var out []float64
	for _, b := range bs {
		out = append(out, b.gap)
	}
	return out
}

// bursts cuts a level's streams into bursts, behind each request's first. Where
// a piece is a step, it is a burst; else pieces belong together that come closer
// than a quarter of a step's claimed time.
func (w *workAudit) bursts(l *Level, t *totals) []burst {
	near := time.Duration(0)
	if !w.ev.Server.Dialect.wire().perStep || !t.known {
		steps := float64(t.tokens - t.requests)
		if t.accepted != nil && l.Mode == AsServed {
			steps = max(1, steps-*t.accepted)
		}
		near = time.Duration(0.25 * t.decodeSeconds / max(1, steps) * float64(time.Second))
	}
	var out []burst
	for _, a := range l.Answers {
		if a.Err != nil {
			continue
		}
		var open *burst
		for i, p := range a.Pieces {
			if i == 0 {
				continue
			}
			if gap := p.At - a.Pieces[i-1].At; gap > near || near == 0 {
				out = append(out, burst{gap: float64(gap) / float64(time.Millisecond)})
				open = &out[len(out)-1]
			}
			if open != nil { // else it belongs to the first burst
				open.tokens += max(1, p.Tokens)
			}
		}
	}
	return out
}

// claim tests the number of bursts against the number of steps that the claimed
// acceptance leaves: T - R - C, and at most the tokens cut off by ends more.
func (w *workAudit) claim(l *Level, t *totals, bs []burst) {
	const name = "bursts are steps"
	if w.ev.Server.Dialect.wire().perStep && t.known {
		w.skip(name, "a step comes in one piece; package counts looks at their number")
		return
	}
	if t.accepted == nil {
		w.skip(name, "the server claims no acceptance")
		return
	}
	low := int64(t.tokens-t.requests) - int64(*t.accepted)
	high, n := low+int64(t.slack()), int64(len(bs))
	if low < leastBursts {
		w.skip(name, "%d steps are claimed, %d are needed", max(0, low), leastBursts)
		return
	}
	shown := float64(int64(t.tokens-t.requests)) / float64(max(1, n))
	claimed := float64(int64(t.tokens-t.requests)) / float64(low)
	more, fewer := max(0, n-high), max(0, low-n)
	accepted := int64(*t.accepted)
	w.test(audit.Test{
		Name: name, Samples: low, Statistic: float64(n), P: min(1, 2*min(binomialTail(more, accepted, splitShare), binomialTail(fewer, low, joinedShare))),
		Detects: fmt.Sprintf("%d bursts more or %d fewer than steps", int64(t.slack())+binomialCritical(accepted, splitShare, testAlpha/2), binomialCritical(low, joinedShare, testAlpha/2)),
	}, "%s, one in flight: %d bursts came, the claimed acceptance leaves %d steps (%d with all that ends can have cut off): the stream shows %.2f tokens at a time, the claim is %.2f",
		l.Mode, n, low, high, shown, claimed)
}

// flat tests whether a step's time depends on how many tokens it yielded: its
// work is that of k drafts, accepted or not.
func (w *workAudit) flat(bs []burst) {
	const name = "step time does not depend on the accept length"
	var few, many []float64
	for _, b := range bs {
		if b.tokens <= 1 {
			few = append(few, b.gap)
		} else {
			many = append(many, b.gap)
		}
	}
	if len(few) < leastBursts || len(many) < leastBursts {
		w.skip(name, "%d bursts of one token and %d of more; %d of each are needed", len(few), len(many), leastBursts)
		return
	}
	u, p := rankTest(few, many)
	a, b := median(few), median(many)
	w.report.Tests = append(w.report.Tests, audit.Test{
		Name: name, Samples: int64(len(few) + len(many)), Statistic: u, P: p, Alpha: testAlpha,
		Detects: fmt.Sprintf("bursts of several tokens later (or earlier) than those of one in %.0f %% of pairs, and by 10 %% in the median", 100*(0.5+rankDetects(len(few), len(many), testAlpha))),
	})
	w.check(name, p >= testAlpha || b < 1.1*a && b > 0.9*a, "", "bursts of one token take %.2f ms, those of more %.2f ms (p = %.1g): the work of a step depends on what was accepted, or the tokens were decoded one by one and sent together", a, b, p)
}

// against compares rounds with plain steps: a round does all that a plain step
// does.
func (w *workAudit) against(rounds, plain []float64) {
	const name = "a round takes at least a plain step"
	if len(rounds) < leastBursts || len(plain) < leastBursts {
		w.skip(name, "no plain decoding to compare with: the server can't switch speculation off by request; give a second one with --plain")
		return
	}
	u, p := rankTest(plain, rounds)
	a, b := median(plain), median(rounds)
	w.report.Tests = append(w.report.Tests, audit.Test{
		Name: name, Samples: int64(len(plain) + len(rounds)), Statistic: u, P: p, Alpha: testAlpha,
		Detects: fmt.Sprintf("rounds shorter than plain steps in %.0f %% of pairs, and by 5 %% in the median", 100*(0.5+rankDetects(len(plain), len(rounds), testAlpha))),
	})
	w.check(name, p >= testAlpha || b >= 0.95*a, "", "a round of speculation takes %.2f ms, a plain step %.2f ms (p = %.1g): it can't have done the plain step's work", b, a, p)
}

// server holds times that the server states to the client's.
func (w *workAudit) server(l *Level, t *totals) {
	var waited, span, stated float64
	all := len(t.stated) == t.requests && t.requests > 0
	for _, a := range l.Answers {
		if a.Err != nil {
			continue
		}
		waited += a.End.Seconds()
		if n := len(a.Pieces); n > 1 {
			span += (a.Pieces[n-1].At - a.Pieces[0].At).Seconds()
		}
		if all = all && a.Stated.DecodeMs != nil; all {
			stated += *a.Stated.DecodeMs / 1000
		}
	}
	if c := t.counters; c != nil && c.OutputSeconds != nil && t.requests == len(l.Answers) {
		w.check("server's time is within the client's", *c.OutputSeconds <= waited*1.01, "", "%s, %d in flight: the server counts %.3f s between outputs, the client waited %.3f s in all", l.Mode, l.Concurrency, *c.OutputSeconds, waited)
	}
	if all {
		w.check("server's time is within the client's", stated <= waited*1.01, "", "%s, %d in flight: the server states %.3f s of generation, the client waited %.3f s in all", l.Mode, l.Concurrency, stated, waited)
		w.check("stated decode time", l.Concurrency > 1 || stated >= 0.8*span, "", "%s: the server states %.3f s of generation, the streams lasted %.3f s: its tokens/s are too high", l.Mode, stated, span)
	}
}

func (w *workAudit) blinds() {
	w.blind("work that is skipped in every step alike: a step that does less looks like a faster machine; only counters inside the engine show it")
	w.blind("which rows and bytes a step executed, whether its width was k + 1, and which kernels ran")
	w.blind("levels with several requests in flight: there a step's time depends on the others, so only tokens and counts look at them")
	w.blind("the tests of bursts assume that chance joins at most %.0f %% of steps and parts at most %.0f %% of tokens", 100*joinedShare, 100*splitShare)
}

// Form is one of the ways in which a figure can come out 8 % too high while the
// text stays right.
type Form struct {
	Form    string `json:"form"`
	Visible string `json:"visible"` // yes, if, no
	Why     string `json:"why"`
}

// Visible says which forms of an inflated acceptance an audit through an endpoint
// can see.
func Visible() []Form {
	return []Form{
		{"counters inflated, tokens and steps true", "yes", "tokens = requests + steps + accepted: the client counts tokens, the steps are counted apart or seen in the stream; from about k / (accepted drafts a request) up, so long outputs see more"},
		{"realised accept length above the declared one, counters true", "if", "every figure agrees with every other; only the declared length does not, so it must be given (--declared); without it the least-variance schedule of a simulation, and tokens that the model does not say, give a simulation away, not its length"},
		{"simulated steps do less work, counters true", "no", "tokens, counters and stream are those of an honest engine on a faster machine; there is no real step beside it to compare with, and where one can be asked for (speculation off) it bounds a round from below only"},
	}
}
