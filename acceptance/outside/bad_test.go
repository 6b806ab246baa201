package outside_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/acceptance/outside/fakeserver"
)

func TestBadServersGiveOneClearError(t *testing.T) {
	toy := honest()
	for name, c := range map[string]struct {
		change func(*fakeserver.Server)
		want   string
	}{
		"500":     {func(s *fakeserver.Server) { s.Status = 500 }, `/v1/completions: status 500 Internal Server Error: "as told"`},
		"404":     {func(s *fakeserver.Server) { s.Status = 404 }, "/v1/completions: status 404 Not Found"},
		"html":    {func(s *fakeserver.Server) { s.HTML = true }, "the body is an HTML page, not a stream of events"},
		"cut":     {func(s *fakeserver.Server) { s.Cut = true }, "the stream was cut off"},
		"endless": {func(s *fakeserver.Server) { s.Endless = true }, "an event has more than"},
		"silent":  {func(s *fakeserver.Server) { s.Silent = true }, "nothing came for 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(outside.VLLM, toy, "")
			c.change(s)
			_, err := collect(t, s, plan(toy))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "http://server")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestServerThatIsNone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"no server": {nil, "connection refused"},
		"404":       {http.NotFound, "/v1/models: status 404"},
		"html": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html><body>Welcome</body></html>"))
		}, "/v1/models: the body is an HTML page, not JSON"},
		"no models": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"data": []}`)) }, "lists no model"},
		"not json":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"data": [`)) }, "not the JSON that it should be"},
		"huge": {func(w http.ResponseWriter, _ *http.Request) {
			for range 110 {
				_, _ = w.Write(make([]byte, 1<<20))
			}
		}, "the body has more than 67108864 bytes"},
		"moved": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "status 302 Found"},
	} {
		t.Run(name, func(t *testing.T) {
			at := address
			if c.handler != nil {
				s := httptest.NewServer(c.handler)
				defer s.Close()
				at = s.URL
			}
			client, err := outside.NewClient(at)
			require.NoError(t, err)
			defer client.Close()
			_, err = outside.Collect(t.Context(), client, plan(honest()))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestServerThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, stop := fakeserver.Pipe(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		defer stop()
		c, err := outside.NewClient("http://server")
		require.NoError(t, err)
		c.HTTP = client
		begin := time.Now()
		_, err = outside.Collect(t.Context(), c, plan(honest()))
		require.ErrorContains(t, err, "no answer within 1m0s")
		require.Equal(t, time.Minute, time.Since(begin))
	})
}

func TestInterruptEndsCollecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toy := honest()
		client, stop := fakeserver.Pipe(serve(outside.VLLM, toy, "").Handler())
		defer stop()
		c, err := outside.NewClient("http://server")
		require.NoError(t, err)
		c.HTTP = client
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err = outside.Collect(ctx, c, plan(toy))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAddresses(t *testing.T) {
	for _, bad := range []string{"", "localhost:8000", "ftp://host", "http://", "http://user:secret@host"} {
		_, err := outside.NewClient(bad)
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), "secret@")
	}
	c, err := outside.NewClient("http://host:8000/v1/?x=1")
	require.NoError(t, err)
	require.Equal(t, "http://host:8000", c.Address())
}

func TestMissingCounters(t *testing.T) {
	toy := honest()
	for want, change := range map[string]func(*fakeserver.Server){
		"the server has no /metrics":                      func(s *fakeserver.Server) { s.NoMetrics = true },
		"/metrics: the body is an HTML page, not metrics": func(s *fakeserver.Server) { s.HTMLMetrics = true },
	} {
		s := serve(outside.VLLM, toy, "")
		change(s)
		res := check(t, s, toy, plan(toy), outside.Options{})
		require.Equal(t, audit.Pass, res.Tokens.Verdict, show(res))
		require.Equal(t, audit.NotCheckable, res.Counts.Verdict, show(res))
		require.Contains(t, res.Counts.Why, want)
	}
}

func TestOtherModel(t *testing.T) {
	toy := honest()
	s := serve(outside.LlamaCpp, toy, "")
	s.Vocab = 49152
	res := check(t, s, toy, plan(toy), outside.Options{})
	caught(t, res, res.Tokens, "vocabulary", "not the same model")

	other := serve(outside.VLLM, toy, "")
	script := fakeserver.NewRecorded(func([]int32) string { return "text" })
	other.Script = wide{Toy: toy, Recorded: script}
	res = check(t, other, toy, plan(toy), outside.Options{})
	caught(t, res, res.Tokens, "ids of the vocabulary", "outside the model's vocabulary")
}

// wide emits ids that the toy doesn't have.
type wide struct {
	*fakeserver.Toy
	*fakeserver.Recorded
}

func (w wide) Trace(prompt []int32, n int, plain bool) *fakeserver.Trace {
	t := w.Toy.Trace(prompt, n, plain)
	t.First = 49151
	return t
}

func (w wide) Text(ids []int32) string { return w.Toy.Text(ids) }

func TestBadPlans(t *testing.T) {
	c, err := outside.NewClient("http://server")
	require.NoError(t, err)
	for _, p := range []outside.Plan{{}, {Prompts: [][]int32{{1}}, Requests: 1, MaxTokens: 1}, {Prompts: [][]int32{{1}}, Requests: 1, Concurrency: []int{1}}, {Prompts: [][]int32{{1}}, Requests: 1, Concurrency: []int{1, 0}, MaxTokens: 1}} {
		_, err := outside.Collect(t.Context(), c, p)
		require.ErrorContains(t, err, "at least 1 each")
	}
}

// Requests that fail among others are no fault of the tokens, and leave the audit
// without a verdict.
func TestSomeRequestsFail(t *testing.T) {
	toy := honest()
	s := serve(outside.VLLM, toy, "")
	h, n := s.Handler(), 0
	var ev *outside.Evidence
	synctest.Test(t, func(t *testing.T) {
		client, stop := fakeserver.Pipe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				if n++; n%5 == 0 {
					http.Error(w, "overloaded", http.StatusServiceUnavailable)
					return
				}
			}
			h.ServeHTTP(w, r)
		}))
		defer stop()
		c, err := outside.NewClient("http://server")
		require.NoError(t, err)
		c.HTTP = client
		p := plan(toy)
		p.Concurrency = []int{1}
		ev, err = outside.Collect(t.Context(), c, p)
		require.NoError(t, err)
	})
	res, err := outside.Audit(t.Context(), ev, toy, toy, outside.Options{})
	require.NoError(t, err)
	require.Equal(t, audit.NotCheckable, res.Tokens.Verdict, show(res))
	require.Contains(t, res.Tokens.Why, "3 of 16 requests failed; the first: ")
	require.Contains(t, res.Tokens.Why, "status 503")
	require.Equal(t, audit.NotCheckable, res.Counts.Verdict, show(res))
}
