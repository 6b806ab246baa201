package experiments

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/kernels"
)

// Cost is what the backend counts, for every kind of step, on a model with
// recurrent layers and attention.
func TestCostIsCounted(t *testing.T) {
	cfg := Default()
	cfg.Context = 1024
	s, err := open(cfg, nil)
	require.NoError(t, err)
	defer s.close()
	lab := s.lab()
	defer lab.Close()
	require.NoError(t, lab.openForce())
	f, err := newFeederOf(s.m, cfg.Context, 64)
	require.NoError(t, err)
	defer f.close()
	ids := s.prompts[0].IDs
	for len(ids) < 150 {
		ids = append(ids, ids...)
	}
	for _, span := range []struct{ start, rows, want int }{{0, 40, 0}, {40, 64, 63}, {104, 1, 0}, {105, 5, 0}, {110, 30, 30}} {
		before := s.be.Work()
		out := f.forward(span.start, ids[span.start:span.start+span.rows], span.want)
		logits := span.rows - span.want
		if logits > 0 {
			s.be.Queue().Stats(lab.stats.Top(logits), out.Logits, s.entry.Vocab(), true)
		}
		got := s.be.Work().Sub(before)
		want := lab.Cost([]audit.SpanCost{{Start: span.start, Rows: span.rows, LogitRows: logits}})
		require.GreaterOrEqual(t, got.Ops, want.Ops)
		require.GreaterOrEqual(t, got.WeightBytes, want.WeightBytes)
		for _, c := range []*kernels.Counters{&got, &want} {
			c.Ops, c.WeightBytes, c.Launches = 0, 0, 0
		}
		require.Equal(t, want, got, "%+v", span)
	}
}
