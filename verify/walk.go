package verify

import "exacta.dev/exacta/engine"

// decided returns the verdict that accepts the first n of k drafts.
func decided(n, k int, next int32, targets []int32) engine.Verdict {
	kind := engine.NextCorrection
	switch {
	case k == 0:
		kind = engine.NextSampled
	case n == k:
		kind = engine.NextBonus
	}
	return engine.Verdict{Accepted: engine.Accepted(n), Next: next, Kind: kind, Targets: targets}
}

// walk accepts drafts while they equal the target's choice, which choose gives
// for a row. Rows past the first difference are not looked at.
func walk(v *engine.Verification, choose func(row int) (int32, error)) (engine.Verdict, error) {
	drafts := v.Draft.Tokens
	targets := make([]int32, 0, len(drafts)+1)
	for row := 0; ; row++ {
		t, err := choose(row)
		if err != nil {
			return engine.Verdict{}, err
		}
		targets = append(targets, t)
		if row == len(drafts) || t != drafts[row] {
			return decided(row, len(drafts), t, targets), nil
		}
	}
}
