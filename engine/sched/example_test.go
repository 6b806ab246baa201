package sched_test

import (
	"fmt"

	"exacta.dev/exacta/engine/sched"
)

// A core is driven by calls. Here the "engine" accepts every draft, and all
// tokens are 1.
func Example() {
	core, err := sched.New(sched.Config{Slots: 1, Pages: 4, SlotPages: 4, MaxBatchTokens: 64, Chunk: 32})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := core.Submit(sched.Request{ID: 1, Prompt: make([]int32, 40), MaxLen: 47, K: 4}); err != nil {
		fmt.Println(err)
		return
	}
	for core.Len() > 0 {
		plan := core.Plan()
		fmt.Print(plan)
		var results []sched.Result
		for _, it := range plan.Items {
			r := sched.Result{ID: it.ID, Kept: it.Rows + it.K}
			if it.Last {
				r.Tokens = append(r.Tokens, 1)
			}
			for range it.K {
				r.Tokens = append(r.Tokens, 1)
			}
			results = append(results, r)
		}
		if err := core.Commit(results); err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// step 0: running 1, waiting 0, rows 0+32, pages 3 free 0 idle
	// reset 1 slot=0
	// pages 1 slot=0 first=0 pages=0
	// prefill 1 slot=0 [0,32)
	// step 1: running 1, waiting 0, rows 0+8, pages 3 free 0 idle
	// prefill 1 slot=0 [32,40) last
	// step 2: running 1, waiting 0, rows 5+0, pages 3 free 0 idle
	// decode 1 slot=0 [40,41) k=4
	// step 3: running 1, waiting 0, rows 1+0, pages 3 free 0 idle
	// decode 1 slot=0 [45,46) k=0
}
