package acceptance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
)

func TestFresh(t *testing.T) {
	var f Fresh
	add := func(seq int64, phase engine.Phase, ns int64, ids ...int32) {
		f.Add(&engine.Record{Sequence: seq, Phase: phase, EmittedIDs: ids, Accepted: engine.Accepted(len(ids) - 1), TotalNs: ns})
	}
	add(1, engine.Prefill, 1000, 1)
	add(1, engine.Decode, 10, 2, 3, 4) // 1234
	add(1, engine.Decode, 20, 1, 2)    // 2341 3412
	add(2, engine.Decode, 40, 1, 2, 3, 4)
	add(1, engine.Decode, 80, 3, 4) // 4123, and 1234 again
	require.Equal(t, int64(6), f.Grams)
	require.Equal(t, int64(1), f.Repeated)
	require.InDelta(t, 1.0/6, f.RepeatedShare(), 1e-15)
	require.Equal(t, int64(3), f.Steps, "the prefill and the step that repeats do not count")
	require.InDelta(t, (3.0+2+4)/3, f.AcceptLength(), 1e-15)
	require.InDelta(t, 9.0/70e-9, f.TokS(), 1e-3)
}
