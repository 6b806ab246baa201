package server

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sched"
)

// meter is the server's metrics: ours, and the set that vLLM's dashboards and
// benchmarks read, with the meaning that it has there.
type meter struct {
	model string
	reg   *prometheus.Registry

	responses *prometheus.CounterVec // by path and status
	requests  *prometheus.CounterVec // answers by why they ended
	slow      prometheus.Counter
	cancelled *prometheus.CounterVec

	steps                      prometheus.Counter
	stepTime                   prometheus.Histogram
	stepRows                   *prometheus.CounterVec
	drafted, accepted, checks  *prometheus.CounterVec // by strategy
	position                   *prometheus.CounterVec // accepted, by strategy and position
	prompt, cached, emitted    prometheus.Counter
	ttft, perStep, total, wait prometheus.Histogram
	v                          vllmMeter
}

// newMeter registers the metrics. load is asked at each scrape.
func newMeter(reg *prometheus.Registry, model string, load func() sched.Load, open func() int) *meter {
	m := &meter{model: model, reg: reg}
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		reg.MustRegister(h)
		return h
	}
	fine := prometheus.ExponentialBuckets(0.0005, 2, 18)
	m.responses = vec("exacta_http_responses_total", "HTTP responses; status 499 is a client that went away.", "path", "status")
	m.requests = vec("exacta_answers_total", "Answers, by why they ended.", "finish")
	m.slow = counter("exacta_slow_readers_total", "Answers that were cancelled because their client did not read.")
	m.cancelled = vec("exacta_cancelled_total", "Answers that were cancelled, by why.", "reason")
	m.steps = counter("exacta_steps_total", "Steps of the engine.")
	m.stepTime = histogram("exacta_step_seconds", "Time of a step.", fine)
	m.stepRows = vec("exacta_step_rows_total", "Rows that steps computed, of prompts (prefill) or of answers and drafts (decode).", "phase")
	m.drafted = vec("exacta_drafted_tokens_total", "Draft tokens that the model verified.", "strategy")
	m.accepted = vec("exacta_accepted_tokens_total", "Draft tokens that were accepted.", "strategy")
	m.checks = vec("exacta_verifications_total", "Verifications, of drafts or of none.", "strategy")
	m.position = vec("exacta_accepted_tokens_by_position_total", "Accepted draft tokens by their place in the draft.", "strategy", "position")
	m.prompt = counter("exacta_prompt_tokens_total", "Tokens of prompts that were read or found in the prefix cache.")
	m.cached = counter("exacta_cached_tokens_total", "Of these, those that the prefix cache had.")
	m.emitted = counter("exacta_emitted_tokens_total", "Tokens of answers.")
	m.wait = histogram("exacta_queue_seconds", "Arrival of a request to its first step.", fine)
	m.ttft = histogram("exacta_time_to_first_token_seconds", "Arrival of a request to its first token.", fine)
	m.perStep = histogram("exacta_time_between_steps_seconds", "Time between two steps of an answer that gave tokens.", fine)
	m.total = histogram("exacta_answer_seconds", "Arrival of a request to the end of its answer.", fine)
	m.gauges(load, open)
	m.v.register(reg, model, load)
	return m
}

// expect begins the counters of strategies at 0.
func (m *meter) expect(strategies []string) {
	for _, s := range strategies {
		m.checks.WithLabelValues(s)
		m.drafted.WithLabelValues(s)
		m.accepted.WithLabelValues(s)
	}
}

// gauges registers what is asked at a scrape.
func (m *meter) gauges(load func() sched.Load, open func() int) {
	gauge := func(name, help string, labels prometheus.Labels, f func() float64) {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, f))
	}
	gauge("exacta_open_answers", "Answers that are waiting, running, or not yet told.", nil, func() float64 { return float64(open()) })
	gauge("exacta_waiting", "Sequences that wait for a slot or for memory.", nil, func() float64 { return float64(load().Waiting) })
	gauge("exacta_running", "Sequences that the engine reads or continues.", nil, func() float64 { return float64(load().Running) })
	for state, f := range map[string]func(sched.Load) int{
		"free":   func(l sched.Load) int { return l.FreePages },
		"cached": func(l sched.Load) int { return l.IdlePages },
		"used":   func(l sched.Load) int { return l.Pages - l.FreePages - l.IdlePages },
	} {
		gauge("exacta_kv_pages", "KV pages: free, kept by the prefix cache alone, or used.", prometheus.Labels{"state": state}, func() float64 { return float64(f(load())) })
	}
}

// step takes the first record of a step.
func (m *meter) step(r *engine.Record) {
	m.steps.Inc()
	m.stepTime.Observe(float64(r.TotalNs) / 1e9)
	m.stepRows.WithLabelValues("prefill").Add(float64(r.PrefillTokens))
	m.stepRows.WithLabelValues("decode").Add(float64(r.BatchRows - r.PrefillTokens))
	m.v.iteration.Observe(float64(r.BatchRows))
}

// record takes a record of a job, whose counts have it already.
func (m *meter) record(j *job, r *engine.Record, now time.Time) {
	emitted := len(r.EmittedIDs)
	m.emitted.Add(float64(emitted))
	m.v.generation.Add(float64(emitted))
	if r.Phase == engine.Prefill {
		if r.SeqStep == 0 {
			m.cached.Add(float64(r.Cached))
			m.prompt.Add(float64(r.Cached))
			m.v.prefix(len(j.req.Prompt), int(r.Cached))
		}
		m.prompt.Add(float64(r.Rows))
	} else {
		m.verified(r)
	}
	if emitted == 0 {
		return
	}
	if j.counts.First.Equal(now) {
		d := now.Sub(j.arrived).Seconds()
		m.ttft.Observe(d)
		m.v.ttft.Observe(d)
	} else {
		d := now.Sub(j.before).Seconds()
		m.perStep.Observe(d)
		m.v.itl.Observe(d)
	}
	j.before = now
}

// verified takes a verification.
func (m *meter) verified(r *engine.Record) {
	m.checks.WithLabelValues(r.Drafter).Inc()
	if r.TreeNodes == 0 {
		return
	}
	m.drafted.WithLabelValues(r.Drafter).Add(float64(r.TreeNodes))
	m.accepted.WithLabelValues(r.Drafter).Add(float64(r.Accepted))
	m.v.drafts.Inc()
	m.v.drafted.Add(float64(r.TreeNodes))
	m.v.accepted.Add(float64(r.Accepted))
	for i := range int(r.Accepted) {
		at := strconv.Itoa(i)
		m.position.WithLabelValues(r.Drafter, at).Inc()
		m.v.position.WithLabelValues(at).Inc()
	}
}

// ended takes the end of a job.
func (m *meter) ended(g *generation, j *job, end *ending) {
	reason, _ := g.finishReason(j, end)
	m.requests.WithLabelValues(reason).Inc()
	if end.finish == engine.FinishCancel {
		m.cancelled.WithLabelValues(fmt.Sprint(end.err)).Inc()
	}
	c := end.counts
	if c.Scheduled.IsZero() || c.Ended.IsZero() {
		return
	}
	m.wait.Observe(c.Scheduled.Sub(j.arrived).Seconds())
	m.total.Observe(c.Ended.Sub(j.arrived).Seconds())
	m.v.ended(g, j, reason, c)
}
