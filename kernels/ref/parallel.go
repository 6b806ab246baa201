package ref

import "sync"

// workers is the number of goroutines that share the outputs of one operation.
const workers = 2

// parallel runs f(i) for i in [0, n) on the workers. Each i owns its outputs, so
// the result doesn't depend on who computes it.
func parallel(n int, f func(i int)) {
	if n <= 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}
