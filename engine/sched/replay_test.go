package sched

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const shortTrace = `config slots=2 pages=8 slot-pages=4 rows=64 chunk=32 spans=2 lookahead=0 prefix=false recurrent=false snapshots=0 policy=fcfs share=50 expect=256 sessions=64
submit 7 max=60 k=3 fixed=false priority=0 session="" space="a b" prompt=40*0
plan
	step 0: running 1, waiting 0, rows 0+32, pages 7 free 0 idle
	reset 7 slot=0
	pages 7 slot=0 first=0 pages=0
	prefill 7 slot=0 [0,32)
commit
	7 kept=32 tokens= done=false
plan
	step 1: running 1, waiting 0, rows 0+8, pages 7 free 0 idle
	prefill 7 slot=0 [32,40) last
commit
	7 kept=8 tokens=5 done=false
cancel 7
`

func TestTracerWrites(t *testing.T) {
	var b bytes.Buffer
	c, err := NewTracer(small, &b)
	require.NoError(t, err)
	require.NoError(t, c.Submit(Request{ID: 7, Prompt: make([]int32, 40), MaxLen: 60, K: 3, Space: "a b"}))
	require.Error(t, c.Submit(Request{ID: 7}))
	c.Plan()
	require.Error(t, c.Commit(nil))
	require.NoError(t, c.Commit([]Result{{ID: 7, Kept: 32}}))
	c.Plan()
	require.NoError(t, c.Commit([]Result{{ID: 7, Kept: 8, Tokens: []int32{5}}}))
	require.True(t, c.Cancel(7))
	require.False(t, c.Cancel(7))
	require.NoError(t, c.Err())
	require.Equal(t, shortTrace, b.String())
	plans, err := Replay(&b)
	require.NoError(t, err)
	require.Equal(t, 2, plans)

	_, err = NewTracer(Config{}, &b)
	require.Error(t, err)
}

// fullDisk takes n writes.
type fullDisk struct{ n int }

var errFull = errors.New("disk full")

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.n--; d.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestTracerOnFullDisk(t *testing.T) {
	disk := &fullDisk{n: 1}
	c, err := NewTracer(small, disk)
	require.NoError(t, err)
	require.NoError(t, c.Submit(Request{ID: 1, Prompt: make([]int32, 4), MaxLen: 6}))
	require.ErrorIs(t, c.Err(), errFull)
	require.Len(t, c.Plan().Items, 1, "scheduling goes on")
	require.Equal(t, -1, disk.n, "nothing is written after an error")
}

func TestReplayRefuses(t *testing.T) {
	for _, c := range []struct {
		old, new string
		want     error
		text     string
	}{
		{"config", "cfg", ErrTrace, `trace line 1: not a scheduler trace: "cfg" before config`},
		{"slots=2", "slots=0", ErrTrace, "trace line 1: not a scheduler trace: sched config: Slots is 0, want at least 1"},
		{"slots=2", "slot=2", ErrTrace, `"slot=2" where slots= belongs`},
		{"pages=8", "pages=99999999", ErrTrace, "more than 1048576 slots, pages or snapshots"},
		{"prefix=false", "prefix=no", ErrTrace, `prefix="no", want true or false`},
		{"policy=fcfs", "policy=lifo", ErrTrace, `unknown policy "lifo", want one of fcfs, shortest-prefill, session`},
		{"submit", "sbmit", ErrTrace, `trace line 2: not a scheduler trace: event "sbmit"`},
		{"submit 7", "submit x", ErrTrace, `"x" is not a number of 64 bits`},
		{`space="a b"`, "space=a", ErrTrace, "space is not quoted"},
		{"40*0", "0*0", ErrTrace, `list "0*0" repeats 0 times, want at least 1`},
		{"40*0", "4..1", ErrTrace, `list "4..1" counts down`},
		{"40*0", "1..x", ErrTrace, `"x" is not a number of 32 bits`},
		{"40*0", "x..1", ErrTrace, `"x" is not a number of 32 bits`},
		{"40*0", "x*1", ErrTrace, `"x" is not a number of 32 bits`},
		{"40*0", "1*x", ErrTrace, `"x" is not a number of 32 bits`},
		{"40*0", "2000000000*1", ErrTrace, "list of more than 4194304 numbers"},
		{"40*0", "-2147483648..2147483647", ErrTrace, "list of more than 4194304 numbers"},
		{"40*0", "400*0", ErrTrace, "too long"},
		{"cancel 7", "cancel 8", ErrTrace, "trace line 15: not a scheduler trace: no sequence 8"},
		{"cancel 7\n", "cancel 7\n\tmore\n", ErrTrace, `indented lines under "cancel 7"`},
		{"kept=32", "kept=31", ErrResult, "trace line 8: not a scheduler trace: commit of step 0, item 0, sequence 7"},
		{"kept=32", "keep=32", ErrTrace, `"keep=32" where kept= belongs`},
		{"commit\n\t7 kept=32 tokens= done=false\n", "", ErrTrace, "trace line 8: not a scheduler trace: plan before the commit"},
		{"rows 0+8", "rows 0+9", ErrDiffers, "trace line 10: plan differs from the trace"},
		{"\tprefill 7 slot=0 [32,40) last\n", "", ErrDiffers, "trace line 10"},
	} {
		require.Contains(t, shortTrace, c.old)
		_, err := Replay(strings.NewReader(strings.Replace(shortTrace, c.old, c.new, 1)))
		require.ErrorIs(t, err, c.want, c.new)
		require.ErrorContains(t, err, c.text, c.new)
	}
	plans, err := Replay(strings.NewReader(shortTrace[:strings.Index(shortTrace, "[32,40)")]))
	require.Error(t, err, "cut short")
	require.Equal(t, 1, plans)
	_, err = Replay(strings.NewReader(strings.Repeat("x", maxTraceLine+1)))
	require.ErrorContains(t, err, "too long")
}

func FuzzReplay(f *testing.F) {
	f.Add(shortTrace)
	for _, seed := range []uint64{3, 11} {
		w, err := program(seed)
		require.NoError(f, err)
		f.Add(w.trace.String()[:min(w.trace.Len(), 4000)])
	}
	f.Fuzz(func(t *testing.T, trace string) {
		plans, err := Replay(strings.NewReader(trace))
		require.GreaterOrEqual(t, plans, 0)
		if err == nil {
			require.Equal(t, strings.Count("\n"+trace, "\nplan"), plans)
		}
	})
}

func FuzzTokens(f *testing.F) {
	f.Add("1,2,5..9,3*7,-4..-1,0")
	f.Add("2147483646..2147483647,3*-2147483648")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := parseTokens(s)
		if err != nil || len(v) > 1000 {
			return
		}
		again, err := parseTokens(formatTokens(v))
		require.NoError(t, err)
		require.Equal(t, v, again)
	})
}

func TestTokensRoundTrip(t *testing.T) {
	for text, v := range map[string][]int32{
		"":                                   nil,
		"5":                                  {5},
		"1,2":                                {1, 2},
		"1..3,3,3":                           {1, 2, 3, 3, 3},
		"4*7,8":                              {7, 7, 7, 7, 8},
		"2147483645..2147483647,-2147483648": {math.MaxInt32 - 2, math.MaxInt32 - 1, math.MaxInt32, math.MinInt32},
	} {
		require.Equal(t, text, formatTokens(v))
		got, err := parseTokens(text)
		require.NoError(t, err)
		require.True(t, slices.Equal(v, got), text)
	}
}
