package acceptance

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"exacta.dev/exacta/engine"

	"github.com/stretchr/testify/require"
)

// row i of a toy model: its token, gap and hash are functions of the position.
func tokenAt(pos int32) int32 { return pos * 7 % 101 }
func gapAt(pos int32) float32 { return 1 / float32(pos) }
func hashAt(pos int32) uint64 { return uint64(pos) * 0x9e3779b97f4a7c15 }

const promptLen = 10

// speculate makes the records of a request of n tokens: a prompt, and then
// verifications with drafts that are right up to a random place. k = 0 is plain
// decoding.
func speculate(seed uint64, request string, n, k int) []*engine.Record {
	r := rand.New(rand.NewPCG(seed, 2))
	rowsOf := func(rec *engine.Record, first int32, count int) {
		for i := range int32(count) {
			rec.Gaps = append(rec.Gaps, gapAt(first+i))
			rec.Hashes = append(rec.Hashes, hashAt(first+i))
		}
	}
	out := []*engine.Record{
		{Request: request, Phase: engine.Prefill, Rows: 4, NextID: -1, NextKind: engine.NextNone},
		{Request: request, Step: 1, Phase: engine.Prefill, Position: 4, Rows: 6, Batch: 1, NextID: tokenAt(promptLen), NextKind: engine.NextSampled, EmittedIDs: []int32{tokenAt(promptLen)}},
	}
	rowsOf(out[1], promptLen, 1)
	for pos, step := int32(promptLen), int64(2); int(pos) < promptLen+n-1; step++ {
		drafts, accepted := 0, 0
		if k > 0 {
			drafts = r.IntN(k + 1)
			accepted = r.IntN(drafts + 1)
		}
		rec := &engine.Record{
			Request: request, Step: step, Phase: engine.Decode, Position: pos, Rows: int32(drafts + 1), Batch: 3, BatchRows: 9,
			KExecuted: int32(drafts), Accepted: engine.Accepted(accepted), NextID: tokenAt(pos + int32(accepted) + 1), NextKind: engine.NextCorrection,
		}
		for i := range int32(drafts) {
			id := tokenAt(pos + 1 + i)
			if int(i) >= accepted {
				id++
			}
			rec.ProposedIDs = append(rec.ProposedIDs, id)
		}
		rowsOf(rec, pos+1, accepted+1)
		for range drafts - accepted { // rows behind a rejected draft: anything
			rec.Gaps = append(rec.Gaps, r.Float32())
			rec.Hashes = append(rec.Hashes, r.Uint64())
		}
		rec.EmittedIDs = append(append([]int32(nil), rec.ProposedIDs[:accepted]...), rec.NextID)
		if room := promptLen + n - 1 - int(pos); len(rec.EmittedIDs) > room {
			rec.EmittedIDs = rec.EmittedIDs[:room]
		}
		out = append(out, rec)
		pos += int32(accepted) + 1
	}
	return out
}

func collect(t testing.TB, records []*engine.Record) *Collector {
	var c Collector
	for _, r := range records {
		require.NoError(t, c.Add(r))
	}
	return &c
}

func TestTracesAgree(t *testing.T) {
	plain := collect(t, speculate(0, "plain", 50, 0)).Traces["plain"]
	require.Len(t, plain.Tokens, 50)
	for seed := range uint64(50) {
		records := speculate(seed, "q", 50, 6)
		c := collect(t, read(t, write(t, Meta{Run: "x"}, records)))
		require.Equal(t, []string{"q"}, c.Order)
		require.Equal(t, plain.Tokens, c.Traces["q"].Tokens)
		require.Nil(t, Compare("q", c.Traces["q"], plain))
	}
}

