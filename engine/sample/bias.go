package sample

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// bias is what a request adds to the logit of one token.
type bias struct {
	id    int32
	value float64
}

// FormatBias writes biases, by token id, as Params carry them: "id:bias" joined
// by commas, by rising id.
func FormatBias(of map[int32]float32) string {
	ids := make([]int32, 0, len(of))
	for id := range of {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	fields := make([]string, len(ids))
	for i, id := range ids {
		fields[i] = fmt.Sprintf("%d:%s", id, strconv.FormatFloat(float64(of[id]), 'g', -1, 32))
	}
	return strings.Join(fields, ",")
}

// parseBias reads what FormatBias writes: ids rise, and biases are -100..100.
func parseBias(text string) (list []bias, err error) {
	if text == "" {
		return nil, nil
	}
	last := int64(-1)
	for _, field := range strings.Split(text, ",") {
		left, right, _ := strings.Cut(field, ":")
		id, err := strconv.ParseInt(left, 10, 32)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("logit_bias %q: want id:bias, with a token id", field)
		}
		v, err := strconv.ParseFloat(right, 32)
		if err != nil || !(math.Abs(v) <= 100) {
			return nil, fmt.Errorf("logit_bias of token %d is %q; it must be a number in -100..100", id, right)
		}
		if id <= last {
			return nil, fmt.Errorf("logit_bias of token %d comes after that of token %d; ids rise", id, last)
		}
		last = id
		list = append(list, bias{int32(id), v})
	}
	return list, nil
}

// base returns the logit of a token before penalties.
func (s *Sampler) base(logits []float32, id int32) float64 {
	z := float64(logits[id])
	if i, found := slices.BinarySearchFunc(s.bias, id, func(b bias, id int32) int { return int(b.id) - int(id) }); found {
		z += s.bias[i].value
	}
	return z
}
