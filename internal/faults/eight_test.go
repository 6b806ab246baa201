package faults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/internal/faults/honest"
	"exacta.dev/exacta/internal/faults/trial"
)

// The three 8 % cases give the outputs of plain decoding, as their run without
// simulation does: nobody who reads them sees that a figure is wrong. And the
// healthy twin of their run, simulated as declared, is flagged by no audit.
func TestEightPercentOutputs(t *testing.T) {
	m, err := trial.Open(registry.Embedded)
	require.NoError(t, err)
	defer m.Close()
	lab, closeLab := honest.Lab(m, honest.NewMemo())
	defer closeLab()
	for _, f := range eightPercent() {
		require.NotEmpty(t, f.Outside)
		for seed := range uint64(2) {
			reqs := m.Requests(f.Setup, seed)
			plain, err := honest.Reference(t.Context(), lab, reqs)
			require.NoError(t, err)
			res, err := m.Run(f.Setup, reqs, plain, f.arm(&arming{seed: seed, setup: f.Setup, plain: plain, machine: m}))
			require.NoError(t, err)
			require.Empty(t, res.Err)
			for _, q := range res.Requests {
				require.Equal(t, plain[q.ID], q.Received, "%s %s", f.ID, q.ID)
			}
			res, err = m.Run(f.Setup, reqs, plain, trial.Wiring{})
			require.NoError(t, err)
			reports, err := examine(t.Context(), res, lab)
			require.NoError(t, err)
			for name, r := range reports {
				require.Empty(t, r.Findings, name)
			}
		}
	}
}

// Every class of the catalogue is there, and no name twice: it tells variants
// apart.
func TestClasses(t *testing.T) {
	names, classes := map[string]bool{}, map[string]bool{}
	for _, f := range All() {
		require.False(t, names[f.Name], f.Name)
		names[f.Name], classes[f.ID] = true, true
		require.NotEmpty(t, f.Report, f.Name)
		require.NotEmpty(t, f.expected(), f.Name)
		require.NotNil(t, f.arm, f.Name)
	}
	for id := range catalogue {
		require.True(t, classes[id], id)
	}
	require.Len(t, catalogue, 27)
	for name, u := range unlike {
		require.True(t, names[name], name)
		require.NotEmpty(t, u.why)
	}
}
