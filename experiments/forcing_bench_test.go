package experiments

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
)

// BenchmarkTeacherForcing reads prompt and output of a finished request as the
// tokens audit does, and compares with a prefill of the same tokens by the engine:
// x-prefill against one that wants logits of the same rows with their hashes, as a
// prefill must for the same evidence; x-last-row against one that wants the last
// row's alone. The three take turns within each iteration.
//
//	go test ./experiments -run '^$' -bench TeacherForcing -benchtime 20x
func BenchmarkTeacherForcing(b *testing.B) {
	cfg := Default()
	cfg.Context = 1024
	s, err := open(cfg, nil)
	require.NoError(b, err)
	defer s.close()
	var ids []int32
	for _, p := range s.prompts {
		ids = append(ids, p.IDs...)
	}
	ids = ids[:768]
	lab := s.lab()
	defer lab.Close()
	const prompt = 256
	most := lab.forceChunk()
	rows, err := newFeederOf(s.m, cfg.Context, most)
	require.NoError(b, err)
	defer rows.close()
	var forced, scored, last time.Duration
	for b.Loop() {
		from := time.Now()
		require.NoError(b, lab.Force(b.Context(), ids, prompt-1, false, func(audit.Row) error { return nil }))
		forced += time.Since(from)
		require.NoError(b, s.m.Reserve(most, most))
		from = time.Now()
		rows.reset()
		for at := 0; at < len(ids); at += most {
			chunk := ids[at:min(len(ids), at+most)]
			out := rows.forward(at, chunk, min(len(chunk), max(0, prompt-1-at)))
			if out.Logits.Rows > 0 {
				rows.be.Queue().Stats(lab.stats.Top(int(out.Logits.Rows)), out.Logits, s.entry.Vocab(), true)
			}
		}
		require.NoError(b, rows.be.Queue().Err())
		scored += time.Since(from)
		last += prefill(b, s, ids)
	}
	b.ReportMetric(forced.Seconds()/scored.Seconds(), "x-prefill")
	b.ReportMetric(forced.Seconds()/last.Seconds(), "x-last-row")
	b.ReportMetric(float64(len(ids)*b.N)/forced.Seconds(), "tok/s")
}

// prefill reads ids with an engine, and returns how long its steps took.
func prefill(b *testing.B, s *session, ids []int32) (took time.Duration) {
	p := Point{Strategy: -1, Drafter: "none", Rule: "greedy", Concurrency: 1}
	e, err := s.engine(p, engine.RecorderFunc(func(r *engine.Record) error {
		took += time.Duration(r.TotalNs)
		return nil
	}))
	require.NoError(b, err)
	_, err = e.Submit(engine.Request{ID: "prefill", Prompt: ids, MaxNew: 1})
	require.NoError(b, err)
	require.NoError(b, e.Run(nil))
	require.NoError(b, e.Close())
	return took
}
