package acceptance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
)

// The figures of a load are those that can be worked out by hand.
func TestLoad(t *testing.T) {
	l := NewLoad()
	step := func(n, ns int64, prefill, rows int32, records ...engine.Record) {
		for _, r := range records {
			r.Step, r.TotalNs, r.PrefillTokens, r.BatchRows = n, ns, prefill, rows
			require.NoError(t, l.Add(&r))
		}
	}
	prefill := func(id string, at, rows int32, emitted ...int32) engine.Record {
		return engine.Record{Request: id, Phase: engine.Prefill, Position: at, Rows: rows, EmittedIDs: emitted}
	}
	decode := func(id string, at int32, accepted engine.Accepted, emitted ...int32) engine.Record {
		return engine.Record{Request: id, Phase: engine.Decode, Position: at, Rows: 1, Accepted: accepted, EmittedIDs: emitted}
	}
	step(0, 2e9, 8, 8, prefill("a", 0, 8))
	step(1, 1e9, 4, 4, prefill("a", 8, 4, 1))
	step(2, 1e9, 6, 8, decode("a", 12, 1, 2, 3), prefill("b", 0, 6, 7))
	step(3, 2e9, 0, 2, decode("a", 14, 0, 4), decode("b", 6, 0, 8))
	again := prefill("a", 0, 15, 5)
	again.Preemptions = 1
	step(4, 1e9, 15, 16, decode("b", 7, 0, 9), again)
	last := decode("a", 15, 0, 6)
	last.Preemptions = 1
	step(5, 3e9, 0, 1, last)
	f := l.Figures()
	require.Equal(t, f, l.Figures())
	require.Equal(t, 2, f.Requests)
	require.Equal(t, 6, f.Steps)
	require.InDelta(t, 10, f.Seconds, 1e-9)
	require.EqualValues(t, 9, f.Emitted)
	require.InDelta(t, 0.9, f.Rate, 1e-9)
	require.InDelta(t, (1*1+2*2+1*1+1*3)/10.0, f.Decoding.Mean, 1e-9)
	require.InDelta(t, f.Rate, f.Decoding.Mean*f.PerRequest, 1e-9)
	require.Equal(t, Spread{Mean: 0.9, Median: 1, P99: 2, Most: 2}, f.Decoding)
	require.EqualValues(t, 33, f.PrefillTokens)
	require.InDelta(t, 33.0/39, f.RowShare, 1e-9)
	require.InDelta(t, 0.5, f.TimeShare, 1e-9)
	require.Equal(t, Spread{Mean: 33.0 / 4, Median: 0, P99: 18, Most: 18}, f.Between)
	require.EqualValues(t, 1, f.Preemptions)
	require.EqualValues(t, 15, f.Recomputed, "what a had computed; its last token was pending")
	require.Equal(t, LoadFigures{}, NewLoad().Figures())
}
