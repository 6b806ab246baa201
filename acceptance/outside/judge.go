package outside

import (
	"context"
	"math"
)

// Judge is a model of the same weights.
type Judge interface {
	// Vocab is the number of ids that the model has.
	Vocab() int
	// Stops are the ids that end a text.
	Stops() []int32
	// Force reads prompt and output in one pass and calls each with the
	// logits that predict output[i], for i from 0 to len(output): the last
	// row predicts what comes behind it. The row is valid during the call.
	Force(ctx context.Context, prompt, output []int32, each func(i int, row []float32) error) error
}

// unit is the spacing of BF16 numbers (8 significant bits) at a logit's
// magnitude.
func unit(logit float32) float64 {
	_, exp := math.Frexp(math.Abs(float64(logit)))
	if logit == 0 {
		exp = -125
	}
	return math.Ldexp(1, max(exp, -125)-8)
}

// position is what the judge says of one token.
type position struct {
	token, top int32
	gap        float64 // of the first choice over the token, in units
	runner     float64 // of the first choice over the second, in units
}

// place judges one token by a row of logits. wants are the tokens of which one
// was chosen: the best of them counts.
func place(row []float32, wants ...int32) position {
	var top, second int32 = 0, -1
	for i := 1; i < len(row); i++ {
		switch {
		case row[i] > row[top]:
			top, second = int32(i), top
		case second < 0 || row[i] > row[second]:
			second = int32(i)
		}
	}
	token := wants[0]
	for _, w := range wants {
		if row[w] > row[token] {
			token = w
		}
	}
	p := position{token: token, top: top}
	u := unit(row[top])
	p.gap = (float64(row[top]) - float64(row[token])) / u
	if second >= 0 {
		p.runner = (float64(row[top]) - float64(row[second])) / u
	}
	return p
}
