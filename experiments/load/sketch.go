package load

import (
	"maps"
	"math"
	"slices"
)

// accuracy is the relative accuracy of a Sketch.
const accuracy = 0.005

// gamma is the ratio of the borders of a bucket.
var gamma = (1 + accuracy) / (1 - accuracy)

// Sketch counts values by their logarithm, so that a percentile of any number of
// them is known to within half a percent and two sketches merge into that of all
// their values (DDSketch; Masson, Rim and Lee, VLDB 2019, without the collapsing of
// buckets: the times of a load span few). Values below least count as 0.
type Sketch struct {
	n       int64
	zeros   int64
	buckets map[int]int64
}

// least is the smallest value that a sketch tells from 0.
const least = 1e-9

// Add counts a value, which is not negative, n times.
func (s *Sketch) Add(v float64, n int64) {
	s.n += n
	if v < least {
		s.zeros += n
		return
	}
	if s.buckets == nil {
		s.buckets = map[int]int64{}
	}
	s.buckets[int(math.Ceil(math.Log(v)/math.Log(gamma)))] += n
}

// Merge adds the values of another sketch.
func (s *Sketch) Merge(o *Sketch) {
	s.n, s.zeros = s.n+o.n, s.zeros+o.zeros
	if s.buckets == nil {
		s.buckets = map[int]int64{}
	}
	for i, n := range o.buckets {
		s.buckets[i] += n
	}
}

// Quantiles returns the values at shares of 0..1, which rise.
func (s *Sketch) Quantiles(shares []float64) []float64 {
	out := make([]float64, len(shares))
	keys := slices.Sorted(maps.Keys(s.buckets))
	seen, at, value := s.zeros, 0, 0.0
	for i, q := range shares {
		rank := int64(q * float64(s.n-1))
		for seen <= rank && at < len(keys) {
			seen += s.buckets[keys[at]]
			value = 2 * math.Pow(gamma, float64(keys[at])) / (gamma + 1)
			at++
		}
		out[i] = value
	}
	return out
}

// mostExact is the number of values above which percentiles are sketched.
const mostExact = 1 << 17

// values gathers a distribution: exactly while there are few, sketched after that.
// Mean, deviation, least and largest are exact always.
type values struct {
	n                      int64
	sum, square, low, high float64
	exact                  []float64
	sketch                 *Sketch // of all values; nil while they are in exact
}

// add adds a value that is there n times.
func (v *values) add(x float64, n int) {
	if n < 1 {
		return
	}
	if v.n == 0 || x < v.low {
		v.low = x
	}
	v.high = max(v.high, x)
	v.n += int64(n)
	v.sum, v.square = v.sum+x*float64(n), v.square+x*x*float64(n)
	if v.sketch == nil && len(v.exact)+n > mostExact {
		v.sketch = &Sketch{}
		for _, y := range v.exact {
			v.sketch.Add(y, 1)
		}
		v.exact = nil
	}
	if v.sketch != nil {
		v.sketch.Add(x, int64(n))
		return
	}
	for range n {
		v.exact = append(v.exact, x)
	}
}

// percentiles are those of a Dist, in its order.
var percentiles = []float64{0.5, 0.75, 0.9, 0.95, 0.99}

// dist works a distribution out.
func (v *values) dist() Dist {
	if v.n == 0 {
		return Dist{}
	}
	d := Dist{N: v.n, Mean: v.sum / float64(v.n), Min: v.low, Max: v.high, Sketched: v.sketch != nil}
	var q []float64
	if v.sketch != nil {
		d.SD = math.Sqrt(max(0, v.square/float64(v.n)-d.Mean*d.Mean))
		q = v.sketch.Quantiles(percentiles)
	} else {
		slices.Sort(v.exact)
		d.SD = deviation(v.exact, d.Mean)
		for _, share := range percentiles {
			q = append(q, quantile(v.exact, share))
		}
	}
	d.P50, d.P75, d.P90, d.P95, d.P99 = q[0], q[1], q[2], q[3], q[4]
	return d
}

// deviation is the standard deviation of a population, in two passes.
func deviation(v []float64, mean float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	return math.Sqrt(sum / float64(len(v)))
}

// quantile interpolates linearly in sorted values, as numpy does.
func quantile(sorted []float64, share float64) float64 {
	at := share * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
