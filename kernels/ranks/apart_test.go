package ranks_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels/ranks"
)

// apart plays two ranks that do different things after a common step, and
// returns their errors.
func apart(t *testing.T, o ranks.Options, tail func(be *ranks.Backend, l layer) error) (errs [2]error) {
	t.Helper()
	before := runtime.NumGoroutine()
	g := group(t, 2, o)
	joined := g.Run(func(be *ranks.Backend) error {
		l, err := load(be)
		if err == nil {
			err = l.step(be, height)
		}
		if err == nil {
			err = tail(be, l)
		}
		errs[be.Rank()] = err
		return err
	})
	require.Error(t, joined)
	for r, err := range errs {
		if err != nil {
			require.ErrorContains(t, joined, fmt.Sprintf("rank %d: %s", r, err))
		}
	}
	require.Error(t, g.Err())
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before, "goroutines are left")
	return errs
}

// Whatever leads the ranks apart, all of them end with one error that says what
// happened, and none waits for ever.
func TestRanksThatComeApart(t *testing.T) {
	lost := errors.New("the device fell off the bus")
	for _, c := range []struct {
		name, want string
		timeout    time.Duration
		first      func(be *ranks.Backend, l layer) error // of rank 0
		second     func(be *ranks.Backend, l layer) error // of rank 1
		alone      bool                                   // rank 1 has an error of its own, or none
	}{
		{name: "other shape", want: "diverged: at exchange 2 rank 0 is at embed proj to bf16 [6, 128], rank 1 at embed proj to bf16 [5, 128]",
			second: func(be *ranks.Backend, l layer) error { return l.step(be, height-1) }},
		{name: "other operation", want: "diverged: at exchange 2 rank 0 is at embed proj to bf16 [6, 128], rank 1 at gathering hashes",
			second: func(be *ranks.Backend, _ layer) error { _, err := be.Gather(nil); return err }},
		{name: "other tensor", want: "rank 1 at embed other to bf16 [6, 128]", second: func(be *ranks.Backend, l layer) (err error) {
			if l.w, err = be.Load(matrix("other", outputs, inputs)); err != nil {
				return err
			}
			return l.step(be, height)
		}},
		{name: "error of the backend", want: "rank 1: cpu: copy", second: func(be *ranks.Backend, l layer) error {
			be.Queue().Copy(l.x, l.dst)
			return l.step(be, height)
		}},
		{name: "error of the caller", want: "rank 1: the device fell off the bus", alone: true,
			second: func(*ranks.Backend, layer) error { return lost }},
		{name: "told", want: "rank 1: the device fell off the bus", second: func(be *ranks.Backend, l layer) error {
			be.Fail(lost)
			return l.step(be, height)
		}},
		{name: "panic", want: "rank 1: panic: off by one", alone: true, second: func(*ranks.Backend, layer) error { panic("off by one") }},
		{name: "end of the goroutine", want: "rank 1: its goroutine ended before its function returned", alone: true,
			second: func(*ranks.Backend, layer) error { runtime.Goexit(); return nil }},
		{name: "return", want: "rank 1 has returned while rank 0 waits at exchange 2 (embed proj", alone: true,
			second: func(*ranks.Backend, layer) error { return nil }},
		{name: "return while the other waits", want: "rank 1 has returned while rank 0 waits at exchange 2 (embed proj", alone: true,
			second: func(*ranks.Backend, layer) error { time.Sleep(20 * time.Millisecond); return nil }},
		{name: "close", want: "rank 1 was closed while rank 0 waits at exchange 2 (embed proj", alone: true,
			second: func(be *ranks.Backend, _ layer) error { return be.Close() }},
		{name: "close while the other waits", want: "rank 1 was closed while rank 0 waits at exchange 2 (embed proj", alone: true,
			second: func(be *ranks.Backend, _ layer) error { time.Sleep(20 * time.Millisecond); return be.Close() }},
		{name: "late", timeout: 30 * time.Millisecond, want: "rank 0 waited 30ms at exchange 2 (embed proj to bf16 [6, 128]) for rank 1",
			second: func(be *ranks.Backend, l layer) error {
				time.Sleep(300 * time.Millisecond)
				return l.step(be, height)
			}},
		{name: "late in the way of the others", want: "rank 0: embed: row 0 has id -1, proj has rows 0 to 319",
			first: func(be *ranks.Backend, l layer) error {
				be.Queue().Write(l.ids.Top(1), []byte{255, 255, 255, 255})
				be.Queue().Embed(l.x, l.w, l.ids)
				return be.Queue().Err()
			},
			second: func(be *ranks.Backend, l layer) error { return l.step(be, height) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			errs := apart(t, ranks.Options{Timeout: c.timeout}, func(be *ranks.Backend, l layer) error {
				switch {
				case be.Rank() == 1:
					return c.second(be, l)
				case c.first != nil:
					return c.first(be, l)
				}
				return l.step(be, height)
			})
			require.ErrorContains(t, errs[0], c.want)
			if !c.alone {
				require.EqualError(t, errs[1], errs[0].Error(), "one error for all")
			}
		})
	}
}
