package kernels

import "fmt"

// Score says how a router turns a row of logits into weights.
type Score uint8

// Scores of a router.
const (
	// ScoreSoftmax is the softmax over all experts (Qwen3-MoE). Experts are
	// chosen by their logits, which it orders alike.
	ScoreSoftmax Score = iota
	// ScoreSigmoid is sigmoid of each logit (DeepSeek-V3, GLM-4.5).
	ScoreSigmoid
	// ScoreSqrtSoftplus is the square root of log(1 + exp of each logit)
	// (DeepSeek-V4).
	ScoreSqrtSoftplus
)

// RouteSpec describes the router of a mixture of experts. Of E experts a row gets
// K: those of the largest score + bias, in descending order. Of experts of equal
// value the lower index comes first; a NaN counts as minus infinity.
//
// With Groups > 1 the experts are cut into that many groups of consecutive ones
// (DeepSeek-V3, arXiv:2412.19437, "noaux_tc"): the value of a group is the sum of
// its two largest, the Kept groups of the largest value remain (ties to the lower
// group), and the K experts come from those.
//
// The weight of a chosen expert is its score, without the bias; with Normalize
// divided by the sum of the K scores (but of softmax: + 1e-20); then times Scale.
//
// With Given the experts are those that ids holds already, and only the weights are
// computed: an id that is no expert is an error of the tables.
type RouteSpec struct {
	K            int
	Score        Score
	Bias         Weight // Vector [E]; none is zero
	Groups, Kept int    // 0 groups: one
	Normalize    bool
	Scale        float32
	Given        bool
}

// Check validates a router over experts experts.
func (s RouteSpec) Check(experts int) error {
	groups, kept := max(s.Groups, 1), s.Kept
	if groups == 1 {
		kept = 1
	}
	switch {
	case s.Given && (groups > 1 || !s.Bias.None()):
		return fmt.Errorf("%d groups and a bias for experts that are given", groups)
	case s.Score > ScoreSqrtSoftplus:
		return fmt.Errorf("unknown score %d of a router", s.Score)
	case groups > experts || experts%groups != 0 || groups > 1 && experts/groups < 2:
		return fmt.Errorf("%d experts in %d groups; groups must be equal and have at least 2", experts, groups)
	case kept <= 0 || kept > groups:
		return fmt.Errorf("%d of %d groups are kept; it must be 1 to that", kept, groups)
	case s.K <= 0 || s.K > kept*(experts/groups):
		return fmt.Errorf("%d experts a row of %d to choose from; it must be 1 to that", s.K, kept*(experts/groups))
	}
	return nil
}
