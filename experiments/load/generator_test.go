package load

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/acceptance/outside/fakeserver"
	"exacta.dev/exacta/experiments/workload"
)

// against runs a load on a handler, without a network: in a bubble of package
// synctest, time is that of the test alone.
func against(t *testing.T, h http.Handler, o Options) *Result {
	t.Helper()
	client, stop := fakeserver.Pipe(h)
	defer stop()
	c, err := outside.NewClient("http://fake")
	require.NoError(t, err)
	c.HTTP = client
	defer client.CloseIdleConnections()
	o.Client, o.Model = c, fakeModel
	if o.Dialect == "" {
		o.Dialect = outside.VLLM
	}
	res, err := Run(t.Context(), o)
	require.NoError(t, err)
	for i := range res.Rows {
		require.NoError(t, res.Rows[i].check(), "row %d", i)
	}
	return res
}

// plan makes n sessions of one request each.
func plan(n, lanes, prompt, output int) *workload.Plan {
	p := &workload.Plan{Lanes: lanes}
	for i := range n {
		id := string(rune('a' + i))
		p.Sessions = append(p.Sessions, workload.Session{ID: id, Requests: []workload.Request{{ID: id, Tokens: make([]int32, prompt), MaxTokens: output, Exact: true}}})
	}
	return p
}

const msec = int64(time.Millisecond)

// On a clock that is exact, so are rows and figures.
func TestExactTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Fake{Dialect: outside.VLLM, First: 100 * time.Millisecond, Step: 20 * time.Millisecond, PerStep: 2}
		res := against(t, f.Handler(), Options{Plan: plan(3, 1, 7, 5)})
		require.Len(t, res.Rows, 3)
		for i, r := range res.Rows {
			at := int64(i) * 140 * msec
			require.Equal(t, []int64{at, at, at + 100*msec, at + 140*msec, at + 140*msec}, []int64{r.Sched, r.Sent, r.First, r.Last, r.End})
			require.Equal(t, []int64{20 * msec, 20 * msec}, r.Gaps)
			require.Equal(t, []int{2, 2, 1}, r.Tokens)
			require.Equal(t, 7, r.Prompt)
			require.Equal(t, 5, r.Output)
			require.Equal(t, "length", r.Finish)
			require.Equal(t, res.Rows[0].OutputHash, r.OutputHash)
		}
		fig := Measure(&SLO{TTFT: 100, TPOT: 10}, Whole(res.Rows))
		require.Equal(t, 0.42, fig.Seconds)
		require.Equal(t, Dist{N: 3, Mean: 100, Min: 100, P50: 100, P75: 100, P90: 100, P95: 100, P99: 100, Max: 100}, fig.TTFT)
		require.Equal(t, 10.0, fig.TPOT.P50)
		require.Equal(t, 28.0, fig.TPOTIncl.P50)
		require.Equal(t, 140.0, fig.E2E.P99)
		require.Equal(t, 20.0, fig.ICL.Mean)
		require.Equal(t, int64(9), fig.ITL.N, "a gap is spread over the tokens of its chunk")
		require.InDelta(t, (2*10+20)/3.0, fig.ITL.Mean, 1e-12)
		require.InDelta(t, 15/0.42, fig.OutTokS, 1e-9)
		require.InDelta(t, 1, fig.InFlight, 1e-12)
		require.InDelta(t, 40.0/140, fig.Decoding, 1e-12)
		require.InDelta(t, 3/0.04, fig.DecodeTokS, 1e-9)
		require.InDelta(t, fig.DecodeTokens/fig.Seconds, fig.Decoding*fig.DecodeTokS, 1e-9)
		require.Equal(t, 100.0, fig.Interactivity[0])
		require.Equal(t, 1.0, fig.Goodput.Share)
		require.False(t, res.Generator.Lagging)
	})
}

// Lanes: N requests in flight, the next one when one has ended.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Fake{Dialect: outside.VLLM, First: 10 * time.Millisecond, Step: 10 * time.Millisecond, PerStep: 1}
		res := against(t, f.Handler(), Options{Plan: plan(7, 3, 1, 10), Warmup: 2})
		w := FindWindow(res.Rows, 3)
		for i, r := range res.Rows {
			require.Equal(t, int64(i/3)*100*msec, r.Sent)
			require.Equal(t, i < 2, r.Phase == Warmup)
		}
		require.Equal(t, 100*msec, w.From, "when the last lane sent its first measured request")
		require.Equal(t, 200*msec, w.To, "when the first lane had no more")
	})
}

// Sessions: a request waits for all that it is after, then for its pause; the lane
// goes on when the whole tree has ended.
func TestTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := func(id string, n int, pause time.Duration, after ...int) workload.Request {
			return workload.Request{ID: id, Tokens: []int32{1}, MaxTokens: n, Exact: true, Pause: pause, After: after}
		}
		f := &Fake{Dialect: outside.VLLM, First: 10 * time.Millisecond, Step: 10 * time.Millisecond, PerStep: 1}
		p := &workload.Plan{Lanes: 1, Sessions: []workload.Session{
			{ID: "s", Requests: []workload.Request{r("root", 1, 0), r("x", 5, 20*time.Millisecond, 0), r("y", 2, 0, 0), r("end", 1, 7*time.Millisecond, 1, 2), r("late", 30, 0, 0)}},
			{ID: "t", Requests: []workload.Request{r("next", 1, time.Minute), r("last", 1, time.Hour, 0)}},
		}}
		rows := against(t, f.Handler(), Options{Plan: p}).Rows
		sent := map[string]time.Duration{}
		for _, r := range rows {
			sent[r.Request] = time.Duration(r.Sent)
		}
		require.Equal(t, 10*time.Millisecond, sent["y"])
		require.Equal(t, 30*time.Millisecond, sent["x"])
		require.Equal(t, 87*time.Millisecond, sent["end"], "after x has ended at 80")
		require.Equal(t, time.Minute+310*time.Millisecond, sent["next"], "after late has ended at 310")
		require.Equal(t, time.Hour+time.Minute+320*time.Millisecond, sent["last"])
		capped := against(t, f.Handler(), Options{Plan: p, IdleCap: 3 * time.Second}).Rows
		require.Equal(t, int64(6320)*msec, capped[len(capped)-1].Sent, "nothing is idle for more than the cap")
	})
}

