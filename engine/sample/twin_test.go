package sample

import (
	"cmp"
	"math"
	"slices"
)

// twin is the pipeline as its documentation says it, slowly: sorted lists, the
// library's exponential, counts by scanning.
func twin(p Params, prompt, output []int32, logits []float32) []float64 {
	z := make([]float64, len(logits))
	for i, l := range logits {
		z[i] = float64(l)
		count := 0
		for _, o := range output {
			if int(o) == i {
				count++
			}
		}
		r := float64(p.RepetitionPenalty)
		if r != 0 && (count > 0 || slices.Contains(prompt, int32(i))) {
			if z[i] > 0 {
				z[i] /= r
			} else {
				z[i] *= r
			}
		}
		z[i] -= float64(p.FrequencyPenalty) * float64(count)
		if count > 0 {
			z[i] -= float64(p.PresencePenalty)
		}
	}
	order := make([]int, len(z))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(z[b], z[a]) })
	out := make([]float64, len(z))
	if p.Temperature == 0 {
		out[order[0]] = 1
		return out
	}
	if p.TopK > 0 && p.TopK < len(order) {
		order = order[:p.TopK]
	}
	weight := func(i int) float64 { return math.Exp((z[i] - z[order[0]]) / float64(p.Temperature)) }
	sum := func() (s float64) {
		for _, i := range order {
			s += weight(i)
		}
		return s
	}
	if p.TopP > 0 && p.TopP < 1 {
		before, total := 0.0, sum()
		for n, i := range order {
			if n > 0 && before >= float64(p.TopP)*total {
				order = order[:n]
				break
			}
			before += weight(i)
		}
	}
	if p.MinP > 0 {
		order = slices.DeleteFunc(order, func(i int) bool { return weight(i) < float64(p.MinP) })
	}
	total := sum()
	for _, i := range order {
		out[i] = weight(i) / total
	}
	return out
}
