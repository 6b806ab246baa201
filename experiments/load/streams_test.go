package load

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/outside"
)

// serverEnv makes the test binary a fake server; see TestMain.
const serverEnv = "EXACTA_LOAD_FAKE"

// TestMain is a fake server of one processor where the benchmark asks for one: it
// prints its address, keeps the times at which it wrote chunks for /times, and ends
// with its standard input.
func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) == "" {
		os.Exit(m.Run())
	}
	runtime.GOMAXPROCS(1)
	var mu sync.Mutex
	times := map[string][]int64{}
	f := &Fake{Dialect: outside.VLLM, First: 100 * time.Millisecond, Step: 20 * time.Millisecond, PerStep: 1, Times: func(id string, at time.Time) {
		mu.Lock()
		defer mu.Unlock()
		times[id] = append(times[id], at.UnixNano())
	}}
	mux := http.NewServeMux()
	mux.Handle("/", f.Handler())
	mux.HandleFunc("/times", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(w).Encode(times)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() { _ = http.Serve(l, mux) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// BenchmarkStreams puts 2,000 streams of 50 tokens a second on a server in another
// process, server and generator having one processor each, and reports by how much
// the times that the generator writes down are behind those at which the server had
// written, in milliseconds. Run it once, on an idle machine: -benchtime 1x.
func BenchmarkStreams(b *testing.B) {
	const streams, seconds = 2000, 15
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), serverEnv+"=1")
	in, err := server.StdinPipe()
	require.NoError(b, err)
	out, err := server.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, server.Start())
	defer func() { require.NoError(b, server.Wait()) }()
	defer in.Close()
	var address string
	_, err = fmt.Fscan(out, &address)
	require.NoError(b, err)
	c, err := outside.NewClient("http://" + address)
	require.NoError(b, err)
	defer c.Close()
	for b.Loop() {
		p := plan(streams, 0, 16, 50*seconds)
		for i := range p.Sessions {
			// Streams begin at different times, as they would.
			p.Sessions[i].At = time.Duration(i) * 2 * time.Second / streams
			p.Sessions[i].ID = fmt.Sprint(i)
			p.Sessions[i].Requests[0].ID = fmt.Sprint(i)
		}
		epoch := time.Now()
		res, err := Run(b.Context(), Options{Client: c, Dialect: outside.VLLM, Model: fakeModel, Plan: p})
		require.NoError(b, err)
		var times map[string][]int64
		require.NoError(b, c.Get(b.Context(), "/times", &times))
		var late values
		lost := 0
		for i := range res.Rows {
			r := &res.Rows[i]
			if !r.OK() {
				lost++
				continue
			}
			wrote := times[r.ServerID]
			for j, at := range r.Arrivals() {
				// Both clocks are the system's; Run began right after epoch.
				late.add(ms(max(0, epoch.UnixNano()+at-wrote[j])), 1)
			}
		}
		d := late.dist()
		b.ReportMetric(d.P50, "p50-late-ms")
		b.ReportMetric(d.P99, "p99-late-ms")
		b.ReportMetric(d.Max, "max-late-ms")
		b.ReportMetric(float64(lost), "failed")
		b.ReportMetric(float64(d.N)/res.Ended.Seconds(), "chunks/s")
		b.ReportMetric(res.Generator.Wake.P99, "p99-wake-ms")
		b.Log(strings.TrimSpace(res.Generator.Why))
	}
}
