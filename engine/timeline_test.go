package engine_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
)

// A timeline has the host, decoding and prompts in lanes of their own, with every
// operation inside its step, of loops and of steps; the output stays what it is.
func TestTimeline(t *testing.T) {
	_, err := engine.NewTimeline(newCPU(t))
	require.ErrorContains(t, err, "can't time its operations")
	for _, loop := range []bool{true, false} {
		m, be := device(t, tiny())
		line, err := engine.NewTimeline(be)
		require.NoError(t, err)
		r := newRig(t, m, engine.Config{MaxSequences: 2, Loop: loop, Timeline: line}, provisioned(t, m, "mtp")...)
		q := loopRequests("mtp")[0]
		r.submit(q)
		r.close()
		same(t, plain(t, tinyCPU(t), q)[q.ID], r.out[q.ID])
		var text bytes.Buffer
		require.NoError(t, line.Write(&text))
		var got struct {
			TraceEvents []struct {
				Name, Ph string
				Ts, Dur  float64
				Tid      int
				Args     struct{ Name string }
			}
		}
		require.NoError(t, json.Unmarshal(text.Bytes(), &got))
		lanes, seen, steps := map[int]string{}, map[string]map[string]int{}, 0
		from, to := 0.0, 0.0 // of the step
		for _, e := range got.TraceEvents {
			if e.Ph == "M" {
				lanes[e.Tid] = e.Args.Name
				seen[e.Args.Name] = map[string]int{}
				continue
			}
			lane := lanes[e.Tid]
			seen[lane][e.Name]++
			require.GreaterOrEqual(t, e.Dur, 0.0)
			switch {
			case lane == "host":
			case strings.HasPrefix(e.Name, "loop:") || strings.HasPrefix(e.Name, "step:") || e.Name == "prompts":
				steps++
				from, to = e.Ts, e.Ts+e.Dur
			default:
				require.GreaterOrEqual(t, e.Ts, from, e.Name)
				require.LessOrEqual(t, e.Ts+e.Dur, to+1e-3, e.Name)
			}
		}
		require.GreaterOrEqual(t, steps, len(r.out[q.ID].records))
		require.LessOrEqual(t, steps, len(r.out[q.ID].records)+1, "one replay is out when the sequence ends")
		for _, name := range []string{"attend", "matmul", "stats"} {
			require.Positive(t, seen["device: decode"][name], name)
			require.Positive(t, seen["device: prompts"][name], name)
		}
		require.Equal(t, loop, seen["device: decode"]["accept"] > 0)
		require.NotEmpty(t, seen["host"])
	}
}
