package acceptance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"exacta.dev/exacta/engine"

	"github.com/stretchr/testify/require"
)

func mustWindows(t *testing.T, over Over, bucket int64) *Windows {
	t.Helper()
	w, err := NewWindows(over, bucket)
	require.NoError(t, err)
	return w
}

// Windows over output positions against a twin that scans all records for each.
func TestWindowsAgainstTwin(t *testing.T) {
	for seed := range uint64(10) {
		records := fakeRun(seed, 3, 3, 25)
		for i, r := range records { // three rounds of one point, one of another
			r.Request = fmt.Sprintf("%s.k4.greedy.c3.r%d/q%d", []string{"0-mtp", "0-mtp", "1-mtp"}[i*3/len(records)], i*3/len(records), r.Sequence)
		}
		const bucket = 7
		w := mustWindows(t, OverPosition, bucket)
		for _, r := range records {
			require.NoError(t, w.Add(r))
		}
		got, err := w.Lines(0.9)
		require.NoError(t, err)
		require.NotEmpty(t, got)
		seen := map[string]bool{}
		for _, line := range got {
			require.False(t, seen[fmt.Sprint(line.Point, line.From)])
			seen[fmt.Sprint(line.Point, line.From)] = true
			var s Stats
			for i, r := range records {
				before := 0
				for _, e := range records[:i] {
					if e.Request == r.Request {
						before += len(e.EmittedIDs)
					}
				}
				if ByPooledPoint(r) == line.Point && r.Phase == engine.Decode && before/bucket == int(line.From)/bucket {
					s.Add(r)
				}
			}
			a := s.Acceptance()
			passes := map[string]int{"0-mtp.k4.greedy.c3": 2, "1-mtp.k4.greedy.c3": 1}[line.Point]
			require.Equal(t, Window{
				Point: line.Point, From: line.From, To: line.From + bucket, Verifications: a.Verifications, Proposed: a.Proposed, Accepted: a.Accepted,
				Emitted: s.Verified, AcceptLength: a.AcceptLength, DraftAcceptRate: a.DraftAcceptRate, Passes: passes, Positions: s.Positions(0.9, passes),
			}, line)
		}
		total := int64(0)
		for _, line := range got {
			total += line.Verifications
		}
		require.Equal(t, int64(len(filter(records, func(r *engine.Record) bool { return r.Phase == engine.Decode }))), total)
	}
}

// Steps count from the first of the round, prefill steps too; an engine that
// starts at 0 again goes on behind the one before.
func TestWindowsOverSteps(t *testing.T) {
	w := mustWindows(t, OverSteps, 2)
	prefill := verification("p.r0/q", 100, 0, 0, 1)
	prefill.Phase = engine.Prefill
	require.NoError(t, w.Add(prefill))
	for _, step := range []int64{101, 101, 102, 105, 0, 1} { // counted 1, 1, 2, 5, 6, 7
		require.NoError(t, w.Add(verification("p.r0/q", step, 2, 1, 2)))
	}
	for _, step := range []int64{200, 201} { // 0, 1
		require.NoError(t, w.Add(verification("p.r1/q", step, 2, 0, 1)))
	}
	lines, err := w.Lines(0.95)
	require.NoError(t, err)
	var got [][2]int64
	for _, l := range lines {
		require.Equal(t, "p", l.Point)
		require.Equal(t, 2, l.Passes)
		require.Equal(t, l.From+2, l.To)
		got = append(got, [2]int64{l.From, l.Verifications})
	}
	require.Equal(t, [][2]int64{{0, 4}, {2, 1}, {4, 1}, {6, 2}}, got)
}

func TestWindowsRefuse(t *testing.T) {
	_, err := NewWindows("time", 5)
	require.ErrorContains(t, err, `over "time"; it is steps or position`)
	_, err = NewWindows(OverSteps, 0)
	require.ErrorContains(t, err, "at least 1 wide")

	w := mustWindows(t, OverSteps, 1)
	require.NoError(t, w.Add(verification("p/q", 0, 1, 0, 1)))
	require.NoError(t, w.Add(verification("p/q", MostWindows-1, 1, 0, 1)))
	require.ErrorContains(t, w.Add(verification("p/q", MostWindows, 1, 0, 1)), "make them wider")

	lines, err := mustWindows(t, OverSteps, 1).Lines(0.95)
	require.NoError(t, err)
	require.Empty(t, lines)
	require.NotNil(t, lines)

	forced := verification("p/q", 1, 1, 0, 1)
	forced.Simulated, forced.Simulation = true, "length=1"
	w = mustWindows(t, OverPosition, 1)
	require.NoError(t, w.Add(forced))
	lines, err = w.Lines(0.95)
	require.NoError(t, err)
	require.True(t, lines[0].Simulated)
	require.Equal(t, "length=1", lines[0].Simulation)
	require.NoError(t, w.Add(verification("p/q", 2, 1, 0, 1)))
	_, err = w.Lines(0.95)
	require.ErrorContains(t, err, "p: acceptance was simulated in 1 of 2 verifications with drafts")
}

// What has once seen a request takes more of its records without memory.
func TestStatisticsAreFlat(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	g, s := NewGroup(ByPooledPoint), NewSide("0-mtp.k8.greedy.c1")
	over, along := mustWindows(t, OverPosition, 1<<40), mustWindows(t, OverSteps, 1<<40)
	step := int64(0)
	records := make([]*engine.Record, 100)
	for i := range records {
		records[i] = verification(fmt.Sprintf("0-mtp.k8.greedy.c1.r0/q%d", i%10), 0, 8, 8-i%9, 1)
		records[i].TotalNs = 1000 + r.Int64N(1000)
	}
	add := func() {
		for _, rec := range records {
			rec.Step = step
			step++
			g.Add(rec)
			s.Add(rec)
			if over.Add(rec) != nil || along.Add(rec) != nil {
				t.Fail()
			}
		}
	}
	add()
	require.Zero(t, testing.AllocsPerRun(100, add))
}
