package load

import (
	"fmt"
	"sync"
	"time"
)

// tick is how long the watcher sleeps.
const tick = 2 * time.Millisecond

// watcher measures how late goroutines of this process wake up.
type watcher struct {
	quit chan struct{}
	done sync.WaitGroup
	late values
}

// watch begins to measure.
func watch() *watcher {
	w := &watcher{quit: make(chan struct{})}
	w.done.Go(func() {
		timer := time.NewTimer(tick)
		defer timer.Stop()
		for {
			from := time.Now()
			select {
			case <-w.quit:
				return
			case <-timer.C:
				w.late.add(ms(int64(max(0, time.Since(from)-tick))), 1)
				timer.Reset(tick)
			}
		}
	})
	return w
}

// stop ends the measurement.
func (w *watcher) stop() Dist {
	close(w.quit)
	w.done.Wait()
	return w.late.dist()
}

// Limits of what a generator may add. An open load's median lag below 10 ms is what
// inference-perf asks for.
const (
	mostLag      = 10.0 // ms, of the median sending
	leastRate    = 0.95 // of the rate that was asked for
	noticedLate  = 1.0  // ms, of waking up
	noticedShare = 0.1  // of what is measured
)

// health judges whether the generator kept up.
func (g *generator) health(res *Result) {
	var lag values
	first, last, lastSched, n := int64(-1), int64(0), int64(0), 0
	for i := range res.Rows {
		r := &res.Rows[i]
		if r.Sent < 0 || r.Sched < 0 {
			continue
		}
		lag.add(ms(max(0, r.Sent-r.Sched)), 1)
		if n++; first < 0 || r.Sent < first {
			first = r.Sent
		}
		last, lastSched = max(last, r.Sent), max(lastSched, r.Sched)
	}
	h := &res.Generator
	h.SchedLag = lag.dist()
	if g.Plan.Lanes == 0 && n > 1 && lastSched > 0 {
		h.Requested = float64(n) / time.Duration(lastSched).Seconds()
		h.Achieved = float64(n) / time.Duration(last).Seconds()
	}
	f := Measure(nil, Whole(res.Rows))
	decode := f.TPOT.P50 * float64(f.OutputTokens) / float64(max(1, f.Finished))
	switch {
	case h.SchedLag.P50 > mostLag:
		h.Why = fmt.Sprintf("half of the requests were sent more than %.1f ms late", h.SchedLag.P50)
	case h.Requested > 0 && h.Achieved < leastRate*h.Requested:
		h.Why = fmt.Sprintf("%.1f requests were sent a second; the load is of %.1f", h.Achieved, h.Requested)
	case h.Wake.P99 > noticedLate && f.TTFT.N > 0 && h.Wake.P99 > noticedShare*f.TTFT.P50:
		h.Why = fmt.Sprintf("this process wakes up %.1f ms late in one of a hundred cases, and half of the first tokens come within %.1f ms", h.Wake.P99, f.TTFT.P50)
	case h.Wake.P99 > noticedLate && f.TPOT.N > 0 && h.Wake.P99 > noticedShare*decode:
		h.Why = fmt.Sprintf("this process wakes up %.1f ms late in one of a hundred cases, and an answer lasts %.1f ms", h.Wake.P99, decode)
	}
	h.Lagging = h.Why != ""
}
