package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"exacta.dev/exacta/engine/sched"
)

// vllmMeter is the metrics that vLLM's servers have, by their names, labels and
// buckets, as far as they mean something here.
type vllmMeter struct {
	drafts, drafted, accepted           prometheus.Counter
	position                            *prometheus.CounterVec
	prompt, generation, cached          prometheus.Counter
	queries, hits, preemptions          prometheus.Counter
	success                             *prometheus.CounterVec
	ttft, itl, tpot, e2e                prometheus.Observer
	queue, prefill, decode, inference   prometheus.Observer
	promptTokens, answerTokens, maximum prometheus.Observer
	n, maxTokens, iteration             prometheus.Observer
}

// Buckets of vLLM, in seconds and tokens.
var (
	ttftBuckets  = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBuckets = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	totalBuckets = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	countBuckets = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
	stepBuckets  = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
)

// register makes the metrics.
func (v *vllmMeter) register(reg *prometheus.Registry, model string, load func() sched.Load) {
	labels := prometheus.Labels{"model_name": model, "engine": "0"}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels})
		reg.MustRegister(c)
		return c
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels}, []string{label})
		reg.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels, Buckets: buckets})
		reg.MustRegister(h)
		return h
	}
	gauge := func(name, help string, f func(sched.Load) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels}, func() float64 { return f(load()) }))
	}
	v.drafts = counter("spec_decode_num_drafts_total", "Number of spec decoding drafts.")
	v.drafted = counter("spec_decode_num_draft_tokens_total", "Number of draft tokens.")
	v.accepted = counter("spec_decode_num_accepted_tokens_total", "Number of accepted tokens.")
	v.position = vec("spec_decode_num_accepted_tokens_per_pos_total", "Accepted tokens per draft position.", "position")
	v.prompt = counter("prompt_tokens_total", "Number of prefill tokens processed.")
	v.generation = counter("generation_tokens_total", "Number of generation tokens processed.")
	v.cached = counter("prompt_tokens_cached_total", "Number of cached prompt tokens.")
	v.queries = counter("prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.")
	v.hits = counter("prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.")
	v.preemptions = counter("num_preemptions_total", "Cumulative number of preemptions.")
	v.success = vec("request_success_total", "Count of successfully processed requests.", "finished_reason")
	v.ttft = histogram("time_to_first_token_seconds", "Time to first token in seconds.", ttftBuckets)
	v.itl = histogram("inter_token_latency_seconds", "Time between two outputs of a request, in seconds: one for each step.", tokenBuckets)
	v.tpot = histogram("request_time_per_output_token_seconds", "Time per output token of a request in seconds.", tokenBuckets)
	v.e2e = histogram("e2e_request_latency_seconds", "End to end request latency in seconds.", totalBuckets)
	v.queue = histogram("request_queue_time_seconds", "Time spent waiting.", totalBuckets)
	v.prefill = histogram("request_prefill_time_seconds", "Time spent in prefill.", totalBuckets)
	v.decode = histogram("request_decode_time_seconds", "Time spent in decode.", totalBuckets)
	v.inference = histogram("request_inference_time_seconds", "Time spent running.", totalBuckets)
	v.promptTokens = histogram("request_prompt_tokens", "Number of prefill tokens of a request.", countBuckets)
	v.answerTokens = histogram("request_generation_tokens", "Number of generation tokens of a request.", countBuckets)
	v.maximum = histogram("request_max_num_generation_tokens", "Maximum number of requested generation tokens.", countBuckets)
	v.n = histogram("request_params_n", "The n request parameter.", []float64{1, 2, 5, 10, 20})
	v.maxTokens = histogram("request_params_max_tokens", "The max_tokens request parameter.", countBuckets)
	v.iteration = histogram("iteration_tokens_total", "Number of tokens per engine step.", stepBuckets)
	gauge("num_requests_running", "Number of requests in model execution.", func(l sched.Load) float64 { return float64(l.Running) })
	gauge("num_requests_waiting", "Number of requests waiting to be processed.", func(l sched.Load) float64 { return float64(l.Waiting) })
	gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", func(l sched.Load) float64 {
		return float64(l.Pages-l.FreePages-l.IdlePages) / float64(max(1, l.Pages))
	})
}

// prefix takes a look-up in the prefix cache.
func (v *vllmMeter) prefix(queried, cached int) {
	v.prompt.Add(float64(queried))
	v.queries.Add(float64(queried))
	v.hits.Add(float64(cached))
	v.cached.Add(float64(cached))
}

// ended takes the end of a job that ran.
func (v *vllmMeter) ended(g *generation, j *job, reason string, c counts) {
	if reason == "stop" || reason == "length" {
		v.success.WithLabelValues(reason).Inc()
	}
	v.preemptions.Add(float64(c.Preemptions))
	v.queue.Observe(c.Scheduled.Sub(j.arrived).Seconds())
	v.e2e.Observe(c.Ended.Sub(j.arrived).Seconds())
	v.promptTokens.Observe(float64(len(j.req.Prompt)))
	v.answerTokens.Observe(float64(c.Emitted))
	v.maximum.Observe(float64(j.req.MaxNew))
	v.maxTokens.Observe(float64(j.req.MaxNew))
	v.n.Observe(float64(g.n))
	v.inference.Observe(c.Ended.Sub(c.Scheduled).Seconds())
	if c.First.IsZero() {
		return
	}
	v.prefill.Observe(c.First.Sub(c.Scheduled).Seconds())
	decode := c.Last.Sub(c.First).Seconds()
	v.decode.Observe(decode)
	if c.Emitted > 1 {
		v.tpot.Observe(decode / float64(c.Emitted-1))
	}
}
