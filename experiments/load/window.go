package load

import (
	"fmt"
	"math"
	"time"
)

// fewest is the number of requests below which nothing is said about steadiness.
const fewest = 20

// FindWindow finds the part of a load that counts. With lanes it is from when every
// lane had sent a measured request to when the first lane ended its last one; without,
// from the first planned sending to the last. Where that is empty, or a burst sends
// all at once, it is the whole load. Its beginning is cut off where the tokens of
// small parts of it vary more than those behind (MSER-5; White, 1997), and what is
// left is looked at for trends.
func FindWindow(rows []Row, lanes int) Window {
	whole := Whole(rows)
	w := Window{From: whole.From, To: whole.To}
	all := measured(rows)
	if len(all) == 0 {
		w.Why = "no measured request was answered"
		return w
	}
	from, to := scheduled(all)
	if lanes > 0 {
		from, to = occupied(all, lanes)
	} else if from == to {
		w.Why = "a burst has no steady state: the whole load counts"
		return w
	}
	if to-from < (whole.To-whole.From)/10 {
		w.Why = "there is no time at which all lanes, or all arrivals, were at work: the whole load counts"
		return w
	}
	w.From, w.To = from, to
	if len(all) < fewest {
		w.Why = fmt.Sprintf("%d requests are too few to tell whether it is steady", len(all))
		return w
	}
	cut, found := truncate(perPart(all, from, to))
	if !found {
		w.Why = "tokens per second settle at no time in the first half"
		return w
	}
	w.Dropped = (to - from) * int64(cut) / parts
	w.From += w.Dropped
	w.Why = trend(all, w.From, w.To)
	w.Steady = w.Why == ""
	return w
}

// scheduled is the time of planned sendings.
func scheduled(all []*Row) (from, to int64) {
	from, to = all[0].Sched, all[0].Sched
	for _, r := range all {
		from, to = min(from, r.Sched), max(to, r.Sched)
	}
	return from, to
}

// occupied is the time in which all lanes are at work.
func occupied(all []*Row, lanes int) (from, to int64) {
	first, last := make([]int64, lanes), make([]int64, lanes)
	for i := range first {
		first[i], last[i] = math.MaxInt64, -1
	}
	for _, r := range all {
		if r.Lane >= 0 && r.Lane < lanes {
			first[r.Lane], last[r.Lane] = min(first[r.Lane], r.Sent), max(last[r.Lane], r.Last)
		}
	}
	from, to = 0, math.MaxInt64
	for i := range first {
		if last[i] >= 0 { // else there were fewer sessions than lanes
			from, to = max(from, first[i]), min(to, last[i])
		}
	}
	return from, to
}

// parts is the number of parts of a window whose tokens are compared, by fives.
const parts = 250

// perPart counts the tokens that arrived in each part of a window.
func perPart(all []*Row, from, to int64) []float64 {
	out := make([]float64, parts)
	for _, r := range all {
		at := r.Arrivals()
		for _, t := range at {
			if t >= from && t < to {
				out[int(float64(t-from)/float64(to-from)*parts)] += float64(r.Output) / float64(len(at))
			}
		}
	}
	return out
}

// truncate returns how many of the values to cut off: as many as make the standard
// error of the rest least, in batches of five. Found is false where that is half or
// more.
func truncate(v []float64) (cut int, found bool) {
	const batch = 5
	means := make([]float64, len(v)/batch)
	for i := range means {
		for _, x := range v[i*batch : (i+1)*batch] {
			means[i] += x / batch
		}
	}
	best := math.Inf(1)
	for d := 0; d <= len(means)/2; d++ {
		rest := means[d:]
		s := deviation(rest, mean(rest))
		if e := s * s / float64(len(rest)); e < best {
			best, cut = e, d
		}
	}
	return cut * batch, cut < len(means)/2
}

// trend says what rises or falls over a window: the time to the first token, or
// the time per token, by more than a fifth and beyond chance.
func trend(all []*Row, from, to int64) string {
	for _, m := range []struct {
		name string
		of   func(*Row) float64
	}{
		{"ttft", func(r *Row) float64 { return ms(r.First - r.Sent) }},
		{"tpot", func(r *Row) float64 { return ms(r.Last-r.First) / float64(max(1, r.Output-1)) }},
	} {
		var x, y []float64
		for _, r := range all {
			if r.Sent >= from && r.Last <= to {
				x, y = append(x, float64(r.Sent-from)/float64(to-from)), append(y, m.of(r))
			}
		}
		if len(x) < fewest {
			continue
		}
		slope, half, mean := regress(x, y)
		if math.Abs(slope) > half && math.Abs(slope) > mean/5 {
			return fmt.Sprintf("%s changes by %+.1f ms over the %.1f s of the window, from a mean of %.1f ms", m.name, slope, time.Duration(to-from).Seconds(), mean)
		}
	}
	return ""
}

// regress fits a line: its slope, half the width of the slope's interval of 99 %,
// and the mean of y.
func regress(x, y []float64) (slope, half, mean float64) {
	n := float64(len(x))
	mx := 0.0
	for i := range x {
		mx, mean = mx+x[i]/n, mean+y[i]/n
	}
	var sxx, sxy, rest float64
	for i := range x {
		sxx, sxy = sxx+(x[i]-mx)*(x[i]-mx), sxy+(x[i]-mx)*(y[i]-mean)
	}
	if sxx == 0 {
		return 0, 0, mean
	}
	slope = sxy / sxx
	for i := range x {
		d := y[i] - mean - slope*(x[i]-mx)
		rest += d * d
	}
	return slope, 2.88 * math.Sqrt(rest/(n-2)/sxx), mean // Student's t of 18 degrees of freedom, those of fewest
}
