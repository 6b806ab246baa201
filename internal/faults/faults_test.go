package faults_test

import (
	"os"
	"strconv"
	"testing"

	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/internal/faults"

	"github.com/stretchr/testify/require"
)

// TestFaults makes one run of each fault and twenty healthy ones; exacta faults
// makes more.
func TestFaults(t *testing.T) {
	o := faults.Options{Model: registry.Embedded, Seeds: 1, Healthy: 20}
	if s := os.Getenv("EXACTA_FAULT_SEEDS"); s != "" {
		o.Seeds, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("EXACTA_FAULT_HEALTHY"); s != "" {
		o.Healthy, _ = strconv.Atoi(s)
	}
	m, err := faults.Check(t.Context(), o)
	require.NoError(t, err)
	t.Logf("%.1f s, %d healthy runs, %d false alarms, not checkable %v", m.Seconds, m.HealthyRuns, m.FalseAlarms, m.NotCheckable)
	for _, r := range m.Faults {
		t.Logf("%-4s %-50s %d/%d %v also %v expect %v: %.160s", r.ID, r.Name, r.Caught, r.Runs, r.CaughtBy, r.AlsoBy, r.Expect, r.Evidence)
	}
	for _, a := range m.Alarms {
		t.Logf("ALARM %d %s: %s: %s", a.Run, a.Setup, a.Audit, a.Evidence)
	}
	require.Zero(t, m.FalseAlarms)
	for _, r := range m.Faults {
		require.Equal(t, r.Runs, r.Caught, "%s %s", r.ID, r.Name)
		require.Subset(t, r.CaughtBy, r.Expect, "%s %s", r.ID, r.Name)
	}
}
