package audit

import (
	"fmt"
	"hash/fnv"
	"math"

	"exacta.dev/exacta/engine/sample"
)

// pitBins is the number of bins of the probability integral transform.
const pitBins = 16

// calibration compares sampled tokens with the distributions that teacher
// forcing gives for them. If each token is a draw from its distribution, the
// randomised probability integral transform, the mass below the token plus a
// uniform share of its own, is uniform and independent of all before it, and the
// sum of log p has a known mean and variance. Tokens of equal seeds are no
// independent draws: only the first request of a seed is taken.
type calibration struct {
	seeds    map[seedKey]string
	pit      *Mixture
	n        int64
	sum, vr  float64
	probs    []float32
	excluded int64
}

// first reports whether a request's tokens are samples to be counted.
func (c *calibration) first(co *course) bool {
	if co.req.Params.Greedy() || co.simulated || co.lossy {
		return false
	}
	if c.seeds == nil {
		c.seeds, c.pit = map[seedKey]string{}, NewMixture(repeat(1.0/pitBins, pitBins))
	}
	key := seedKey{co.req.Params.Seed, co.req.Params.Choice}
	if c.seeds[key] == "" {
		c.seeds[key] = co.id
		return true
	}
	c.excluded++
	return false
}

func repeat(v float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// add takes output j with the row of logits behind it.
func (c *calibration) add(b *book, co *course, j int, s *sample.Sampler, logits []float32) error {
	if cap(c.probs) < len(logits) {
		c.probs = make([]float32, len(logits))
	}
	p, err := s.ProcessTo(c.probs[:len(logits)], logits, nil)
	if err != nil {
		return err
	}
	id := int(co.tokens[j])
	if k := b.check(checkPossible); !k.holds(id < len(p) && p[id] > 0) {
		k.blameRequest(co.id, "request %s, output %d: token %d has probability 0", co.id, j, id)
		return nil
	}
	var below, mass, mean, square float64
	for i, v := range p {
		if v <= 0 {
			continue
		}
		if i < id {
			below += float64(v)
		}
		l := math.Log(float64(v))
		mass += float64(v)
		mean += float64(v) * l
		square += float64(v) * l * l
	}
	mean, square = mean/mass, square/mass
	u := (below + uniformOf(co.id, j)*float64(p[id])) / mass
	c.pit.Add(min(pitBins-1, int(u*pitBins)))
	c.n++
	c.sum += math.Log(float64(p[id])) - mean
	c.vr += max(0, square-mean*mean)
	return nil
}

// uniformOf is a number in 0..1 that depends on nothing but its arguments.
func uniformOf(id string, j int) float64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return sample.Params{Seed: h.Sum64()}.Stream(sample.Target, j, 0).Uniform(0)
}

// close enters the two tests. The second takes the normal tail a hundredfold,
// which is more than the skew of log p makes it wrong by from fewest tokens on.
func (c *calibration) close(b *book) {
	const fewest = 400
	if c.n == 0 {
		return
	}
	const alpha = alphaRun / 2
	b.test(Test{
		Name: checkPIT, Samples: c.n, Statistic: c.pit.ChiSquare(), P: c.pit.P(), Alpha: alpha,
		Detects: fmt.Sprintf("one of %d equal parts of the distribution with a share %.3f off its %.4f", pitBins, detectable(1.0/pitBins, c.n, alpha), 1.0/pitBins),
	}, fmt.Sprintf("the %d sampled tokens do not fill the target's distribution evenly: parts %v", c.n, c.pit.counts))
	if c.excluded > 0 {
		b.blindTo(fmt.Sprintf("%d requests with the seed of another are no further samples of the distribution", c.excluded))
	}
	if c.n < fewest || c.vr == 0 {
		b.check(checkLogProb).skip(fmt.Sprintf("%d sampled tokens; it needs %d", c.n, fewest))
		return
	}
	z := c.sum / math.Sqrt(c.vr)
	b.test(Test{
		Name: checkLogProb, Samples: c.n, Statistic: z, P: min(1, 100*math.Erfc(math.Abs(z)/math.Sqrt2)), Alpha: alpha,
		Detects: fmt.Sprintf("a mean log-probability that is %.3f off", (normalQuantile(alpha/200)+normalQuantile(0.1))*math.Sqrt(c.vr)/float64(c.n)),
	}, fmt.Sprintf("the mean log-probability of the sampled tokens is %.4f off the target's (z %.1f)", c.sum/float64(c.n), z))
}
