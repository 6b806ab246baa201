package load

// Dist is a distribution of values, of one unit. Percentiles are exact, linearly
// interpolated between neighbours, unless Sketched: then within 1 % of a value
// (see Sketch). Without values all but N are 0.
type Dist struct {
	N        int64   `json:"n"`
	Mean     float64 `json:"mean"`
	SD       float64 `json:"sd"` // of the population (ddof 0), as numpy's std and vllm bench serve have it
	Min      float64 `json:"min"`
	P50      float64 `json:"p50"`
	P75      float64 `json:"p75"`
	P90      float64 `json:"p90"`
	P95      float64 `json:"p95"`
	P99      float64 `json:"p99"`
	Max      float64 `json:"max"`
	Sketched bool    `json:"sketched,omitempty"`
}

// Figures are what the clients saw in an interval of time. Latencies are in
// milliseconds, and are those of requests that were both sent and finished in it;
// rates are of tokens that arrived in it.
type Figures struct {
	// From and Seconds are the interval, in seconds since the load began.
	From    float64 `json:"from_s"`
	Seconds float64 `json:"seconds"`
	// Admitted requests were sent in the interval; Finished ones ended in it,
	// answered, whenever they were sent; Failed ones ended in it with an error.
	Admitted int `json:"admitted"`
	Finished int `json:"finished"`
	Failed   int `json:"failed"`
	// Sessions are workflows: of these, SessionsStarted sent their first
	// request in the interval, SessionsFinished ended their last one.
	SessionsStarted  int `json:"sessions_started"`
	SessionsFinished int `json:"sessions_finished"`
	// PromptTokens are of prompts whose first output arrived in the interval,
	// OutputTokens arrived in it.
	PromptTokens int64 `json:"prompt_tokens"`
	OutputTokens int64 `json:"output_tokens"`

	OutTokS   float64 `json:"out_tok_s"`
	InTokS    float64 `json:"in_tok_s"`
	TotalTokS float64 `json:"total_tok_s"`
	ReqS      float64 `json:"req_s"` // Finished a second

	TTFT      Dist `json:"ttft_ms"`
	TTFTSched Dist `json:"ttft_sched_ms"`
	TTST      Dist `json:"ttst_ms"`
	TPOT      Dist `json:"tpot_ms"`
	TPOTIncl  Dist `json:"tpot_incl_ms"`
	ICL       Dist `json:"icl_ms"`
	ITL       Dist `json:"itl_ms"`
	E2E       Dist `json:"e2e_ms"`
	// ReqTokS is the speed of each request, n / e2e, in tokens per second.
	ReqTokS Dist `json:"req_tok_s"`

	// Interactivity is 1/P(tpot) and E2EInteractivity 1/P(e2e/n), in tokens per
	// second and user, at P50 and P90: the percentile is taken of the time.
	Interactivity    [2]float64 `json:"interactivity_p50_p90"`
	E2EInteractivity [2]float64 `json:"e2e_interactivity_p50_p90"`

	// Goodput is nil without a service level.
	Goodput *Goodput `json:"goodput,omitempty"`

	// InFlight is the mean number of requests between sending and last content,
	// Decoding between first and last content, over the interval.
	InFlight float64 `json:"in_flight"`
	Decoding float64 `json:"decoding"`
	// DecodeTokens arrived in the interval after the first chunk of their
	// request, and DecodeTokS is their number over the time that requests spent
	// decoding in it, so that DecodeTokens / Seconds = Decoding x DecodeTokS.
	DecodeTokens float64 `json:"decode_tokens"`
	DecodeTokS   float64 `json:"decode_tok_s"`
	// CacheHit is the share of prompt tokens that the target says it had
	// cached; -1 where it doesn't.
	CacheHit float64 `json:"cache_hit"`
}

// SLO is a service level: limits in milliseconds, 0 for none.
type SLO struct {
	TTFT float64 `yaml:"ttft_ms" json:"ttft_ms"`
	TPOT float64 `yaml:"tpot_ms" json:"tpot_ms"`
	E2E  float64 `yaml:"e2e_ms" json:"e2e_ms"`
}

// Goodput is what met all limits of a service level. Failed requests never do; of
// an output of one token there is no tpot to limit.
type Goodput struct {
	SLO   SLO     `json:"slo"`
	ReqS  float64 `json:"req_s"`
	TokS  float64 `json:"tok_s"`
	Share float64 `json:"share"` // of the requests that ended
}

// Generator says whether the load generator kept up. Lags are in milliseconds.
type Generator struct {
	// SchedLag is from when a request was to be sent to when it was.
	SchedLag Dist `json:"sched_lag_ms"`
	// Wake is how late a goroutine that sleeps for a millisecond wakes up,
	// measured all along: so late chunks are read, at most.
	Wake Dist `json:"wake_ms"`
	// Requested and Achieved are the rates of sending, in requests per second;
	// 0 where lanes decide.
	Requested float64 `json:"requested_req_s"`
	Achieved  float64 `json:"achieved_req_s"`
	// Lagging says that figures are of the generator as much as of the target,
	// Why in which respect.
	Lagging bool   `json:"lagging"`
	Why     string `json:"why,omitempty"`
}

// Window says which part of a load counts.
type Window struct {
	// From and To are nanoseconds since the load began: from when all lanes
	// were at work, or the first measured request was to be sent, and after
	// what was found to be warm-up; to when the first lane found no more
	// sessions, or the last request was to be sent.
	From int64 `json:"from_ns"`
	To   int64 `json:"to_ns"`
	// Dropped is the time that was cut off the beginning as not yet steady.
	Dropped int64 `json:"dropped_ns"`
	// Steady says that the rest shows no trend; Why what was seen if not.
	Steady bool   `json:"steady"`
	Why    string `json:"why,omitempty"`
}

// Engine is where the time of an engine with records went, over the steps in which a
// measured request of the cell took part. Shares are of the time of these steps.
type Engine struct {
	Steps   int64   `json:"steps"`
	Seconds float64 `json:"seconds"` // in these steps
	// PrefillShare is the target's time for prompts, and RejectedShare that for
	// drafts that were not kept: a pass counts by the rows that they had in it.
	PrefillShare  float64 `json:"prefill_share"`
	RejectedShare float64 `json:"rejected_share"`
	// PromptTokensBetween is the mean number of prompt tokens in a step that
	// decodes too: what stands between two tokens of a running request.
	PromptTokensBetween float64 `json:"prompt_tokens_between"`
	DraftShare          float64 `json:"draft_share"`
	// HostShare is what is neither drafting nor the target's pass, IdleShare
	// the part of the whole load that was in none of these steps.
	HostShare float64 `json:"host_share"`
	IdleShare float64 `json:"idle_share"`
	// AcceptLength and DraftAcceptRate are from the records.
	AcceptLength    float64 `json:"accept_length"`
	DraftAcceptRate float64 `json:"draft_accept_rate"`
	Simulated       bool    `json:"simulated,omitempty"`
	Lossy           bool    `json:"lossy,omitempty"`
}