// Each kind of difference, with where and among what it happened.
func TestDivergence(t *testing.T) {
	plain := collect(t, speculate(0, "plain", 50, 0)).Traces["plain"]
	diverge := func(change func([]*engine.Record) []*engine.Record) *Divergence {
		return Compare("q", collect(t, change(speculate(3, "q", 50, 6))).Traces["q"], plain)
	}
	// The record that emits the token of a position, and its place there.
	find := func(rs []*engine.Record, pos int32) (*engine.Record, int32) {
		for _, r := range rs[2:] {
			if i := pos - r.Position - 1; i >= 0 && int(i) < len(r.EmittedIDs) {
				return r, i
			}
		}
		require.Fail(t, "no such position")
		return nil, 0
	}
	var at *engine.Record
	d := diverge(func(rs []*engine.Record) []*engine.Record {
		r, i := find(rs, 30)
		r.Hashes[i] ^= 1
		at = r
		return rs
	})
	require.Equal(t, &Divergence{
		Request: "q", Output: 20, Position: 30, Token: tokenAt(30), Plain: tokenAt(30), Gap: gapAt(30), PlainGap: gapAt(30),
		Step: at.Step, Batch: 3, BatchRows: 9,
	}, d)
	require.Contains(t, d.String(), "request q, output 20 (position 30): token 8 agrees but its logits do not (gap 0.03333, step")

	d = diverge(func(rs []*engine.Record) []*engine.Record {
		for _, r := range rs[5:] { // the bonus or correction of a later record
			r.NextID += 3
			if n := len(r.EmittedIDs); n == int(r.Accepted)+1 {
				r.EmittedIDs[n-1] = r.NextID
				at = r
				break
			}
		}
		return rs
	})
	require.Equal(t, d.Plain+3, d.Token)
	require.Equal(t, at.Position+int32(at.Accepted)+1, d.Position)
	require.True(t, d.SameHash)
	require.Contains(t, d.String(), "plain decoding has")

	d = diverge(func(rs []*engine.Record) []*engine.Record { return rs[:2] })
	require.Equal(t, int32(-1), d.Token)
	require.Equal(t, 1, d.Output)
	require.Contains(t, d.String(), "nothing, plain decoding has token 77")

	long := collect(t, speculate(0, "q", 60, 4)).Traces["q"]
	d = Compare("q", long, plain)
	require.Equal(t, int32(-1), d.Plain)
	require.Equal(t, 50, d.Output)
	require.Contains(t, d.String(), "token 16, plain decoding has nothing")

	text, err := json.Marshal(d)
	require.NoError(t, err)
	require.Contains(t, string(text), `"position":60`)
}

// A trace refuses records that contradict themselves or each other.
func TestTraceRefusals(t *testing.T) {
	for want, change := range map[string]func([]*engine.Record) []*engine.Record{
		"emits the token of position 12; the one before was of position 10": func(rs []*engine.Record) []*engine.Record {
			rs[2].Position++
			return rs
		},
		"is not a beginning of 0 accepted of the drafts [] and next token 5": func(rs []*engine.Record) []*engine.Record {
			rs[2].NextID = 5
			return rs
		},
		"1 tokens emitted from 0 hashed logits rows": func(rs []*engine.Record) []*engine.Record {
			rs[2].Hashes = nil
			return rs
		},
		"is not a beginning of 0 accepted": func(rs []*engine.Record) []*engine.Record {
			r := rs[2]
			r.EmittedIDs = append(r.EmittedIDs, r.NextID)
			r.Hashes, r.Gaps = append(r.Hashes, 1), append(r.Gaps, 1)
			return rs
		},
	} {
		var c Collector
		var err error
		for _, r := range change(speculate(0, "q", 9, 0)) {
			if err = c.Add(r); err != nil {
				break
			}
		}
		require.ErrorContains(t, err, "request q, step 2: ")
		require.ErrorContains(t, err, want)
	}
}

// A recomputed sequence (preemption) goes on where it was.
func TestTraceAfterPreemption(t *testing.T) {
	plain := speculate(0, "q", 9, 0)
	cut := plain[4] // emits the token of position 13
	again := []*engine.Record{
		{Request: "q", Step: 90, Phase: engine.Prefill, Rows: 12, NextID: -1, NextKind: engine.NextNone},
		{
			Request: "q", Step: 91, Phase: engine.Prefill, Position: 12, Rows: 1, NextID: cut.NextID, NextKind: engine.NextSampled,
			EmittedIDs: cut.EmittedIDs, Gaps: cut.Gaps, Hashes: cut.Hashes,
		},
	}
	records := append(append(append([]*engine.Record(nil), plain[:4]...), again...), plain[5:]...)
	require.Nil(t, Compare("q", collect(t, records).Traces["q"], collect(t, plain).Traces["q"]))
}