// Open loads keep their times whatever the target does, and end with Seconds.
func TestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Fake{Dialect: outside.SGLang, First: time.Second, Step: time.Second, PerStep: 1, Sequences: 1}
		p := plan(10, 0, 1, 2)
		for i := range p.Sessions {
			p.Sessions[i].At = time.Duration(i) * 500 * time.Millisecond
		}
		res := against(t, f.Handler(), Options{Plan: p, Seconds: 1.75, Dialect: outside.SGLang})
		require.Len(t, res.Rows, 4, "what was not sent has no row")
		for i, r := range res.Rows {
			require.Equal(t, int64(i)*500*msec, r.Sent)
			require.Equal(t, int64(1000+2000*i)*msec, r.First, "the server takes one at a time")
			require.Nil(t, r.Tokens, "it does not tell ids")
		}
		require.InDelta(t, 8/1.5*0.5, res.Generator.Requested, 1e-9)
	})
}

// The turn before a session's start is sent ahead, and counts nowhere.
func TestWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Fake{Dialect: outside.VLLM, First: time.Second, Step: time.Second, PerStep: 1}
		p := plan(2, 1, 1, 2)
		p.Sessions[0].Requests = []workload.Request{
			{ID: "w", Tokens: []int32{1}, MaxTokens: 4, Exact: true, Warm: true}, {ID: "m", Tokens: []int32{1}, MaxTokens: 2, Exact: true, After: []int{0}, Pause: time.Second},
		}
		rows := against(t, f.Handler(), Options{Plan: p}).Rows
		require.Equal(t, Warmup, rows[0].Phase)
		require.Equal(t, int64(1000)*msec, rows[1].Sent, "the load begins when the warm-up has ended")
		require.Equal(t, int64(3000)*msec, rows[2].Sent)
		require.Equal(t, 2, Measure(nil, Whole(rows)).Finished)
	})
}

// Answers that are not what was asked for are failures, and say why.
func TestFailures(t *testing.T) {
	for want, h := range map[string]http.HandlerFunc{
		"status 503 Service Unavailable: \"full\"": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":{"message":"full"}}`, http.StatusServiceUnavailable)
		},
		"the answer has no content":                    sse(`{"choices":[{"text":"","finish_reason":"length"}]}`, `[DONE]`),
		"neither usage nor token ids came":             sse(`{"choices":[{"text":"a","finish_reason":"length"}]}`, `[DONE]`),
		"the answer has 1 tokens; 5 were asked for":    sse(`{"choices":[{"text":"a","token_ids":[3],"finish_reason":"stop"}]}`, `[DONE]`),
		"the server read 8 tokens of prompt; 7 were":   sse(`{"choices":[{"text":"a","finish_reason":"length"}]}`, `{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":5}}`, `[DONE]`),
		"the stream was cut off":                       sse(`{"choices":[{"text":"a","token_ids":[1,2,3,4,5]}]}`),
		"the server reports an error: {\"message\":":   sse(`{"error":{"message":"out of memory"}}`),
		"an event is not the JSON that it should be: ": sse(`{"choices":`),
	} {
		synctest.Test(t, func(t *testing.T) {
			res := against(t, h, Options{Plan: plan(1, 1, 7, 5)})
			require.Contains(t, res.Rows[0].Error, want)
			f := Measure(nil, Span{res.Rows, 0, int64(time.Hour)})
			require.Equal(t, 1, f.Failed)
			require.Zero(t, f.Finished)
		})
	}
}

func sse(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			_, _ = w.Write([]byte("data: " + e + "\n\n"))
		}
	}
}

// An interrupted load comes back with what it has.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Fake{Dialect: outside.VLLM, First: time.Second, Step: time.Second, PerStep: 1}
		client, stop := fakeserver.Pipe(f.Handler())
		defer stop()
		c, err := outside.NewClient("http://fake")
		require.NoError(t, err)
		c.HTTP = client
		defer client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		res, err := Run(ctx, Options{Client: c, Dialect: outside.VLLM, Model: fakeModel, Plan: plan(5, 1, 1, 2)})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, res.Rows, 2)
		require.True(t, res.Rows[0].OK())
		require.False(t, res.Rows[1].OK())
	})
}

// Rows survive being written, to the last digit.
func TestRowsRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Fake{Dialect: outside.VLLM, First: 33333333, Step: 7777777, PerStep: 3}
		rows := against(t, f.Handler(), Options{Plan: plan(5, 2, 3, 50)}).Rows
		var b bytes.Buffer
		require.NoError(t, WriteRows(&b, rows))
		again, err := ReadRows("r", &b)
		require.NoError(t, err)
		require.Equal(t, rows, again)
		require.Equal(t, Measure(nil, Whole(rows)), Measure(nil, Whole(again)))
	})
}
