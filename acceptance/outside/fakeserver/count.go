package fakeserver

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"exacta.dev/exacta/acceptance/outside"
)

// tally is what one trace counts.
func tally(t *Trace, k int) counts {
	n := counts{positions: make([]int64, k), generated: int64(len(t.Output()))}
	for _, st := range t.Steps {
		n.all++
		if len(st.Offered) == 0 {
			continue
		}
		n.steps++
		n.proposed += int64(len(st.Offered))
		n.accepted += int64(st.Accepted)
		for i := range min(st.Accepted, k) {
			n.positions[i]++
		}
	}
	if t.Finish == "stop" {
		n.stop = 1
	} else {
		n.length = 1
	}
	return n
}

// count adds a trace to the counters.
func (s *Server) count(prompt []int32, t *Trace, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := tally(t, s.K)
	times := int64(1)
	if s.Fault == Foreign {
		times = 2
	}
	c := &s.n
	if c.positions == nil {
		c.positions = make([]int64, s.K)
	}
	for range times {
		c.steps += n.steps
		c.all += n.all
		c.proposed += n.proposed
		c.accepted += n.accepted
		c.generated += n.generated
		c.prompt += int64(len(prompt))
		c.stop += n.stop
		c.length += n.length
		c.seconds += d.Seconds()
		c.passes += 1 + n.all
		for i := range c.positions {
			c.positions[i] += n.positions[i]
		}
	}
}

// told is what a server says that counts n.
func (s *Server) told(n counts) counts {
	n.positions = append([]int64{}, n.positions...)
	switch s.Fault {
	case Inflated, FewerSteps:
		more := int64(math.Round(0.08 * float64(n.accepted)))
		n.accepted += more
		if s.Fault == FewerSteps {
			n.all -= more
			n.steps = min(n.steps, n.all)
			n.passes -= more
			n.proposed = min(n.proposed, n.steps*int64(s.K))
		}
		for i := range n.positions {
			add := min(more, n.steps-n.positions[i])
			if i == len(n.positions)-1 {
				add = more
			}
			n.positions[i] += add
			more -= add
		}
	case ByCap:
		n.steps = n.all
		n.proposed = n.all * int64(s.K)
	case BonusAccepted:
		n.accepted += n.steps
	case OffByOne:
		n.positions = append([]int64{n.steps}, n.positions[:max(0, len(n.positions)-1)]...)
	case Stuck:
		return counts{positions: make([]int64, len(n.positions))}
	}
	return n
}

// metrics writes the counters in the dialect's names.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	if s.HTMLMetrics {
		fmt.Fprint(w, "<html><body>log in</body></html>")
		return
	}
	s.mu.Lock()
	n := s.told(s.n)
	s.mu.Unlock()
	var b strings.Builder
	line := func(name string, v any) { fmt.Fprintf(&b, "# TYPE %s counter\n%s %v\n", name, name, v) }
	position := func(name, labels string) {
		for i, v := range n.positions {
			fmt.Fprintf(&b, "%s{%sposition=\"%d\"} %d\n", name, labels, i, v)
		}
	}
	switch s.Dialect {
	case outside.VLLM:
		const l = `{engine="0",model_name="toy"}`
		line("vllm:spec_decode_num_drafts_total"+l, n.steps)
		line("vllm:spec_decode_num_draft_tokens_total"+l, n.proposed)
		line("vllm:spec_decode_num_accepted_tokens_total"+l, n.accepted)
		position("vllm:spec_decode_num_accepted_tokens_per_pos_total", `engine="0",`)
		line("vllm:generation_tokens_total"+l, n.generated)
		line("vllm:prompt_tokens_total"+l, n.prompt)
		fmt.Fprintf(&b, "vllm:request_success_total{finished_reason=\"stop\"} %d\nvllm:request_success_total{finished_reason=\"length\"} %d\nvllm:request_success_total{finished_reason=\"abort\"} 0\n", n.stop, n.length)
		line("vllm:inter_token_latency_seconds_count"+l, n.all)
		line("vllm:inter_token_latency_seconds_sum"+l, n.seconds)
	case outside.SGLang:
		line("sglang:generation_tokens_total", n.generated)
		line("sglang:prompt_tokens_total", n.prompt)
		line("sglang:num_requests_total", n.stop+n.length)
	case outside.LlamaCpp:
		line("llamacpp:prompt_tokens_total", n.prompt)
		line("llamacpp:tokens_predicted_total", n.generated)
		line("llamacpp:n_decode_total", n.passes)
		line("llamacpp:spec_decode_num_draft_tokens_total", n.proposed)
		line("llamacpp:spec_decode_num_accepted_tokens_total", n.accepted)
		line("llamacpp:spec_decode_num_drafts_total", n.steps)
		position("llamacpp:spec_decode_num_accepted_tokens_per_pos_total", "")
	}
	fmt.Fprint(w, b.String())
}
